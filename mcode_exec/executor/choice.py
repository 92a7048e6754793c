"""Which session an invocation runs in, and in which workspace.

`--session`, `--continue`, `--session-key` or a new one.  A session belongs to
its workspace: running it elsewhere needs an explicit `--cwd`, which rebinds it
inside admission.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from mcode_exec.errors import InvocationError, SessionError
from mcode_exec.paths import user_path
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.session import Project, Session
from mcode_exec.sessions import finding, making
from mcode_exec.sessions.finding import Found
from mcode_exec.store.database import Store

RECORDED = "@recorded"


class Choice(Struct, frozen=True, kw_only=True):
    """The session to run, and how its workspace changes by it."""

    session: Session
    is_new: bool
    project: Project
    #: the workspace of this turn, canonical
    workspace: str
    #: (code, message)
    notices: tuple[tuple[str, str], ...] = ()

    @property
    def is_rebound(self) -> bool:
        return self.session.workspace != self.workspace


def workspace_of(invocation: Invocation, env: Mapping[str, str]) -> str | None:
    """The canonical workspace that the flags name; None for `--cwd @recorded`.

    Raises: InvocationError for a directory that does not exist.
    """
    if invocation.cwd == RECORDED:
        if invocation.session is None and not invocation.continue_latest:
            raise InvocationError("--cwd @recorded needs --session: a new session has no recorded workspace")
        return None if invocation.session is not None else _current_directory()
    if invocation.cwd is None:
        return _current_directory()
    if invocation.cwd.startswith("~") and invocation.cwd[1:2] not in ("", "/"):
        raise InvocationError(f"--cwd {invocation.cwd}: only ~ alone is expanded; write the path out")
    path = user_path(invocation.cwd, env, name="--cwd")
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise InvocationError(f"--cwd {invocation.cwd}: {real} is not a directory")
    return _storable(real)


def _current_directory() -> str:
    try:
        return _storable(os.path.realpath(os.getcwd()))
    except FileNotFoundError:
        raise InvocationError("the current directory does not exist any more; name one with --cwd") from None


def _storable(workspace: str) -> str:
    """`workspace`, if its name is text: the store and the model are told it."""
    try:
        workspace.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(workspace).decode("utf-8", "replace")
        raise InvocationError(
            f"the workspace {shown} has a name that is not valid UTF-8; rename the directory"
        ) from None
    return workspace


async def recorded_workspace(store: Store, session_text: str) -> str:
    """The workspace of `--session ID --cwd @recorded`.

    Raises: SessionError `workspace_missing` when it is gone.
    """
    found = await finding.find_named(store, session_text)
    return _existing(found.session)


def _existing(session: Session) -> str:
    if not os.path.isdir(session.workspace):
        raise SessionError(
            f"the workspace {session.workspace} of session {session.id} is gone; "
            f"`mcode exec --session {session.id} --cwd DIR` moves it to another directory",
            code="workspace_missing",
        )
    return session.workspace


async def choose(
    store: Store,
    invocation: Invocation,
    *,
    workspace: str,
    project: Project,
    new_session: Session,
    found: Found | None,
) -> Choice:
    """The session to run in `workspace`: the one that was found, else a new one, which is stored here.

    Raises: SessionError (`workspace_mismatch`).
    """
    if found is not None and invocation.session_key is None:
        if invocation.session is not None:
            _check_workspace(found.session, invocation, workspace)
        return Choice(
            session=found.session,
            is_new=False,
            project=project,
            workspace=workspace,
            notices=found.notices,
        )
    session = await making.create_session(store, project, new_session)
    notices: tuple[tuple[str, str], ...] = ()
    if session.workspace != workspace:
        notices = (
            ("session.rebound", f"session {session.id} moves from {session.workspace} to {workspace}"),
        )
    return Choice(
        session=session,
        is_new=session.id == new_session.id,
        project=project,
        workspace=workspace,
        notices=notices,
    )


def _check_workspace(session: Session, invocation: Invocation, workspace: str) -> None:
    if session.workspace == workspace or invocation.cwd is not None:
        return
    gone = "" if os.path.isdir(session.workspace) else " (which is gone)"
    raise SessionError(
        f"session {session.id} belongs to {session.workspace}{gone}, not to {workspace}: "
        f"`mcode exec --session {session.id} --cwd .` moves it here, "
        f"`mcode exec --session {session.id} --cwd @recorded` runs it there",
        code="workspace_mismatch",
    )
