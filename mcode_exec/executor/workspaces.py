"""Which directory a command is about: what `--cwd` names, the current one, or the one a session recorded.

A run needs a directory that it can enter; a list of sessions needs only the
name of one, which may be gone; the list of models reads a workspace's
configuration where there is one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mcode_exec.errors import InvocationError, SessionError
from mcode_exec.paths import current_directory, user_path
from mcode_exec.records.invocation import LATEST, Invocation
from mcode_exec.records.session import Session
from mcode_exec.sessions import finding
from mcode_exec.store.database import Store

RECORDED = "@recorded"


def workspace_of(invocation: Invocation, env: Mapping[str, str]) -> str | None:
    """The canonical workspace that the flags name; None for `--cwd @recorded`.

    Raises: InvocationError for a directory that does not exist or cannot be entered.
    """
    if invocation.cwd == RECORDED:
        if _named(invocation) is None and not invocation.continue_latest and invocation.fork is None:
            raise InvocationError("--cwd @recorded needs --session: a new session has no recorded workspace")
        return None if _named(invocation) is not None else usable_workspace(None, env)
    return usable_workspace(invocation.cwd, env)


def _named(invocation: Invocation) -> str | None:
    """The session that an invocation names, to go on with or to begin with."""
    if invocation.session is not None or invocation.fork in (None, LATEST):
        return invocation.session or invocation.side_of
    return invocation.fork


def usable_workspace(cwd: str | None, env: Mapping[str, str]) -> str:
    """What `--cwd` names, else the current directory, canonical.

    Raises: InvocationError unless it is a directory that can be entered.
    """
    real = workspace_path(cwd, env)
    named = "the current directory" if cwd is None else f"--cwd {cwd}:"
    try:
        os.stat(os.path.join(real, "."))
    except PermissionError:
        raise InvocationError(
            f"{named} {real} cannot be entered (no permission); name another with --cwd"
        ) from None
    except OSError:
        raise InvocationError(f"{named} {real} is not a directory") from None
    try:
        real.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(real).decode("utf-8", "replace")
        raise InvocationError(
            f"the workspace {shown} has a name that is not valid UTF-8; rename the directory"
        ) from None
    return real


def workspace_path(cwd: str | None, env: Mapping[str, str]) -> str:
    """The canonical path that `--cwd` names, else the current directory's, whether one can work there or not.

    Raises: InvocationError where a current directory is needed and there is none.
    """
    if cwd is None:
        return os.path.realpath(current_directory())
    if cwd.startswith("~") and cwd[1:2] not in ("", "/"):
        raise InvocationError(f"--cwd {cwd}: only ~ alone is expanded; write the path out")
    return os.path.realpath(user_path(cwd, env, name="--cwd"))


def find_workspace(cwd: str | None, env: Mapping[str, str]) -> str | None:
    """The workspace, or None where no directory is named and one cannot work in the current one.

    Raises: InvocationError for a named directory that cannot be used.
    """
    try:
        return usable_workspace(cwd, env)
    except InvocationError:
        if cwd is None:
            return None
        raise


async def recorded_workspace(store: Store, invocation: Invocation) -> str:
    """The workspace of `--session ID --cwd @recorded`, or of the session that a new one begins with.

    Raises: SessionError `workspace_missing` when it is gone.
    """
    named = _named(invocation)
    assert named is not None
    return workspace_recorded(invocation, (await finding.find_named(store, named)).session)


def workspace_recorded(invocation: Invocation, session: Session) -> str:
    """The workspace of a session.  Raises: SessionError `workspace_missing` when it is gone."""
    again = f"mcode retry {session.id}" if invocation.retries else f"mcode exec --session {session.id}"
    if not os.path.isdir(session.workspace):
        moves = f"`{again} --cwd DIR` moves it to another directory"
        if invocation.session is None:
            moves = "name another directory with --cwd"
        raise SessionError(
            f"the workspace {session.workspace} of session {session.id} is gone; {moves}",
            code="workspace_missing",
        )
    return session.workspace
