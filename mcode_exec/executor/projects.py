"""`mcode projects list|show|relocate`: what sessions are grouped by, and directories that were moved."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec.errors import InvocationError, SessionError
from mcode_exec.executor.creating import project_at
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.workspaces import usable_workspace, workspace_path
from mcode_exec.paths import user_path
from mcode_exec.records.session import Project
from mcode_exec.sessions import making, relocating
from mcode_exec.sessions.relocating import Conflict, Keeper, Move, moved_path
from mcode_exec.store import project_rows, session_rows
from mcode_exec.store.project_rows import Place

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_PROJECT_PREFIX = "prj_"
_TOLD_CONFLICTS = 5


class ProjectRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A project and its sessions in numbers."""

    id: str
    kind: str
    #: root commit, origin URL or path
    identity: str
    sessions: int
    #: directories that they are in
    workspaces: int
    #: the one with the newest turn
    workspace: str | None
    activity_ms: int | None
    created_ms: int


class PlaceRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A directory with sessions of a project."""

    workspace: str
    #: whether it is there
    exists: bool
    sessions: int
    activity_ms: int


class ProjectPage(Struct, frozen=True, kw_only=True):
    rows: list[ProjectRow]
    cursor: str | None


class MoveRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """The sessions of one directory and where they belong now."""

    workspace: str
    new_workspace: str
    sessions: int
    project_id: str
    new_project_id: str


class Relocated(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was moved, or would be."""

    old: str
    new: str
    is_dry_run: bool
    sessions: int
    workspaces: list[MoveRow]
    #: keys that one of two sessions has lost by it
    keys: list[Conflict]
    #: of git, in which some of them work: git knows them by the old place still
    worktrees: list[str]


async def list_projects(
    data_dir: str | None, env: Mapping[str, str], *, everything: bool, limit: int, after_cursor: str | None
) -> ProjectPage:
    """A page of projects by kind and identity; `everything`: also those without a session.

    Raises: InvocationError for a cursor that is none; StoreFailedError, StoreBusyError.
    """
    async with opened(data_dir, env, reads_only=True) as runtime:

        def look() -> list[ProjectRow]:
            after = None if after_cursor is None else _after(after_cursor)
            projects = project_rows.page_projects(after, limit=limit + 1, everything=everything)
            return [_row(project, project_rows.places_of(project.id)) for project in projects]

        rows = await runtime.store.read(look)
    return ProjectPage(rows=rows[:limit], cursor=rows[limit - 1].id if len(rows) > limit else None)


def _after(cursor: str) -> tuple[str, str]:
    found = project_rows.find_projects(cursor) if cursor.startswith(_PROJECT_PREFIX) else []
    if len(found) != 1:
        raise InvocationError(
            f"{cursor[:60]!r} is no cursor of this list; take the one that an earlier page gave"
        )
    return found[0].kind, found[0].identity


def _row(project: Project, places: list[Place]) -> ProjectRow:
    newest = max(places, key=lambda place: place.activity_ms, default=None)
    return ProjectRow(
        id=project.id,
        kind=project.kind,
        identity=project.identity,
        sessions=sum(place.sessions for place in places),
        workspaces=len(places),
        workspace=None if newest is None else newest.workspace,
        activity_ms=None if newest is None else newest.activity_ms,
        created_ms=project.created_ms,
    )


async def show_project(
    data_dir: str | None, env: Mapping[str, str], name: str | None
) -> tuple[ProjectRow, list[PlaceRow]]:
    """A project by id, unique prefix or a directory of it, and where its sessions are; None: the current directory's.

    Raises: SessionError `project_not_found`; InvocationError for a directory that cannot be used.
    """
    async with opened(data_dir, env, reads_only=True) as runtime:
        project = await _named(runtime, name, env)
        places = await runtime.store.read(lambda: project_rows.places_of(project.id))
    rows = [
        PlaceRow(
            workspace=place.workspace,
            exists=os.path.isdir(place.workspace),
            sessions=place.sessions,
            activity_ms=place.activity_ms,
        )
        for place in places
    ]
    return _row(project, places), rows


async def _named(runtime: Runtime, name: str | None, env: Mapping[str, str]) -> Project:
    if name is not None and name.startswith(_PROJECT_PREFIX):
        found = await runtime.store.read(lambda: project_rows.find_projects(name))
        if len(found) == 1:
            return found[0]
        what = "several project ids start with" if found else "no project id starts with"
        raise SessionError(
            f"{what} {name}; `mcode projects list` shows what there is", code="project_not_found"
        )
    workspace = usable_workspace(name, env)
    at = await _project_at(runtime, workspace)
    known = await runtime.store.read(lambda: session_rows.find_project(at.kind, at.identity))
    if known is None:
        raise SessionError(
            f"no session was made in the project of {workspace} yet; `mcode projects list` shows what there is",
            code="project_not_found",
        )
    return known


