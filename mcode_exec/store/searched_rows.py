"""What the search index is made of: rows of `messages` and `sessions`, and how to see that they have changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from mcode_exec.records.message import DisplayMessage
from mcode_exec.store.search_rows import Stamp
from mcode_exec.store.tables import Messages

_decode = msgspec.json.Decoder(DisplayMessage).decode

# Written out, with any number of values as one parameter: making the index reads every message there is, and peewee
# takes longer to write such a statement down, and to turn each row over, than SQLite to run it.
_COUNTS = """SELECT session_id, COUNT(*), MAX(row), MAX(revision) FROM messages
WHERE session_id IN (SELECT value FROM json_each(?)) GROUP BY session_id"""
_IDS = "SELECT row, id FROM messages WHERE row IN (SELECT value FROM json_each(?))"
_REVISIONS = "SELECT row, revision FROM messages WHERE session_id = ?"
_MESSAGES = (
    "SELECT row, revision, data FROM messages WHERE row IN (SELECT value FROM json_each(?)) ORDER BY row"
)
_TITLES = (
    "SELECT id, title, created_ms FROM sessions WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
)
_TITLES_BEHIND = "SELECT id, title, created_ms FROM sessions WHERE id > ? ORDER BY id LIMIT ?"
_EXISTING = "SELECT id FROM sessions WHERE id IN (SELECT value FROM json_each(?))"
_STARTED = "SELECT id FROM sessions WHERE status = 'started' LIMIT ?"
_BEHIND = "SELECT row, session_id FROM messages WHERE row > ? ORDER BY row LIMIT ?"
_NEWEST = "SELECT row, id FROM messages WHERE row > 0 ORDER BY row DESC LIMIT 1"
_ID_AT = "SELECT id FROM messages WHERE row = ?"
_LAST_NUMBERS = "SELECT name, seq FROM sqlite_sequence WHERE name IN ('messages', 'session_changes')"


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """How far a store has come: the numbers of its newest change of a session and of its newest message."""

    change: int
    row: int
    #: of the newest message: another one under the same number is another store
    message_id: str


def _run(sql: str, *values: Any) -> Any:
    return Messages._meta.database.execute_sql(sql, values)


def _given(values: Sequence[Any]) -> str:
    return msgspec.json.encode(values).decode()


def newest_message() -> tuple[int, str]:
    """Row and id of the newest message of all; (0, '') where there is none."""
    row, message_id = _run(_NEWEST).fetchone() or (0, "")
    return int(row), str(message_id)


def message_id_at(row: int) -> str | None:
    found = _run(_ID_AT, row).fetchone()
    return None if found is None else str(found[0])


def is_of_this_store(known: Marks) -> bool:
    """Whether the store has once been where `known` says; one that was put back from a backup has not.

    Numbers are given once, so a message that is missing was deleted, and one with another id is another store's.
    """
    last: dict[str, int] = dict(_run(_LAST_NUMBERS).fetchall())
    message_id = message_id_at(known.row)
    return (
        known.row <= last.get("messages", 0)
        and known.change <= last.get("session_changes", 0)
        and message_id in (None, known.message_id)
    )


def page_stamps(after: str, limit: int) -> list[Stamp]:
    """What sessions are like now, by id, those behind `after`."""
    return [stamp for stamp, _ in _stamps(_run(_TITLES_BEHIND, after, limit).fetchall()).values()]


def stamps_of(session_ids: Sequence[str]) -> dict[str, tuple[Stamp, int]]:
    """What sessions are like now, and when each was made; of those that exist."""
    return _stamps(_run(_TITLES, _given(session_ids)).fetchall())


def _stamps(sessions: Sequence[tuple[Any, ...]]) -> dict[str, tuple[Stamp, int]]:
    """The stamps of sessions of which id, title and time are known, in their order."""
    counted = _run(_COUNTS, _given([session_id for session_id, _, _ in sessions]))
    counts = {session_id: values for session_id, *values in counted}
    ids: dict[int, str] = dict(_run(_IDS, _given([row for _, row, _ in counts.values()])).fetchall())
    found: dict[str, tuple[Stamp, int]] = {}
    for session_id, title, created_ms in sessions:
        messages, row, revision = counts.get(session_id, (0, 0, 0))
        stamp = Stamp(
            session_id=session_id,
            title=title,
            messages=messages,
            newest_row=row,
            newest_revision=revision,
            newest_id=ids.get(row, ""),
        )
        found[session_id] = (stamp, created_ms)
    return found


def existing(session_ids: Sequence[str]) -> set[str]:
    """Those of some sessions that exist."""
    return {session_id for (session_id,) in _run(_EXISTING, _given(session_ids))}


def started(limit: int) -> list[str]:
    """Ids of sessions in which a turn runs, or did when its process died."""
    return [session_id for (session_id,) in _run(_STARTED, limit)]


def sessions_behind(row: int, limit: int) -> tuple[set[str], int, bool]:
    """Sessions of the messages behind a row, the last row that was looked at, and whether that was all."""
    rows = _run(_BEHIND, row, limit).fetchall()
    last = rows[-1][0] if rows else row
    return {session_id for _, session_id in rows}, last, len(rows) < limit


def revisions(session_id: str) -> dict[int, int]:
    """row -> revision of a session's messages."""
    found: dict[int, int] = dict(_run(_REVISIONS, session_id).fetchall())
    return found


def messages_at(rows: Sequence[int]) -> Iterator[tuple[int, int, DisplayMessage | None]]:
    """(row, revision, message) one after the other, in their order; None for one that cannot be read."""
    for row, revision, data in _run(_MESSAGES, _given(rows)):
        try:
            yield row, revision, _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield row, revision, None
