"""Which session an invocation runs in.

`--session`, `--continue`, `--session-key` or a new one.  A session belongs to
its workspace: running it elsewhere needs an explicit `--cwd`, which rebinds it
inside admission.
"""

from __future__ import annotations

from msgspec import Struct

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
    """The session to run in `workspace`: the one that was found, else a new one, which is stored here."""
    if found is not None and invocation.session_key is None:
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
