"""Projects, the directories in which their sessions are, and sessions by directory."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from peewee import SQL, fn

from mcode_exec.records.session import Project, RunLocation, Session
from mcode_exec.store import session_rows
from mcode_exec.store.tables import ClientRequests, Projects, Sessions, dicts, tuples


class Place(Struct, frozen=True, kw_only=True):
    """A directory with sessions of one project."""

    workspace: str
    sessions: int
    #: newest activity of them
    activity_ms: int


def page_projects(after: tuple[str, str] | None, *, limit: int, everything: bool) -> list[Project]:
    """Projects by kind and identity; `everything`: also those without a session."""
    query = Projects.select()
    if after is not None:
        kind, identity = after
        query = query.where(
            (Projects.kind >= kind) & ((Projects.kind > kind) | (Projects.identity > identity))
        )
    if not everything:
        of_it = Sessions.select(Sessions.id).where(Sessions.project_id == Projects.id)
        query = query.where(fn.EXISTS(of_it))
    return _projects(query.order_by(Projects.kind, Projects.identity).limit(limit))


def find_projects(prefix: str) -> list[Project]:
    """At most two projects whose id starts with `prefix`: enough to know whether it is unique."""
    return _projects(Projects.select().where((Projects.id >= prefix) & (Projects.id < prefix + "g")).limit(2))


def _projects(query: Any) -> list[Project]:
    return [msgspec.convert(row, Project) for row in dicts(query)]


def places_of(project_id: str) -> list[Place]:
    """The directories of a project's sessions, by name."""
    query = (
        Sessions.select(Sessions.workspace, fn.COUNT(SQL("*")), fn.MAX(Sessions.activity_ms))
        .where(Sessions.project_id == project_id)
        .group_by(Sessions.workspace)
        .order_by(Sessions.workspace)
    )
    return [
        Place(workspace=workspace, sessions=count, activity_ms=newest)
        for workspace, count, newest in tuples(query)
    ]


def places_below(directory: str) -> list[tuple[str, Place]]:
    """(project id, place) of sessions in a directory or below it."""
    query = (
        Sessions.select(
            Sessions.project_id,
            Sessions.workspace,
            fn.COUNT(SQL("*")),
            fn.MAX(Sessions.activity_ms),
        )
        .where(_is_below(directory))
        .group_by(Sessions.workspace, Sessions.project_id)
        .order_by(Sessions.workspace)
    )
    return [
        (project_id, Place(workspace=workspace, sessions=count, activity_ms=newest))
        for project_id, workspace, count, newest in tuples(query)
    ]


def _is_below(directory: str) -> Any:
    """Of a path in a directory or the directory itself: `/a/b` and `/a/b/c`, not `/a/bc`."""
    start = directory.rstrip("/") + "/"
    after = start[:-1] + chr(ord("/") + 1)
    return (Sessions.workspace == directory) | ((Sessions.workspace >= start) & (Sessions.workspace < after))


def has_sessions_below(directory: str) -> bool:
    """Whether any session is in a directory or below it."""
    return bool(tuples(Sessions.select(Sessions.id).where(_is_below(directory)).limit(1)))


def worktrees_below(directory: str) -> list[str]:
    """The git worktrees in which sessions of a directory, or of what is below it, work."""
    query = (
        Sessions.select(Sessions.run_location)
        .where(Sessions.run_location.is_null(False) & _is_below(directory))
        .distinct()
    )
    found = (msgspec.json.decode(location, type=RunLocation).path for (location,) in tuples(query))
    return sorted(set(found))


def sessions_at(workspace: str, project_id: str, limit: int) -> list[Session]:
    """Some of the sessions of a project in a directory."""
    query = (
        Sessions.select(Sessions.id)
        .where((Sessions.project_id == project_id) & (Sessions.workspace == workspace))
        .limit(limit)
    )
    found = (session_rows.find_session(session_id) for (session_id,) in tuples(query))
    return [session for session in found if session is not None]


def keys_at(workspace: str, project_id: str) -> list[tuple[str, str]]:
    """(session key, session id) of the sessions of a project in a directory that have a key."""
    query = (
        Sessions.select(Sessions.session_key, Sessions.id)
        .where(
            (Sessions.project_id == project_id)
            & (Sessions.workspace == workspace)
            & Sessions.session_key.is_null(False)
        )
        .order_by(Sessions.session_key)
    )
    return [(key, session_id) for key, session_id in tuples(query)]


def move_requests(*, workspace: str, project_id: str, scope: str, new_scope: str, limit: int) -> bool:
    """Find some of the requests of a project's sessions in a directory under another scope; False when none is left.

    One that is known there stays what it is there.
    """
    of_it = Sessions.select(Sessions.id).where(
        (Sessions.project_id == project_id) & (Sessions.workspace == workspace)
    )
    some = (
        ClientRequests.select(SQL("rowid"), ClientRequests.request_id)
        .where((ClientRequests.request_scope == scope) & ClientRequests.session_id.in_(of_it))
        .limit(limit)
    )
    numbers = {request_id: number for number, request_id in tuples(some)}
    if not numbers:
        return False
    there = ClientRequests.select(ClientRequests.request_id).where(
        (ClientRequests.request_scope == new_scope) & ClientRequests.request_id.in_(list(numbers))
    )
    known = [numbers.pop(request_id) for (request_id,) in tuples(there)]
    ClientRequests.delete().where(SQL("rowid").in_(known)).execute()
    moved = SQL("rowid").in_(list(numbers.values()))
    ClientRequests.update(request_scope=new_scope).where(moved).execute()
    return len(numbers) + len(known) == limit
