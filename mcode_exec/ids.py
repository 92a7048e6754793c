"""Ids: text with a prefix, made here and nowhere else.

Session ids are `mvs_` + 32 hex (an UUID without dashes), turn ids `turn_` + a
UUID.  The id of a user message is derived from its session and its message
key, so that a submission that is tried twice lands on the same message.
"""

from __future__ import annotations

import os
import re

_SESSION_ID = re.compile(r"mvs_[0-9a-f]{32}")
_TURN_ID = re.compile(r"turn_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CALL_ID = re.compile(r"call_[0-9a-f]{24}")
_ITEM_PREFIX = re.compile(r"qi_[0-9a-f]{8,32}")
_MESSAGE_PREFIX = re.compile(r"msg-(user-v1-)?[0-9a-f]{8,64}")
_USER_MESSAGE = "msg-user-v1-"
_SESSION_PREFIX = re.compile(r"mvs_[0-9a-f]{8,32}")
#: what another program calls a session: no word, no path, no option, nothing that acts on a terminal
_ALIAS = re.compile(r"(?!mvs_)(?=.*[0-9_-])[A-Za-z0-9][A-Za-z0-9_-]{7,127}")


def _uuid_hex() -> str:
    raw = bytearray(os.urandom(16))
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    return raw.hex()


def _uuid() -> str:
    digits = _uuid_hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def new_session_id() -> str:
    return "mvs_" + _uuid_hex()


def new_turn_id() -> str:
    return "turn_" + _uuid()


def new_run_id() -> str:
    return "run_" + _uuid_hex()


def new_owner_token() -> str:
    """One per process: names its liveness lock and signs its session locks."""
    return "own_" + _uuid_hex()


def new_job_run_id() -> str:
    """A run of a job."""
    return "job_" + _uuid_hex()


def new_schedule_id() -> str:
    """A schedule; a name that is given again is another one's."""
    return "sch_" + _uuid_hex()


def new_rewind_id() -> str:
    """A rewind; names the generation that it archives."""
    return "rwd_" + _uuid_hex()


def new_item_id() -> str:
    """A queue item."""
    return "qi_" + _uuid_hex()


def item_id_of(session_id: str, dedupe_key: str) -> str:
    """The queue item that a key of its session's names, whether it waits or has run."""
    return "qi_" + _digest(session_id, "queue:" + dedupe_key)[:32]


def new_signal_id() -> str:
    """A steer or an abort."""
    return "sig_" + _uuid_hex()


def new_message_id() -> str:
    """An assistant or tool message; unique, and known before its stream begins."""
    return "msg-" + _uuid_hex()


def new_call_id() -> str:
    """A tool call; unique in every session, whatever id the provider used."""
    return "call_" + _uuid_hex()[:24]


def user_message_id(session_id: str, message_key: str) -> str:
    """The id of the user message that `message_key` (`turn:` + turn id for a prompt) makes in a session.

    Source: session-system notes, user message ids.
    """
    return _USER_MESSAGE + _digest(session_id, message_key)


def _digest(*parts: str) -> str:
    import hashlib

    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def copied_message_id(session_id: str, message_id: str) -> str:
    """The id that a message of another session gets in `session_id`; always the same, and of the same kind."""
    if message_id.startswith(_USER_MESSAGE):
        return user_message_id(session_id, "copy:" + message_id)
    return "msg-" + _digest(session_id, "copy:" + message_id)[:32]


def copied_turn_id(session_id: str, turn_id: str) -> str:
    """Likewise of a turn: it ran once, in the session that it was copied from."""
    digits = _digest(session_id, "copy:" + turn_id)
    return "turn_" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


def imported_session_id(origin: str, source_id: str) -> str:
    """The id of the session that is made of another program's: the same however often it is imported."""
    return "mvs_" + _digest("import", origin, source_id)[:32]


def imported_turn_id(session_id: str, key: str) -> str:
    """The turn that `key`, the source's id of what began it, makes in an imported session."""
    digits = _digest(session_id, "turn", key)
    return "turn_" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


def imported_message_id(session_id: str, key: str) -> str:
    """An assistant or tool message that the source calls `key`."""
    return "msg-" + _digest(session_id, "message", key)[:32]


def imported_call_id(session_id: str, key: str) -> str:
    """A tool call that the source calls `key`."""
    return "call_" + _digest(session_id, "call", key)[:24]


def is_session_id(text: str) -> bool:
    return _SESSION_ID.fullmatch(text) is not None


def is_turn_id(text: str) -> bool:
    return _TURN_ID.fullmatch(text) is not None


def is_call_id(text: str) -> bool:
    return _CALL_ID.fullmatch(text) is not None


def is_session_prefix(text: str) -> bool:
    """Whether `text` may name a session: `mvs_` and at least 8 of its 32 hex digits."""
    return _SESSION_PREFIX.fullmatch(text) is not None


def is_alias(text: str) -> bool:
    """Whether `text` may be what another program calls a session, or at least 8 characters of it."""
    return _ALIAS.fullmatch(text) is not None


def is_item_prefix(text: str) -> bool:
    """Whether `text` may name a queue item: `qi_` and at least 8 of its 32 hex digits."""
    return _ITEM_PREFIX.fullmatch(text) is not None


def is_message_prefix(text: str) -> bool:
    """Whether `text` may name a message of a session: at least the first 8 of its hex digits."""
    return _MESSAGE_PREFIX.fullmatch(text) is not None


def is_user_message_id(text: str) -> bool:
    """Whether a message of this id was said by a person (or for one)."""
    return text.startswith(_USER_MESSAGE)


def item_id(message_id: str, block_index: int) -> str:
    """The id of an outward item: the same live and on resync."""
    return f"{message_id}:{block_index}"
