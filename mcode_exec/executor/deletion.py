"""`mcode sessions delete`, and finishing what a process that died had begun to delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mcode_exec.errors import BusyError, McodeError
from mcode_exec.faults import fault
from mcode_exec.records.session import Session
from mcode_exec.sessions import finding
from mcode_exec.sessions.removing import remove_files
from mcode_exec.turns import deletion
from mcode_exec.turns.aborting import ABORT_WAIT_S, request_abort

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_LOOK_S = 0.05


async def delete_sessions(
    data_dir: str | None, env: Mapping[str, str], names: Sequence[str], told: Callable[[Session], None]
) -> None:
    """Delete sessions by id or unique prefix; all of them are found before the first one goes.

    `told`: each session that is gone, sub-agents and side conversations included.
    Raises: SessionError for one that is not there; BusyError for one whose turn does not end in time;
        StoreFailedError for files that cannot be removed (deleting again goes on).
    """
    from mcode_exec.executor.inspect import opened

    async with opened(data_dir, env) as runtime:
        found = [(await finding.find_exact(runtime.store, name)).id for name in names]
        gone: set[str] = set()
        for session_id in found:
            if session_id not in gone:
                for session in await _delete(runtime, session_id, wait_s=ABORT_WAIT_S):
                    gone.add(session.id)
                    told(session)


async def _delete(runtime: Runtime, session_id: str, *, wait_s: float) -> list[Session]:
    store, owner = runtime.store, runtime.owner
    sealed = await deletion.seal(store, owner, session_id)
    fault("after-seal")
    try:
        for session in sealed:
            await _stop(runtime, session, wait_s)
    except McodeError:
        await deletion.give_up(store, owner, sealed, runtime.clock)
        raise
    fault("after-stop")
    try:
        for session in sealed:
            await _remove(runtime, session)
    except McodeError:
        await deletion.leave(store, owner, sealed)
        raise
    return sealed


async def _stop(runtime: Runtime, session: Session, wait_s: float) -> None:
    """Hold the session for its deletion; its turn is told to stop, and waited for.  Raises: BusyError."""
    store, owner, clock = runtime.store, runtime.owner, runtime.clock
    until_s = clock.monotonic_s() + wait_s
    is_told = False
    while not await deletion.take_lock(store, owner, session.id, clock):
        if not is_told:
            await request_abort(store, owner, session.id, clock, reason="session-deleting")
            is_told = True
        if clock.monotonic_s() >= until_s:
            became = "it was not deleted, try again later"
            if session.deleting_by is not None:
                became = "its deletion, which was begun before, goes on when that has ended"
            raise BusyError(f"what runs in session {session.id} did not end within {wait_s:g} s; {became}")
        await asyncio.sleep(_LOOK_S)


async def _remove(runtime: Runtime, session: Session) -> None:
    """Files first, the rows that name them after."""
    await asyncio.to_thread(remove_files, runtime.sessions_dir, session.history_relative_dir)
    fault("after-files")
    await deletion.delete_rows(runtime.store, session, runtime.clock)
    fault("after-deletion")


async def finish_deletions(runtime: Runtime, session_ids: Sequence[str]) -> tuple[str, ...]:
    """Go on where a dead process stopped; the ids of those that are gone now.  What fails is left to the next."""
    done = []
    for session_id in session_ids:
        try:
            await _delete(runtime, session_id, wait_s=0.0)
        except McodeError:
            continue  # another process is quicker, its turn still ends, or the files cannot be removed yet
        done.append(session_id)
    return tuple(done)
