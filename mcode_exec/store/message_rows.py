"""Rows of `messages`, `token_usage` and `prefixes`: projections of canonical history."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec
from peewee import SQL, fn

from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.usage import Usage
from mcode_exec.store.statement import Statement
from mcode_exec.store.tables import Messages, Prefixes, TokenUsage, tuples

_encode = msgspec.json.Encoder().encode


class RawMessage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A display message as its row holds it."""

    id: str
    turn_id: str
    role: str
    created_ms: int
    #: an encoded DisplayMessage
    data: bytes


_decode = msgspec.json.Decoder(DisplayMessage).decode


_PUT = Statement(
    lambda session_id, message_id, turn_id, role, created_ms, data: Messages.insert(
        id=message_id,
        session_id=session_id,
        turn_id=turn_id,
        role=role,
        created_ms=created_ms,
        data=data,
        revision=Messages.select(fn.COALESCE(fn.MAX(Messages.revision), 0) + 1).where(
            Messages.session_id == session_id
        ),
    ).on_conflict(
        conflict_target=(Messages.session_id, Messages.id),
        preserve=(Messages.turn_id, Messages.data, Messages.revision),
    ),
    *(str, str, str, str, int, bytes),
)
_FIND = Statement(
    lambda session_id, message_id: Messages.select(Messages.row, Messages.data).where(
        (Messages.session_id == session_id) & (Messages.id == message_id)
    ),
    str,
    str,
)


def put_message(message: DisplayMessage) -> None:
    """Insert a message, or replace the one with its id (a call got its result, a prompt is said again)."""
    _PUT.count(
        message.session_id, message.id, message.turn_id, message.role, message.created_ms, _encode(message)
    )


def find_message(session_id: str, message_id: str) -> tuple[int, DisplayMessage] | None:
    """The row number and the message."""
    return next(((row, _decode(data)) for row, data in _FIND.tuples(session_id, message_id)), None)


def last_message(session_id: str, role: str | None = None) -> DisplayMessage | None:
    query = Messages.select(Messages.data).where(Messages.session_id == session_id)
    if role is not None:
        query = query.where(Messages.role == role)
    query = query.order_by(Messages.row.desc()).limit(1)
    return next((_decode(data) for (data,) in tuples(query)), None)


def messages_after(session_id: str, after_row: int, limit: int) -> list[tuple[int, DisplayMessage]]:
    """(row, message) in order of commitment, those after `after_row`."""
    query = (
        Messages.select(Messages.row, Messages.data)
        .where((Messages.session_id == session_id) & (Messages.row > after_row))
        .order_by(Messages.row)
        .limit(limit)
    )
    return [(row, _decode(data)) for row, data in tuples(query)]


def messages_before(session_id: str, before_row: int | None, limit: int) -> list[tuple[int, DisplayMessage]]:
    """The newest `limit` (row, message) before `before_row`, in order of commitment."""
    query = Messages.select(Messages.row, Messages.data).where(Messages.session_id == session_id)
    if before_row is not None:
        query = query.where(Messages.row < before_row)
    rows = tuples(query.order_by(Messages.row.desc()).limit(limit))
    return [(row, _decode(data)) for row, data in reversed(rows)]


def user_messages_before(
    session_id: str, before_row: int | None, limit: int
) -> list[tuple[int, DisplayMessage]]:
    """The newest `limit` (row, message) of people before a row, newest first."""
    query = Messages.select(Messages.row, Messages.data).where(
        # as it stands in the index: SQLite cannot know of a parameter that the index is about it
        (Messages.session_id == session_id) & (Messages.role == SQL("'user'"))
    )
    if before_row is not None:
        query = query.where(Messages.row < before_row)
    rows = tuples(query.order_by(Messages.row.desc()).limit(limit))
    return [(row, _decode(data)) for row, data in rows]


def first_user_message(session_id: str) -> DisplayMessage | None:
    query = (
        Messages.select(Messages.data)
        .where((Messages.session_id == session_id) & (Messages.role == SQL("'user'")))
        .order_by(Messages.row)
        .limit(1)
    )
    return next((_decode(data) for (data,) in tuples(query)), None)


