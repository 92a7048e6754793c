"""Rows hold no secrets.

What is kept for people (messages, titles) is masked when it is written, by the
run that knows the secrets: whoever exports it later may not have them in the
environment any more.  The history is what the model gets, and stays as it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mcode_exec.records.message import DisplayMessage
from mcode_exec.redaction import Redactor


def masked(message: DisplayMessage, redactor: Redactor) -> DisplayMessage:
    """`message` with every secret replaced."""
    if not redactor.may_change(msgspec.json.encode(message).decode()):
        return message
    plain = msgspec.to_builtins(message)
    # One look at all texts together: hardly any message holds a secret, and none has half of one.  NUL is part of
    # no shape, and stands for the ends of a text.
    if not redactor.spans("\0".join(_texts(plain))):
        return message
    clean = redactor.json(plain)
    return message if clean == plain else msgspec.convert(clean, DisplayMessage)


def _texts(value: Any) -> list[str]:
    """Every text in JSON data, keys included."""
    found: list[str] = []
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict):
            left += one
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
    return found
