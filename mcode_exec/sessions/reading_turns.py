"""Reading a session back: pages of messages, what their turns came to, and which turn runs.

All of one page is one state of the store, read by keyset: a session of any
length costs no more than what is asked for.  Masking and rendering are others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from mcode_exec.errors import SessionError
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.question import TurnFacts
from mcode_exec.records.session import Session
from mcode_exec.records.turn import Receipt
from mcode_exec.records.usage import Usage
from mcode_exec.store import message_rows, session_rows, turn_rows
from mcode_exec.store.database import Store

#: names the newest turn of a session
LAST = "last"
_TURN_PREFIX_CHARS = len("turn_") + 8


class Page(Struct, frozen=True, kw_only=True):
    """Messages of a session, oldest first, as one read found them."""

    session: Session
    #: (row, message)
    rows: tuple[tuple[int, DisplayMessage], ...]
    #: of the turns that these belong to
    facts: dict[str, TurnFacts]
    #: the turn that runs
    current_turn_id: str | None
    #: there are earlier ones
    has_more: bool

    @property
    def messages(self) -> tuple[DisplayMessage, ...]:
        return tuple(message for _, message in self.rows)


async def read_page(
    store: Store, session_id: str, *, turn_id: str | None, before_row: int | None, limit: int
) -> Page:
    """The newest `limit` messages of a session, or of one turn of it, before a row.

    Raises: SessionError when the session is gone.
    """

    def read() -> Page:
        if turn_id is None:
            rows = message_rows.messages_before(session_id, before_row, limit + 1)
        else:
            rows = message_rows.messages_of_turn(session_id, turn_id, before_row, limit + 1)
        return _page(session_id, rows[-limit:], has_more=len(rows) > limit, named=turn_id)

    return await store.read(read)


async def read_after(store: Store, session_id: str, *, after_row: int, limit: int) -> Page:
    """The oldest `limit` messages of a session behind a row; `has_more`: there may be later ones."""

    def read() -> Page:
        rows = message_rows.messages_after(session_id, after_row, limit)
        return _page(session_id, rows, has_more=len(rows) == limit, named=None)

    return await store.read(read)


def _page(
    session_id: str, rows: Sequence[tuple[int, DisplayMessage]], *, has_more: bool, named: str | None
) -> Page:
    session = session_rows.find_session(session_id)
    if session is None:
        raise SessionError(f"there is no session {session_id} any more")
    wanted = dict.fromkeys(message.turn_id for _, message in rows)
    last = session.last_turn_id
    for one in (named, last):
        if one is not None:
            wanted[one] = None
    facts = {receipt.turn_id: _facts(receipt) for receipt in turn_rows.receipts_of(list(wanted))}
    running = last is not None and last in facts and facts[last].state == "running"
    return Page(
        session=session,
        rows=tuple(rows),
        facts=facts,
        current_turn_id=last if running else None,
        has_more=has_more,
    )


async def find_turn(store: Store, session: Session, name: str) -> str:
    """The turn of a session that an id, a unique prefix of one or `last` names.

    Raises: SessionError `turn_not_found`.
    """
    found = await store.read(partial(_turns_named, session, name))
    if len(found) == 1:
        return found[0]
    if not found and name == LAST:
        raise SessionError(f"session {session.id} has had no turn yet", code="turn_not_found")
    why = f"has no turn {name}" if not found else f"has several turns that start with {name}"
    raise SessionError(
        f"session {session.id} {why}; `mcode sessions show {session.id} --output-format json` shows their ids",
        code="turn_not_found",
    )


def _turns_named(session: Session, name: str) -> list[str]:
    if name == LAST:
        if session.last_turn_id is not None:
            return [session.last_turn_id]
        newest = message_rows.messages_before(session.id, None, 1)
        return [message.turn_id for _, message in newest]
    if message_rows.first_row_of_turn(session.id, name) is not None:
        return [name]
    receipt = turn_rows.find_receipt(name)
    if receipt is not None and receipt.session_id == session.id:
        return [name]
    if len(name) < _TURN_PREFIX_CHARS:
        return []
    both = (message_rows.turns_with_prefix, turn_rows.turns_with_prefix)
    return list(dict.fromkeys(turn for find in both for turn in find(session.id, name)))


class _Told(Struct, frozen=True, rename="camel"):
    """What of a stored result is read back, whichever mcode wrote it."""

    usage: Usage | None = None
    usage_incomplete: bool = False
    cost_usd: Any = None
    steps: int | None = None
    tool_calls: int | None = None
    tool_errors: int | None = None
    duration_ms: int | None = None
    error: dict[str, Any] | None = None
    file_changes: dict[str, Any] | None = None


# Costs as they were written: a float would be a guess.
_told = msgspec.json.Decoder(_Told, float_hook=str)


def _facts(receipt: Receipt) -> TurnFacts:
    told = _told_of(receipt.result)
    state: Any = "running" if receipt.settled_ms is None else receipt.outcome or "unknown"
    request = None
    if receipt.request_id is not None and receipt.request_scope is not None:
        request = (receipt.request_scope, receipt.request_id)
    message = None if told.error is None else told.error.get("message")
    return TurnFacts(
        turn_id=receipt.turn_id,
        state=state,
        sequence=receipt.sequence,
        source=receipt.source,
        request=request,
        attempt=receipt.attempt,
        is_dispatched=receipt.is_dispatched,
        reason=receipt.reason,
        code=receipt.code,
        error=None if message is None else str(message),
        accepted_ms=receipt.accepted_ms,
        settled_ms=receipt.settled_ms,
        duration_ms=told.duration_ms,
        steps=told.steps,
        tool_calls=told.tool_calls,
        tool_errors=told.tool_errors,
        usage=told.usage,
        usage_incomplete=told.usage_incomplete,
        cost_usd=None if told.cost_usd is None else str(told.cost_usd),
        file_changes=told.file_changes,
    )


def _told_of(result: bytes | None) -> _Told:
    if result is None:
        return _Told()
    try:
        return _told.decode(result)
    except (ValueError, RecursionError):
        return _Told()  # another mcode's result: what it says is not known, and nothing depends on it
