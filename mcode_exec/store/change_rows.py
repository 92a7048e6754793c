"""Rows of `turn_changes`: which files each turn changed.

A row comes before the first thing in a turn that may change a file, says then that
nothing is known, and is filled at the turn's end: whatever happens in between, it
says no more than what was seen.  The files are one packed column, read only where
they are shown; what contents they had is kept beside the session's history.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from peewee import JOIN

from mcode_exec.records.change import FileChange, TurnChanges
from mcode_exec.records.session import ChangeSummary
from mcode_exec.store import session_rows
from mcode_exec.store.statement import Statement
from mcode_exec.store.tables import SchemaMigrations, Sessions, TurnReceipts, dicts, tuples
from mcode_exec.store.tables import TurnChanges as Rows

#: changes are kept for 7 days; source: session-system notes, storage retention
KEPT_MS = 7 * 86_400_000
_MAX_BYTES = 64 * 1024 * 1024  # of the changes of one turn, unpacked
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[FileChange, ...])
_FACTS = [
    getattr(Rows, name)
    for name in (
        "turn_id",
        "session_id",
        "workspace",
        "begun_ms",
        "ended_ms",
        "gap",
        "reason",
        "ignores_mode",
        "reverted_ms",
    )
]


def _packed(changes: tuple[FileChange, ...]) -> bytes:
    return zlib.compress(_encoder.encode(changes), 1)


def _unpacked(data: bytes) -> tuple[FileChange, ...]:
    """Raises: MsgspecError for what no changes can be read from."""
    try:
        raw = zlib.decompressobj().decompress(data, _MAX_BYTES)
    except zlib.error as error:
        raise msgspec.DecodeError(f"changes of a turn: {error}") from error
    return _decoder.decode(raw)


def _record(row: dict[str, Any]) -> TurnChanges:
    packed = row.pop("changes", None)
    row["ignores_mode"] = bool(row["ignores_mode"])
    return TurnChanges(**row, changes=() if packed is None else _unpacked(bytes(packed)))


def put_changes(found: TurnChanges) -> None:
    """Write what is known of a turn, in place of what was known before; its session's sums follow."""
    before = _counts_of(found.turn_id)
    is_known = found.ended_ms is not None and found.gap != "all"
    now = (len(found.changes), found.additions, found.deletions) if is_known else (None, None, None)
    Rows.replace(
        turn_id=found.turn_id,
        session_id=found.session_id,
        workspace=found.workspace,
        begun_ms=found.begun_ms,
        ended_ms=found.ended_ms,
        gap=found.gap,
        reason=found.reason,
        files=now[0],
        additions=now[1],
        deletions=now[2],
        ignores_mode=int(found.ignores_mode),
        reverted_ms=found.reverted_ms,
        changes=_packed(found.changes) if found.changes else None,
    ).execute()
    if before != now and found.ended_ms is not None:
        _add_to_summary(found.session_id, before, now, found.ended_ms)


_Counts = tuple[int | None, int | None, int | None]


def _counts_of(turn_id: str) -> _Counts:
    query = Rows.select(Rows.files, Rows.additions, Rows.deletions).where(Rows.turn_id == turn_id)
    return next(((row[0], row[1], row[2]) for row in tuples(query)), (None, None, None))


def _add_to_summary(session_id: str, before: _Counts, now: _Counts, at_ms: int) -> None:
    session = session_rows.find_session(session_id)
    if session is None:
        return
    summary = session.summary or ChangeSummary(files=0, additions=0, deletions=0)
    files, additions, deletions = ((new or 0) - (old or 0) for old, new in zip(before, now, strict=True))
    if files or additions or deletions:
        session_rows.update_session(
            session_id,
            updated_ms=at_ms,
            summary=ChangeSummary(
                files=summary.files + files,
                additions=summary.additions + additions,
                deletions=summary.deletions + deletions,
            ),
        )


def find_changes(turn_id: str) -> TurnChanges | None:
    query = Rows.select(*_FACTS, Rows.changes).where(Rows.turn_id == turn_id)
    return next((_record(row) for row in dicts(query)), None)


def changes_of_session(session_id: str, limit: int) -> list[TurnChanges]:
    """Changes of a session's newest turns, oldest first."""
    query = (
        Rows.select(*_FACTS, Rows.changes)
        .where(Rows.session_id == session_id)
        .order_by(Rows.begun_ms.desc())
        .limit(limit)
    )
    return [_record(row) for row in dicts(query)][::-1]


