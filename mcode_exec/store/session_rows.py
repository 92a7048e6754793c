"""Rows of `projects` and `sessions`."""

from __future__ import annotations

from typing import Any

import msgspec
from peewee import SQL, IntegerField, fn

from mcode_exec.records.session import Project, RunLocation, Session
from mcode_exec.store.statement import Statement, Updates
from mcode_exec.store.tables import (
    ClientRequests,
    Deletions,
    Imports,
    Messages,
    Operations,
    Projects,
    Repositories,
    SessionAliases,
    SessionChanges,
    SessionLocks,
    Sessions,
    Shares,
    Tombstones,
    TurnChanges,
    TurnReceipts,
    dicts,
    tuples,
)

_JSON_COLUMNS = ("labels", "permission", "run_location", "summary")
_FIELDS = Session.__struct_fields__


def ensure_project(project: Project) -> Project:
    """Insert `project` unless its identity is known; the one that is kept."""
    Projects.insert(
        id=project.id, kind=project.kind, identity=project.identity, created_ms=project.created_ms
    ).on_conflict_ignore().execute()
    kept = find_project(project.kind, project.identity)
    return project if kept is None else kept


def find_project(kind: str, identity: str) -> Project | None:
    query = Projects.select().where((Projects.kind == kind) & (Projects.identity == identity))
    return next((msgspec.convert(row, Project) for row in dicts(query)), None)


def find_repository(directory_key: str) -> str | None:
    query = Repositories.select(Repositories.identity).where(Repositories.directory_key == directory_key)
    return next((str(identity) for (identity,) in tuples(query)), None)


def put_repository(directory_key: str, identity: str) -> None:
    Repositories.replace(directory_key=directory_key, identity=identity).execute()


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _values(session: Session) -> dict[str, Any]:
    values = {name: getattr(session, name) for name in _FIELDS}
    for name in _JSON_COLUMNS:
        values[name] = _json(values[name])
    values["title_is_default"] = int(session.title_is_default)
    values["is_made_ahead"] = int(session.is_made_ahead)
    return values


def session_of(row: dict[str, Any]) -> Session:
    """The record of a row of `sessions`."""
    for name in _JSON_COLUMNS:
        if row[name] is not None:
            row[name] = msgspec.json.decode(row[name])
    row["title_is_default"] = bool(row["title_is_default"])
    row["is_made_ahead"] = bool(row["is_made_ahead"])
    return msgspec.convert(row, Session)


def _first(query: Any) -> Session | None:
    rows = dicts(query.limit(1))
    return session_of(rows[0]) if rows else None


def insert_session(session: Session) -> bool:
    """Insert a session; False if its key is already bound in its project."""
    inserted = Sessions.insert(**_values(session)).on_conflict_ignore().as_rowcount().execute()
    return bool(inserted)


_FIND = Statement(lambda session_id: Sessions.select().where(Sessions.id == session_id), str)


def find_session(session_id: str) -> Session | None:
    row = _FIND.first(session_id)
    return None if row is None else session_of(row)


def find_by_prefix(prefix: str) -> list[Session]:
    """At most two sessions whose id starts with `prefix`: enough to know whether it is unique."""
    query = Sessions.select().where((Sessions.id >= prefix) & (Sessions.id < prefix + "g")).limit(2)
    return [session_of(row) for row in dicts(query)]


def find_by_key(project_id: str, key: str) -> Session | None:
    return _first(
        Sessions.select().where((Sessions.project_id == project_id) & (Sessions.session_key == key))
    )


def _is_used() -> Any:
    """A session whose process died before its first turn was admitted holds nothing to show or go on with."""
    return Sessions.last_turn_id.is_null(False) | (Sessions.history_bytes > 0)


def is_listed() -> Any:
    """Likewise; but one that was made without a turn on purpose is there."""
    return _is_used() | (Sessions.is_made_ahead == 1)


def newest_conversations(workspace: str, limit: int) -> list[Session]:
    """Visible, unarchived conversations of a workspace that nobody deletes, newest activity first."""
    query = (
        Sessions.select()
        .where(
            (Sessions.workspace == workspace)
            # as they stand in the index: SQLite cannot know of a parameter that the index is about it
            & (Sessions.visibility == SQL("'visible'"))
            & (Sessions.session_kind == SQL("'conversation'"))
            & Sessions.archived_ms.is_null()
            & Sessions.deleting_by.is_null()
            & _is_used()
        )
        .order_by(Sessions.activity_ms.desc())
        .limit(limit)
    )
    return [session_of(row) for row in dicts(query)]


