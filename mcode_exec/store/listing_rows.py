"""Rows of `sessions` for lists and trees: each query walks an index in the order of its answer.

The wide indexes hold what filters ask for, so that a row is read only when it
is in the answer; the values that a partial index names stand in the SQL as
they are, because SQLite cannot know them of a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from peewee import SQL, fn

from mcode_exec.records.finding import SessionFilter
from mcode_exec.records.session import Session
from mcode_exec.store.session_rows import is_listed, session_of
from mcode_exec.store.statement import Statement
from mcode_exec.store.tables import Operations, SessionLabels, Sessions, dicts, tuples

#: ids in one statement
_CHUNK = 500


#: where a session stands in a list: (activity_ms, id), the newest first
Position = tuple[int, str]


def page_positions(wanted: SessionFilter, before: Position | None, limit: int) -> list[Position]:
    """Where sessions that fit stand, by newest activity; `before` is that of the last one seen."""
    query = Sessions.select(Sessions.activity_ms, Sessions.id)
    for condition in (*_conditions(wanted), *_behind(before)):
        query = query.where(condition)
    return list(tuples(query.order_by(Sessions.activity_ms.desc(), Sessions.id.desc()).limit(limit)))


def positions_of(wanted: SessionFilter, ids: Iterable[str]) -> list[Position]:
    """Where those of some sessions that fit a filter stand, in the order of a list."""
    found: list[Position] = []
    for chunk in _chunks(ids):
        query = Sessions.select(Sessions.activity_ms, Sessions.id).where(Sessions.id.in_(chunk))
        for condition in _conditions(wanted):
            query = query.where(condition)
        found += tuples(query)
    return sorted(found, reverse=True)


def of_ids(wanted: SessionFilter, ids: Iterable[str]) -> list[Session]:
    """Those of some sessions that fit a filter, newest activity first."""
    found: list[Session] = []
    for chunk in _chunks(ids):
        query = Sessions.select().where(Sessions.id.in_(chunk))
        for condition in _conditions(wanted):
            query = query.where(condition)
        found += [session_of(row) for row in dicts(query)]
    return sorted(found, key=lambda one: (one.activity_ms, one.id), reverse=True)


def _chunks(ids: Iterable[str]) -> Iterator[list[str]]:
    left = list(ids)
    for start in range(0, len(left), _CHUNK):
        yield left[start : start + _CHUNK]


def ids_with_label(label: str, value: str, limit: int) -> list[str]:
    """Ids of sessions with a label."""
    query = (
        SessionLabels.select(SessionLabels.session_id)
        .where((SessionLabels.label == label) & (SessionLabels.value == value))
        .limit(limit)
    )
    return [session_id for (session_id,) in tuples(query)]


def _behind(before: Position | None) -> list[Any]:
    if before is None:
        return []
    activity_ms, session_id = before
    # said twice, so that the index is entered at the place and not at its beginning
    return [
        Sessions.activity_ms <= activity_ms,
        (Sessions.activity_ms < activity_ms) | (Sessions.id < session_id),
    ]


def _is_whole() -> Any:
    """A session that is still being made, step by step, is hidden and seen by nobody."""
    steps = Operations.select(SQL("1")).where(Operations.session_id == Sessions.id)
    return (Sessions.visibility == "visible") | ~fn.EXISTS(steps)


def _conditions(wanted: SessionFilter) -> list[Any]:
    found: list[Any] = [_is_whole()]
    if wanted.workspace is not None:
        found.append(Sessions.workspace == wanted.workspace)
    if wanted.since_ms is not None:
        found.append(Sessions.activity_ms >= wanted.since_ms)
    if wanted.kinds:
        found.append(Sessions.session_kind.in_(wanted.kinds))
    if wanted.excluded_kinds:
        found.append(Sessions.session_kind.not_in(wanted.excluded_kinds))
    if wanted.is_hidden is not None:
        found.append(Sessions.visibility == ("hidden" if wanted.is_hidden else "visible"))
    if wanted.is_archived is not None:
        found.append(Sessions.archived_ms.is_null(not wanted.is_archived))
    if wanted.statuses:
        found.append(_has_status(wanted.statuses))
    if wanted.is_used:
        found.append(is_listed())
    for label, value in wanted.labels:
        has_it = SessionLabels.select(SQL("1")).where(
            (SessionLabels.label == label)
            & (SessionLabels.value == value)
            & (SessionLabels.session_id == Sessions.id)
        )
        found.append(fn.EXISTS(has_it))
    return found


def _has_status(statuses: Sequence[str]) -> Any:
    others = [status for status in statuses if status != "deleting"]
    found = Sessions.deleting_by.is_null() & Sessions.status.in_(others) if others else None
    if "deleting" in statuses:
        deleting = Sessions.deleting_by.is_null(False)
        found = deleting if found is None else found | deleting
    return found


# trees


def _above() -> Any:
    """What a session hangs on, as the index has it."""
    return fn.COALESCE(Sessions.parent_id, Sessions.forked_from)


#: before the first of a session's children
BEFORE_ALL = (-(1 << 62), "")

_CHILDREN = Statement(
    lambda above, created_ms, child_id, limit: (
        Sessions.select()
        .where(
            (_above() == above)
            & (Sessions.created_ms >= created_ms)
            & ((Sessions.created_ms > created_ms) | (Sessions.id > child_id))
            & _is_whole()
        )
        .order_by(Sessions.created_ms, Sessions.id)
        .limit(limit)
    ),
    *(str, int, str, int),
)


def children(session_id: str, after: tuple[int, str], limit: int) -> list[Session]:
    """What hangs on a session, oldest first: sub-agents, side conversations, and forks without a parent.

    `after`: (created_ms, id) of the last one seen.
    """
    return [session_of(row) for row in _CHILDREN.dicts(session_id, *after, limit)]


def above_of(ids: Iterable[str]) -> dict[str, str | None]:
    """For each of some sessions that exists, what it hangs on."""
    found: dict[str, str | None] = {}
    for chunk in _chunks(dict.fromkeys(ids)):
        query = Sessions.select(Sessions.id, _above()).where(Sessions.id.in_(chunk))
        found.update(tuples(query))
    return found