def set_reverted(turn_ids: Sequence[str], reverted_ms: int | None) -> None:
    """Note that the changes of turns are taken back since then, or stand again."""
    for turn_id in turn_ids:
        Rows.update(reverted_ms=reverted_ms).where(Rows.turn_id == turn_id).execute()


def reverted_of(turn_ids: Sequence[str]) -> tuple[str, ...]:
    """Those of the turns whose changes are taken back just now."""
    return tuple(
        turn_id
        for turn_id in turn_ids
        if Rows.select().where((Rows.turn_id == turn_id) & Rows.reverted_ms.is_null(False)).exists()
    )


class Beside(Struct, frozen=True):
    """Another turn that may have changed files at the same time."""

    turn_id: str
    workspace: str
    #: whether its changes stand in the store
    is_told: bool


def beside(turn_id: str, begun_ms: int) -> list[Beside]:
    """Turns of any session that were at work at or after `begun_ms`, in whatever workspace."""
    ended = Rows.select(Rows.turn_id, Rows.workspace).where(
        (Rows.ended_ms >= begun_ms) & (Rows.turn_id != turn_id)
    )
    running = (
        Rows.select(Rows.turn_id, Rows.workspace)
        .join(TurnReceipts, JOIN.LEFT_OUTER, on=(TurnReceipts.turn_id == Rows.turn_id))
        .where(
            Rows.ended_ms.is_null()
            & (Rows.turn_id != turn_id)
            & (TurnReceipts.settled_ms.is_null() | (TurnReceipts.settled_ms >= begun_ms))
        )
    )
    return [
        *(Beside(one, workspace, True) for one, workspace in tuples(ended)),
        *(Beside(one, workspace, False) for one, workspace in tuples(running)),
    ]


def busy_workspaces() -> list[str]:
    """Workspaces in which a turn is at work."""
    query = (
        Rows.select(Rows.workspace)
        .join(TurnReceipts, on=(TurnReceipts.turn_id == Rows.turn_id))
        .where(Rows.ended_ms.is_null() & TurnReceipts.settled_ms.is_null())
    )
    return list({workspace for (workspace,) in tuples(query)})


class Old(Struct, frozen=True):
    """Changes that are kept no longer, and where their contents are."""

    turn_id: str
    #: None: the session is gone
    history_relative_dir: str | None


_OLD = Statement(
    lambda before_ms, limit: (
        Rows.select(Rows.turn_id, Sessions.history_relative_dir)
        .join(Sessions, JOIN.LEFT_OUTER, on=(Sessions.id == Rows.session_id))
        .where(Rows.begun_ms < before_ms)
        .order_by(Rows.begun_ms)
        .limit(limit)
    ),
    int,
    int,
)


def old_changes(before_ms: int, limit: int) -> list[Old]:
    """Changes of turns that began before an instant, oldest first."""
    return [Old(turn_id, directory) for turn_id, directory in _OLD.tuples(before_ms, limit)]


def count_old(before_ms: int) -> int:
    return int(Rows.select().where(Rows.begun_ms < before_ms).count())


def delete_changes(turn_ids: Sequence[str]) -> int:
    """Delete rows by turn; how many there were."""
    return sum(Rows.delete().where(Rows.turn_id == turn_id).execute() for turn_id in turn_ids)


def turns_named(session_id: str, prefix: str) -> list[str]:
    """Ids of at most two turns of a session that begin so."""
    query = TurnReceipts.select(TurnReceipts.turn_id).where(
        (TurnReceipts.session_id == session_id)
        & (TurnReceipts.turn_id >= prefix)
        & (TurnReceipts.turn_id < prefix + "\U0010ffff")
    )
    return [turn_id for (turn_id,) in tuples(query.limit(2))]


def horizon_ms(now_ms: int) -> int:
    """Changes of turns that were accepted before this are not kept."""
    return max(now_ms - KEPT_MS, _kept_since_ms())


def without_row(turn_ids: Sequence[str], before_ms: int) -> list[str]:
    """Those of the turns that have no row and were accepted before an instant."""
    found = []
    for turn_id in turn_ids:
        query = TurnReceipts.select(TurnReceipts.accepted_ms).where(TurnReceipts.turn_id == turn_id)
        accepted_ms = next((at_ms for (at_ms,) in tuples(query)), 0)
        is_there = Rows.select().where(Rows.turn_id == turn_id).exists()
        if not is_there and accepted_ms < before_ms:
            found.append(turn_id)
    return found


def _kept_since_ms() -> int:
    """When this store began to keep changes."""
    query = SchemaMigrations.select(SchemaMigrations.applied_ms).where(
        SchemaMigrations.name.endswith("_changes")
    )
    return next((int(at_ms) for (at_ms,) in tuples(query)), 0)
