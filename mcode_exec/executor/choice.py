"""Which session an invocation runs in.

`--session`, `--continue`, `--session-key` or a new one.  A session belongs to
its workspace: running it elsewhere needs an explicit `--cwd`, which rebinds it
inside admission.
"""

from __future__ import annotations

import os

from msgspec import Struct

from mcode_exec.errors import SessionError
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.session import Project, Session
from mcode_exec.sessions import making
from mcode_exec.sessions.finding import Found
from mcode_exec.store.database import Store


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
