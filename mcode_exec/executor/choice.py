"""Which session an invocation runs in, and in which directory.

`--session`, `--continue`, `--session-key` or a new one, which may begin with
another's history or get a worktree.  A session belongs to its workspace:
running it elsewhere needs an explicit `--cwd`, which rebinds it inside
admission.  One that has a worktree works there, whether it is called from its
workspace or from the worktree itself.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from msgspec import Struct

from mcode_exec.errors import InvocationError, SessionError
from mcode_exec.executor.turn_plan import is_within
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.operation import Operation
from mcode_exec.records.result import WorktreeInfo
from mcode_exec.records.session import Project, RunLocation, Session
from mcode_exec.sessions.finding import Found


class Choice(Struct, frozen=True, kw_only=True):
    """The session to run, and how its place changes by it."""

    session: Session
    is_new: bool
    project: Project
    #: the workspace that the session belongs to from this turn on, canonical
    workspace: str
    #: the worktree that it works in, if it has one
    run_location: RunLocation | None = None
    #: where it worked before, if that is another directory
    moved_from: str | None = None
    #: what is still to be done once the turn is admitted
    operation: Operation | None = None
    #: (code, message)
    notices: tuple[tuple[str, str], ...] = ()

    @property
    def directory(self) -> str:
        """Where the turn works."""
        return self.workspace if self.run_location is None else self.run_location.directory

    @property
    def worktree(self) -> WorktreeInfo | None:
        """That of the result."""
        location = self.run_location
        return None if location is None else WorktreeInfo(path=location.path, branch=location.branch)

    @property
    def is_rebound(self) -> bool:
        return self.session.workspace != self.workspace

    @property
    def leaves_worktree(self) -> bool:
        return self.session.run_location is not None and self.run_location is None


#: stores a new session; the one that its key is bound to, where there is one, and what is left to do
Create = Callable[[], Awaitable[tuple[Session, Operation | None]]]


async def choose(
    invocation: Invocation,
    *,
    workspace: str,
    project: Project,
    new_id: str,
    create: Create,
    found: Found | None,
) -> Choice:
    """The session to run in `workspace`: the one that was found, else a new one, which is stored here.

    Raises: SessionError `workspace_missing` where its worktree is gone; InvocationError where it has none.
    """
    if found is not None and invocation.session_key is None:
        return place(found.session, invocation, workspace, project, found.notices)
    if found is not None:
        check_worktree(found.session, invocation)
    session, operation = await create()
    if session.id != new_id:
        check_worktree(session, invocation)
        return place(session, invocation, workspace, project, ())
    return Choice(
        session=session,
        is_new=True,
        project=project,
        workspace=session.workspace,
        run_location=session.run_location,
        operation=operation,
    )


def place(
    session: Session,
    invocation: Invocation,
    workspace: str,
    project: Project,
    notices: tuple[tuple[str, str], ...],
) -> Choice:
    """Where a session goes on that is there already.  Raises: SessionError `workspace_missing`."""
    location = session.run_location
    if location is not None and (workspace == session.workspace or is_within(workspace, location.path)):
        if os.path.isdir(location.directory):
            return Choice(
                session=session,
                is_new=False,
                project=project,
                workspace=session.workspace,
                run_location=location,
                notices=notices,
            )
        _check_may_leave(session, location, invocation)
    moved_from = session.workspace if location is None else location.directory
    if moved_from == workspace:
        return Choice(session=session, is_new=False, project=project, workspace=workspace, notices=notices)
    told = f"session {session.id} moves from {moved_from} to {workspace}"
    if location is not None and os.path.isdir(location.path):
        told += f"; its worktree {location.path} (branch {location.branch or '-'}) stays as it is"
    is_told = location is not None or invocation.session_key is not None
    return Choice(
        session=session,
        is_new=False,
        project=project,
        workspace=workspace,
        moved_from=moved_from,
        notices=(*notices, ("session.rebound", told)) if is_told else notices,
    )


def shared_worktree(workspace: str, source: Session) -> RunLocation | None:
    """The worktree in which a session that is made in `workspace` works with the one that it begins with."""
    location = source.run_location
    if location is None or not os.path.isdir(location.directory):
        return None
    return location if workspace == source.workspace or is_within(workspace, location.path) else None


def _check_may_leave(session: Session, location: RunLocation, invocation: Invocation) -> None:
    """A worktree that is gone is left only for a directory that somebody named."""
    if invocation.cwd is None or invocation.cwd.startswith("@"):
        raise SessionError(
            f"the worktree {location.directory} of session {session.id} is gone; "
            f"`mcode exec --session {session.id} --cwd DIR` moves it to another directory",
            code="workspace_missing",
        )


def check_worktree(session: Session, invocation: Invocation) -> None:
    """`--worktree` with a key whose session is there: it has one already, or gets none any more.

    Raises: InvocationError.
    """
    location, branch = session.run_location, invocation.worktree_branch
    if not invocation.worktree:
        return
    key = f"--session-key {invocation.session_key}"
    if location is None:
        raise InvocationError(
            f"--worktree is for a new session, and {key} is bound to {session.id}, which works in "
            f"{session.workspace}; leave the flag out, or use another key"
        )
    if branch is not None and branch != location.branch:
        raise InvocationError(
            f"{key} is bound to {session.id}, whose worktree has the branch {location.branch}, not {branch}; leave "
            "--worktree-branch out, or use another key"
        )
