"""Sessions of a directory that was moved: they belong to the new place, under their keys and request ids.

A session is moved in one transaction, many in several; whoever is killed between
them is finished by the same command, which finds what is left.  The path of a
directory and of those in it is told by whole names: `/a/bc` is not in `/a/b`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, structs

from mcode_exec.faults import fault
from mcode_exec.records.session import Project, RunLocation, Session
from mcode_exec.store import project_rows, session_rows
from mcode_exec.store.database import Store

_BATCH = 50  # rows in one transaction: it lasts milliseconds

#: who keeps a key that is bound in the project of the new place too: the session that is moved, or the one there
Keeper = Literal["moved", "there"]


class Move(Struct, frozen=True, kw_only=True):
    """The sessions of a project in one directory, and where they belong from now on."""

    workspace: str
    project_id: str
    new_workspace: str
    new_project: Project
    sessions: int


class Conflict(Struct, frozen=True, kw_only=True, rename="camel"):
    """A key that would name two sessions."""

    session_key: str
    #: the one that is moved, and the one that has the key in the project of the new place
    session_id: str
    other_id: str


def moved_path(path: str, old: str, new: str) -> str | None:
    """Where `path` is when `old` is `new`; None for one that is neither `old` nor in it."""
    if path == old:
        return new
    start = old.rstrip("/") + "/"
    return new.rstrip("/") + "/" + path[len(start) :] if path.startswith(start) else None


async def conflicts(store: Store, moves: Sequence[Move]) -> list[Conflict]:
    """The keys that would name two sessions, one that is moved and another that is there or is moved too."""

    def look() -> list[Conflict]:
        moved = {
            session_id: (key, move)
            for move in moves
            for key, session_id in project_rows.keys_at(move.workspace, move.project_id)
        }
        found: list[Conflict] = []
        taken: dict[tuple[str, str], str] = {}
        for session_id, (key, move) in moved.items():
            project = move.new_project
            kept = session_rows.find_project(project.kind, project.identity)
            bound = None if kept is None else session_rows.find_by_key(kept.id, key)
            there = None if bound is None or bound.id in moved else bound.id
            other = taken.setdefault((project.id, key), there or session_id)
            if other != session_id:
                found.append(Conflict(session_key=key, session_id=session_id, other_id=other))
        return found

    return await store.read(look)


async def relocate(
    store: Store, move: Move, *, old: str, new: str, keeper: Keeper, now_ms: int
) -> list[Conflict]:
    """Move the sessions of one directory; returns the keys that one of two sessions has lost."""

    def project_id() -> str:
        return session_rows.ensure_project(move.new_project).id

    new_id = await store.write(project_id)
    while new_id != move.project_id and await store.write(
        lambda: project_rows.move_requests(
            workspace=move.workspace,
            project_id=move.project_id,
            scope=f"project:{move.project_id}",
            new_scope=f"project:{new_id}",
            limit=_BATCH,
        )
    ):
        pass
    fault("after-requests")
    lost: list[Conflict] = []

    def some() -> tuple[list[Conflict], bool]:
        sessions = project_rows.sessions_at(move.workspace, move.project_id, _BATCH)
        found = [
            conflict
            for session in sessions
            if (conflict := _move(session, move, new_id, old=old, new=new, keeper=keeper, now_ms=now_ms))
        ]
        return found, len(sessions) == _BATCH

    has_more = True
    while has_more:
        found, has_more = await store.write(some)
        lost += found
        fault("after-relocated")
    return lost


def _move(
    session: Session, move: Move, new_id: str, *, old: str, new: str, keeper: Keeper, now_ms: int
) -> Conflict | None:
    changes: dict[str, object] = {"workspace": move.new_workspace, "updated_ms": now_ms}
    if session.relocated_from is None:
        changes["relocated_from"] = session.workspace
    elif session.relocated_from == move.new_workspace:
        changes["relocated_from"] = None  # it is back where the model knows it
    location = session.run_location
    if location is not None:
        changes["run_location"] = _moved_location(location, old, new)
    conflict = None
    if new_id != session.project_id:
        changes["project_id"] = new_id
        key = session.session_key
        other = None if key is None else session_rows.find_by_key(new_id, key)
        if key is not None and other is not None and other.id != session.id:
            conflict = Conflict(session_key=key, session_id=session.id, other_id=other.id)
            if keeper == "moved":
                session_rows.update_session(other.id, session_key=None)
            else:
                changes["session_key"] = None
    session_rows.update_session(session.id, **changes)
    return conflict


def _moved_location(location: RunLocation, old: str, new: str) -> RunLocation:
    path = moved_path(location.path, old, new)
    return location if path is None else structs.replace(location, path=path)
