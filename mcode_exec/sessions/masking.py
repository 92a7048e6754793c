"""Rows hold no secrets.

What is kept for people (messages, titles) is masked when it is written, by the
run that knows the secrets: whoever exports it later may not have them in the
environment any more.  The history is what the model gets, and stays as it is.
"""

from __future__ import annotations

import msgspec

from mcode_exec.records.message import DisplayMessage
from mcode_exec.redaction import Redactor


def masked(message: DisplayMessage, redactor: Redactor) -> DisplayMessage:
    """`message` with every secret replaced."""
    if not redactor.may_change(msgspec.json.encode(message).decode()):
        return message
    plain = msgspec.to_builtins(message)
    clean = redactor.json(plain)
    return message if clean == plain else msgspec.convert(clean, DisplayMessage)
