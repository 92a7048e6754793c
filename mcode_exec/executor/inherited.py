"""The session that a new one begins with: which one an invocation means, and what of it is taken.

It is read where the new session will be, or, for a run that keeps nothing, in
the data directory as it stands, which is looked at and not opened for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from mcode_exec import paths
from mcode_exec.clock import SystemClock
from mcode_exec.executor.workspaces import workspace_of
from mcode_exec.records.invocation import LATEST, Invocation
from mcode_exec.sessions import finding
from mcode_exec.sessions.finding import Found
from mcode_exec.sessions.inheriting import Source, read_source
from mcode_exec.store.database import Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.lease import is_expired
from mcode_exec.turns.owner import is_alive, read_boot_id


class Inherited(Struct, frozen=True, kw_only=True):
    source: Source
    #: (code, message) for people
    notices: tuple[tuple[str, str], ...] = ()


async def read_inherited(
    store: Store,
    sessions_dir: str,
    invocation: Invocation,
    workspace: str,
    is_held: Callable[[Lock], bool],
) -> Inherited:
    """What a new session begins with.  Raises: SessionError, BusyError, HistoryCorruptError, StoreFailedError."""
    found = await _find(store, sessions_dir, invocation, workspace)
    source = await read_source(store, sessions_dir, found.session.id, at=invocation.fork_at, is_held=is_held)
    return Inherited(source=source, notices=found.notices)


async def _find(store: Store, sessions_dir: str, invocation: Invocation, workspace: str) -> Found:
    if invocation.fork == LATEST:
        return await finding.find_latest(store, workspace, sessions_dir, "--fork latest")
    named = invocation.fork or invocation.side_of
    assert named is not None
    return await finding.find_named(store, named)


async def read_elsewhere(invocation: Invocation, env: Mapping[str, str]) -> Inherited:
    """What a run that keeps nothing begins with: read in the data directory, in which nothing is changed.

    Raises: SessionError, BusyError, HistoryCorruptError, StoreFailedError, ConfigError, InvocationError.
    """
    data = paths.data_dir(invocation.data_dir, dict(env))
    workspace = workspace_of(invocation, env)
    store = await Store.open_read_only(paths.database_file(data), SystemClock())
    try:
        # with `@recorded` a session is named, and the current directory decides nothing
        return await read_inherited(
            store, paths.sessions_dir(data), invocation, workspace or "", holding_of(data)
        )
    finally:
        await store.close()


def holding_of(data: str) -> Callable[[Lock], bool]:
    """Whether somebody alive holds a lock, for who is no owner himself."""
    run_dir, boot_id, clock = paths.run_dir(data), read_boot_id(), SystemClock()

    def is_held(lock: Lock) -> bool:
        return is_alive(run_dir, lock.owner) and not is_expired(lock, boot_id=boot_id, clock=clock)

    return is_held