_NUMBERS = frozenset(field.name for field in Sessions._meta.sorted_fields if isinstance(field, IntegerField))
_UPDATES = Updates(
    lambda changes, session_id: Sessions.update(**changes).where(Sessions.id == session_id),
    str,
    lambda name: int if name in _NUMBERS else str,
)


def update_session(session_id: str, **changes: Any) -> bool:
    """Set columns of one session; False if it is gone."""
    for name in _JSON_COLUMNS:
        if name in changes:
            changes[name] = _json(changes[name])
    return bool(_UPDATES.count(session_id, changes))


def page_ids(after: str, limit: int) -> list[str]:
    """Ids of all sessions, in their order, behind one."""
    query = Sessions.select(Sessions.id).where(Sessions.id > after).order_by(Sessions.id).limit(limit)
    return [str(one) for (one,) in tuples(query)]


def unheld_started(limit: int) -> list[str]:
    """Ids of sessions that say `started` although nobody holds them."""
    held = SessionLocks.select(SessionLocks.session_id).where(SessionLocks.session_id == Sessions.id)
    query = Sessions.select(Sessions.id).where((Sessions.status == "started") & ~fn.EXISTS(held))
    return [session_id for (session_id,) in tuples(query.limit(limit))]


def newest_change() -> int:
    """Number of the newest change of any session; 0 before the first."""
    kept = SessionChanges.select(SessionChanges.row).where(SessionChanges.row > 0)
    query = kept.order_by(SessionChanges.row.desc()).limit(1)
    return next((int(row) for (row,) in tuples(query)), 0)


def oldest_change() -> int:
    """Number of the oldest change that is still kept; 0 where there is none."""
    kept = SessionChanges.select(SessionChanges.row).where(SessionChanges.row > 0)
    query = kept.order_by(SessionChanges.row).limit(1)
    return next((int(row) for (row,) in tuples(query)), 0)


def changes_after(row: int, limit: int) -> list[tuple[int, str, str, int]]:
    """(number, session id, kind, instant) of changes of sessions, in their order."""
    query = (
        SessionChanges.select(
            SessionChanges.row, SessionChanges.session_id, SessionChanges.kind, SessionChanges.at_ms
        )
        .where(SessionChanges.row > row)
        .order_by(SessionChanges.row)
        .limit(limit)
    )
    return [(number, session_id, kind, at_ms) for number, session_id, kind, at_ms in tuples(query)]


_CHILDREN = Statement(
    lambda session_id: Sessions.select(Sessions.id).where(
        (Sessions.parent_id == session_id) & Sessions.session_kind.in_(("task", "peek"))
    ),
    str,
)


def internal_children(session_id: str) -> list[str]:
    """Ids of the sub-agents and side conversations of a session."""
    return [child for (child,) in _CHILDREN.tuples(session_id)]


def sessions_at(location: RunLocation, limit: int) -> list[Session]:
    """Sessions that work in a worktree, newest activity first."""
    query = (
        Sessions.select()
        .where(Sessions.run_location == _json(location))
        .order_by(Sessions.activity_ms.desc())
        .limit(limit)
    )
    return [session_of(row) for row in dicts(query)]


def delete_rows(session_id: str, limit: int) -> bool:
    """Delete some of a session's messages, receipts and changes; False when none is left."""
    left = False
    keys = (
        (Messages, Messages.row),
        (TurnReceipts, TurnReceipts.sequence),
        (TurnChanges, TurnChanges.turn_id),
    )
    for table, key in keys:
        some = table.select(key).where(table.session_id == session_id).limit(limit)
        left = table.delete().where(key.in_(some)).execute() == limit or left
    return left


def delete_session(session: Session, at_ms: int) -> None:
    """Delete what is left of a session, its totals of usage apart; one that was imported leaves its tombstone."""
    for table in (ClientRequests, SessionLocks, Deletions, Operations, Shares, SessionAliases, Imports):
        table.delete().where(table.session_id == session.id).execute()
    if session.origin != "local-runtime":
        Tombstones.replace(session_id=session.id, origin=session.origin, at_ms=at_ms).execute()
    Sessions.delete().where(Sessions.id == session.id).execute()


def count_sessions() -> int:
    return int(Sessions.select().count())


def delete_unused(session_id: str) -> bool:
    """Delete a session in which no turn was ever admitted; False if one was."""
    query = Sessions.delete().where((Sessions.id == session_id) & Sessions.last_turn_id.is_null())
    return bool(query.execute())


def check_integrity() -> str:
    """`ok`, or the first thing that SQLite finds wrong with the database."""
    rows = tuples(Sessions.raw("PRAGMA quick_check(1)"))
    return str(rows[0][0]) if rows else "no answer"
