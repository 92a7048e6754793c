"""`mcode sessions delete`, and finishing what a process that died had begun to delete."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mcode_exec.errors import BusyError, McodeError, StoreFailedError
from mcode_exec.faults import fault
from mcode_exec.records.session import Session
from mcode_exec.sessions import finding
from mcode_exec.sessions.layout import history_paths
from mcode_exec.turns import deletion
from mcode_exec.turns.aborting import ABORT_WAIT_S, request_abort

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_LOOK_S = 0.05


async def delete_sessions(
    data_dir: str | None, env: Mapping[str, str], names: Sequence[str]
) -> list[Session]:
    """Delete sessions by id or unique prefix; all of them are found before the first one goes.

    Returns what was deleted, sub-agents and side conversations included.
    Raises: SessionError for one that is not there; BusyError for one whose turn does not end in time;
        StoreFailedError for files that cannot be removed (deleting again goes on).
    """
    from mcode_exec.executor.inspect import opened

    async with opened(data_dir, env) as runtime:
        found = [await finding.find_exact(runtime.store, name) for name in names]
        deleted: list[Session] = []
        for session in dict.fromkeys(one.id for one in found):
            deleted += await _delete(runtime, session)
        return deleted


async def _delete(runtime: Runtime, session_id: str) -> list[Session]:
    sealed = await deletion.seal(runtime.store, runtime.owner, session_id)
    fault("after-seal")
    for session in sealed:
        if not await _stopped(runtime, session.id):
            await deletion.unseal(runtime.store, runtime.owner, sealed)
            raise BusyError(
                f"the turn of session {session.id} did not end within {ABORT_WAIT_S:g} s; nothing was deleted, "
                "try again later"
            )
    for session in sealed:
        await _remove(runtime, session)
    return sealed


async def _stopped(runtime: Runtime, session_id: str) -> bool:
    """Whether the session is held for its deletion; its turn is told to stop, and waited for."""
    store, owner, clock = runtime.store, runtime.owner, runtime.clock
    until_s = clock.monotonic_s() + ABORT_WAIT_S
    told = False
    while not await deletion.take_lock(store, owner, session_id, clock):
        if not told:
            await request_abort(store, owner, session_id, clock, reason="session-deleting")
            told = True
        if clock.monotonic_s() >= until_s:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


async def _remove(runtime: Runtime, session: Session) -> None:
    """Files first, the rows that name them after."""
    await asyncio.to_thread(_remove_files, runtime.sessions_dir, session.history_relative_dir)
    fault("after-files")
    await deletion.delete_rows(runtime.store, session, runtime.clock)
    fault("after-deletion")


def _remove_files(sessions_dir: str, relative_dir: str) -> None:
    """Remove a session's directory, and those above it that are empty then.  Raises: StoreFailedError."""
    directory = history_paths(sessions_dir, relative_dir).directory
    parts = relative_dir.split("/")
    if not relative_dir or os.path.isabs(relative_dir) or ".." in parts:
        raise StoreFailedError(f"{directory} is no directory of a session; nothing of it was removed")
    try:
        # A link in the place of a directory is removed, not followed.
        above = sessions_dir
        for part in parts[:-1]:
            above = os.path.join(above, part)
            if not stat.S_ISDIR(os.lstat(above).st_mode):
                raise StoreFailedError(f"{above} is no directory; nothing below it was removed")
        if stat.S_ISDIR(os.lstat(directory).st_mode):
            shutil.rmtree(directory)
        else:
            os.unlink(directory)
    except FileNotFoundError:
        pass  # it is gone already
    except OSError as error:
        raise StoreFailedError(
            f"{error.filename or directory} cannot be removed: {error.strerror}; the session stays sealed, "
            "`mcode sessions delete` goes on where it stopped"
        ) from error
    for depth in range(len(parts) - 1, 0, -1):
        try:
            os.rmdir(os.path.join(sessions_dir, *parts[:depth]))
        except OSError:
            break


async def finish_deletions(runtime: Runtime, session_ids: Sequence[str]) -> tuple[str, ...]:
    """Go on where a dead process stopped; the ids of those that are gone now.  What fails is left to the next."""
    done = []
    for session_id in session_ids:
        try:
            await _delete(runtime, session_id)
        except McodeError:
            continue  # another process is quicker, or the files cannot be removed yet
        done.append(session_id)
    return tuple(done)