async def _project_at(runtime: Runtime, workspace: str) -> Project:
    """The project of a directory, which is looked at only."""
    from mcode_exec.executor.turn_plan import find_repository
    from mcode_exec.workspace import git

    repository, _ = await find_repository(runtime.store, git.find_root(workspace))
    return making.project_of(workspace, repository, runtime.clock.now_ms())


async def relocate(
    data_dir: str | None,
    env: Mapping[str, str],
    old: str,
    new: str,
    *,
    keeper: Keeper | None,
    dry_run: bool,
) -> Relocated:
    """The sessions of `old` and of the directories in it belong to `new` from now on.

    `keeper`: who keeps a key that two sessions would have; None: then nothing is moved.
    Raises: InvocationError for paths that cannot be meant; SessionError `session_not_found` where `old` has none,
        `session_key_conflict`; StoreFailedError, StoreBusyError.
    """
    target = usable_workspace(new, env)
    async with opened(data_dir, env) as runtime:
        source = await _source(runtime, old, target, env)
        _check_apart(source, target)
        moves = await _moves(runtime, source, target)
        found = await relocating.conflicts(runtime.store, moves)
        if found and keeper is None:
            raise _conflict(found)
        lost = found
        worktrees = await runtime.store.read(lambda: project_rows.worktrees_below(source))
        if not dry_run:
            lost = []
            for move in moves:
                lost += await relocating.relocate(
                    runtime.store,
                    move,
                    old=source,
                    new=target,
                    keeper=keeper or "moved",
                    now_ms=runtime.clock.now_ms(),
                )
    return Relocated(
        old=source,
        new=target,
        is_dry_run=dry_run,
        sessions=sum(move.sessions for move in moves),
        workspaces=[
            MoveRow(
                workspace=move.workspace,
                new_workspace=move.new_workspace,
                sessions=move.sessions,
                project_id=move.project_id,
                new_project_id=move.new_project.id,
            )
            for move in moves
        ],
        keys=lost,
        worktrees=[path for path in worktrees if os.path.isdir(path)],
    )


async def _source(runtime: Runtime, old: str, target: str, env: Mapping[str, str]) -> str:
    """The directory that `old` means: as it is written, or what its links lead to; the first that has sessions.

    It is gone as a rule, and a link to the new place may stand where it was.
    """
    written = os.path.normpath(user_path(old, env, name="OLD"))
    parent = os.path.join(os.path.realpath(os.path.dirname(written)), os.path.basename(written))
    candidates = dict.fromkeys((written, parent, workspace_path(old, env)))
    for candidate in candidates:
        if candidate == target:
            continue
        try:
            candidate.encode()
        except UnicodeEncodeError:
            continue
        if await runtime.store.read(partial(project_rows.has_sessions_below, candidate)):
            return candidate
    if target in candidates:
        raise InvocationError(f"{old} and {target} are one directory; nothing is to be moved")
    raise SessionError(
        f"no session belongs to {written} or to a directory in it; `mcode projects list` shows where they are"
    )


def _check_apart(source: str, target: str) -> None:
    if moved_path(target, source, target) is not None:
        raise InvocationError(
            f"{target} lies in {source}: which of its sessions were made before the move cannot be told; "
            "`mcode exec --session ID --cwd DIR` moves one"
        )


async def _moves(runtime: Runtime, source: str, target: str) -> list[Move]:
    places = await runtime.store.read(lambda: project_rows.places_below(source))
    moves: list[Move] = []
    known: dict[str, Project] = {}
    for project_id, place in places:
        workspace = moved_path(place.workspace, source, target)
        assert workspace is not None
        if workspace not in known and os.path.isdir(workspace):
            known[workspace] = await project_at(runtime, workspace)
        project = known.get(workspace) or await _kept_project(runtime, project_id, place.workspace, workspace)
        moves.append(
            Move(
                workspace=place.workspace,
                project_id=project_id,
                new_workspace=workspace,
                new_project=project,
                sessions=place.sessions,
            )
        )
    return moves


async def _kept_project(runtime: Runtime, project_id: str, workspace: str, new_workspace: str) -> Project:
    """The project of a directory that is not there: of a repository the same, else that of the new path."""
    found = await runtime.store.read(lambda: project_rows.find_projects(project_id))
    if len(found) == 1 and found[0].kind != "workspace":
        return found[0]
    return making.project_of(new_workspace, None, runtime.clock.now_ms())


def _conflict(found: list[Conflict]) -> SessionError:
    told = "; ".join(
        f"{one.session_key!r}: {one.session_id} and {one.other_id}" for one in found[:_TOLD_CONFLICTS]
    )
    more = f" and {len(found) - _TOLD_CONFLICTS} more" if len(found) > _TOLD_CONFLICTS else ""
    return SessionError(
        f"two sessions would have one key ({told}{more}); nothing was moved. --keys moved: the first, which is "
        "moved, keeps it; --keys there: the other does",
        code="session_key_conflict",
    )
