"""Seals of sessions that are being deleted: `sessions.deleting_by`, and the row of `deletions` that tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from peewee import JOIN

from mcode_exec.records.session import Seal
from mcode_exec.store.statement import Statement
from mcode_exec.store.tables import Deletions, Sessions, dicts


def put_deletion(session_id: str, *, pid: int, host: str, since_ms: int) -> None:
    """Keep who begins a deletion; one that was begun before stays as it is."""
    Deletions.insert(
        session_id=session_id, pid=pid, host=host, since_ms=since_ms
    ).on_conflict_ignore().execute()


def put_reason(session_id: str, reason: str) -> None:
    """Keep why a deletion could not be ended."""
    Deletions.update(reason=reason).where(Deletions.session_id == session_id).execute()


def delete_deletion(session_id: str) -> None:
    Deletions.delete().where(Deletions.session_id == session_id).execute()


def _seals() -> Any:
    return (
        Sessions.select(
            Sessions.id.alias("session_id"),
            Sessions.deleting_by.alias("deleter"),
            Deletions.pid,
            Deletions.host,
            Deletions.since_ms,
            Deletions.reason,
        )
        .join(Deletions, JOIN.LEFT_OUTER, on=(Deletions.session_id == Sessions.id))
        .where(Sessions.deleting_by.is_null(False))
    )


def seals_of(session_ids: Sequence[str]) -> dict[str, Seal]:
    """The seals of those of the sessions that are being deleted."""
    query = _seals().where(Sessions.id.in_(session_ids))
    return {row["session_id"]: msgspec.convert(row, Seal) for row in dicts(query)}


def page_seals(after: str, limit: int) -> list[Seal]:
    """Seals by session id, those behind `after`."""
    query = _seals().where(Sessions.id > after).order_by(Sessions.id).limit(limit)
    return [msgspec.convert(row, Seal) for row in dicts(query)]


_DELETERS = Statement(
    lambda after, limit: (
        Sessions.select(Sessions.id, Sessions.deleting_by)
        .where(Sessions.deleting_by.is_null(False) & (Sessions.id > after))
        .order_by(Sessions.id)
        .limit(limit)
    ),
    str,
    int,
)


def page_deleters(after: str, limit: int) -> list[tuple[str, str]]:
    """(session id, owner token of the deleter) of sessions whose deletion was begun, those behind `after`."""
    return [(session_id, owner) for session_id, owner in _DELETERS.tuples(after, limit)]