def messages_of_turn(
    session_id: str, turn_id: str, before_row: int | None, limit: int
) -> list[tuple[int, DisplayMessage]]:
    """The newest `limit` (row, message) of one turn before `before_row`, in order of commitment."""
    query = Messages.select(Messages.row, Messages.data).where(
        (Messages.session_id == session_id) & (Messages.turn_id == turn_id)
    )
    if before_row is not None:
        query = query.where(Messages.row < before_row)
    rows = tuples(query.order_by(Messages.row.desc()).limit(limit))
    return [(row, _decode(data)) for row, data in reversed(rows)]


def turns_with_prefix(session_id: str, prefix: str) -> list[str]:
    """At most two turns that messages of a session belong to and whose ids start with `prefix`."""
    query = (
        Messages.select(Messages.turn_id)
        .where(
            (Messages.session_id == session_id)
            & (Messages.turn_id >= prefix)
            & (Messages.turn_id < prefix + "g")
        )
        .distinct()
    )
    return [str(turn_id) for (turn_id,) in tuples(query.limit(2))]


def newest_row(session_id: str, *, before: int | None = None) -> int:
    """The newest row of a session, or of those before one; 0: there is none."""
    query = Messages.select(fn.MAX(Messages.row)).where(Messages.session_id == session_id)
    if before is not None:
        query = query.where(Messages.row < before)
    return next((int(row or 0) for (row,) in tuples(query)), 0)


def first_row_of_turn(session_id: str, turn_id: str) -> int | None:
    query = Messages.select(fn.MIN(Messages.row)).where(
        (Messages.session_id == session_id) & (Messages.turn_id == turn_id)
    )
    return next((row for (row,) in tuples(query)), None)


_SIZES = Statement(
    lambda session_id, after_row, limit: (
        Messages.select(Messages.row, fn.LENGTH(Messages.data))
        .where((Messages.session_id == session_id) & (Messages.row > after_row))
        .order_by(Messages.row)
        .limit(limit)
    ),
    *(str, int, int),
)
_BETWEEN = Statement(
    lambda session_id, after_row, last_row: (
        Messages.select(Messages.row, Messages.revision, Messages.data)
        .where((Messages.session_id == session_id) & (Messages.row > after_row) & (Messages.row <= last_row))
        .order_by(Messages.row)
    ),
    *(str, int, int),
)
_AT = Statement(
    lambda session_id, row, after_revision: Messages.select(Messages.revision, Messages.data).where(
        (Messages.row == row) & (Messages.session_id == session_id) & (Messages.revision > after_revision)
    ),
    *(str, int, int),
)


def messages_behind(
    session_id: str, after_row: int, limit: int, most_bytes: int
) -> tuple[list[tuple[int, int, DisplayMessage]], bool]:
    """(row, revision, message) behind a row, in order of commitment, and whether that is all.

    At most `limit`, and beyond the first no more than `most_bytes` of them.
    """
    sizes = _SIZES.tuples(session_id, after_row, limit + 1)
    last, total, count = after_row, 0, 0
    for row, size in sizes[:limit]:
        total += size
        if count and total > most_bytes:
            break
        last, count = row, count + 1
    rows = _BETWEEN.tuples(session_id, after_row, last) if count else []
    return [(row, revision, _decode(data)) for row, revision, data in rows], count == len(sizes)


def message_at(session_id: str, row: int, after_revision: int) -> tuple[int, DisplayMessage] | None:
    """The revision and the message of a row, if it has changed since a revision."""
    found = _AT.tuples(session_id, row, after_revision)
    return next(((revision, _decode(data)) for revision, data in found), None)


_USAGE_COLUMNS: dict[str, type] = {
    "session_id": str,
    "turn_id": str,
    "message_id": str,
    "provider_id": str,
    "model_id": str,
    "agent": str,
    "kind": str,
    "input_tokens": int,
    "output_tokens": int,
    "reasoning_tokens": int,
    "cache_read_tokens": int,
    "cache_write_tokens": int,
    "cost_usd": str,
    "at_ms": int,
}
_ADD_USAGE = Statement(
    lambda *values: TokenUsage.insert(**dict(zip(_USAGE_COLUMNS, values, strict=True))),
    *_USAGE_COLUMNS.values(),
)
_HAS_USAGE = Statement(
    lambda message_id, kind: (
        TokenUsage.select(TokenUsage.row)
        .where((TokenUsage.message_id == message_id) & (TokenUsage.kind == kind))
        .limit(1)
    ),
    str,
    str,
)


def add_usage(
    *,
    session_id: str,
    turn_id: str,
    message_id: str,
    provider_id: str,
    model_id: str,
    agent: str | None,
    kind: str,
    usage: Usage,
    cost_usd: Decimal | str | None,
    at_ms: int,
) -> None:
    """One row of one provider answer; an `answer` row of a message is written once."""
    if kind == "answer" and _HAS_USAGE.exists(message_id, kind):
        return
    _ADD_USAGE.count(
        session_id,
        turn_id,
        message_id,
        provider_id,
        model_id,
        agent,
        kind,
        usage.input_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        None if cost_usd is None else str(cost_usd),
        at_ms,
    )


_ROW_OF = Statement(
    lambda session_id, message_id: Messages.select(Messages.row).where(
        (Messages.session_id == session_id) & (Messages.id == message_id)
    ),
    *(str, str),
)
_UP_TO = Statement(
    lambda session_id, last_row: (
        Messages.select(Messages.id, Messages.data)
        .where((Messages.session_id == session_id) & (Messages.row <= last_row))
        .order_by(Messages.row)
    ),
    *(str, int),
)
_COPY = Statement(
    lambda session_id, message_id, turn_id, role, created_ms, data, revision: Messages.insert(
        id=message_id,
        session_id=session_id,
        turn_id=turn_id,
        role=role,
        created_ms=created_ms,
        data=data,
        revision=revision,
    ).on_conflict_ignore(),
    *(str, str, str, str, int, bytes, int),
)


def row_of(session_id: str, message_id: str) -> int | None:
    return next((int(row) for (row,) in _ROW_OF.tuples(session_id, message_id)), None)


def ids_of(session_id: str) -> list[str]:
    query = Messages.select(Messages.id).where(Messages.session_id == session_id)
    return [str(one) for (one,) in tuples(query)]


def ids_with_prefix(session_id: str, prefix: str) -> list[str]:
    """At most two messages of a session whose ids start with `prefix`: enough to know whether it is unique."""
    query = (
        Messages.select(Messages.id)
        .where((Messages.session_id == session_id) & (Messages.id >= prefix) & (Messages.id < prefix + "g"))
        .limit(2)
    )
    return [str(one) for (one,) in tuples(query)]


def delete_behind(session_id: str, first_row: int, limit: int) -> int:
    """Delete the newest messages of a session, `first_row` being the oldest that goes; how many went."""
    newest = (
        Messages.select(Messages.row)
        .where((Messages.session_id == session_id) & (Messages.row >= first_row))
        .order_by(Messages.row.desc())
        .limit(limit)
    )
    return int(Messages.delete().where(Messages.row.in_(newest)).execute())


def raw_messages_up_to(session_id: str, last_row: int) -> list[tuple[str, bytes]]:
    """(id, encoded DisplayMessage) in order of commitment."""
    return [(one, bytes(data)) for one, data in _UP_TO.tuples(session_id, last_row)]


def insert_copies(session_id: str, first_revision: int, rows: Sequence[RawMessage]) -> None:
    """Insert messages that were made elsewhere, in their order; those that are there already stay as they are."""
    _COPY.run_each(
        (session_id, row.id, row.turn_id, row.role, row.created_ms, row.data, first_revision + number)
        for number, row in enumerate(rows)
    )


def put_prefix(digest: str, body: bytes) -> None:
    """Keep a system prompt and tool schemas once per distinct digest."""
    Prefixes.insert(digest=digest, body=body).on_conflict_ignore().execute()
