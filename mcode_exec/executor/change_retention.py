"""Forgetting changes of turns: they are kept for 7 days, and go in batches of 250.

Contents go before the row that tells of them: whoever is killed in between leaves a
row that says which files changed, and the next batch takes it.  Every run cleans
one batch, once its result is out; `prune_changes` cleans all.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcode_exec import paths
from mcode_exec.executor.change_recording import on_thread
from mcode_exec.faults import fault
from mcode_exec.sessions import changed_contents
from mcode_exec.store import change_rows

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

#: source: session-system notes, storage retention
BATCH = 250
#: what is kept of workspaces is looked at so often, and so many of them at a time
_LOOK_S = 3600.0
_WORKSPACES = 8
#: how long the end of a process waits for its batch
_CLEAN_S = 2.0
_UNUSED_S = change_rows.KEPT_MS / 1000


async def clean_batch(runtime: Runtime, *, limit: int = BATCH) -> int:
    """Forget the oldest changes that are older than 7 days, at most `limit` turns; how many that were.

    Raises: StoreBusyError, StoreFailedError, those of files that cannot be removed included.
    """
    before_ms = runtime.clock.now_ms() - change_rows.KEPT_MS
    old = await runtime.store.read(lambda: change_rows.old_changes(before_ms, limit))
    if not old:
        return 0

    def remove() -> None:
        for one in old:
            if one.history_relative_dir is not None:
                changed_contents.remove_pack(runtime.sessions_dir, one.history_relative_dir, one.turn_id)

    await runtime.store.on_thread(remove)
    fault("after-packs")
    turn_ids = [one.turn_id for one in old]
    return await runtime.store.write(lambda: change_rows.delete_changes(turn_ids))


async def count_old(runtime: Runtime) -> int:
    """Of how many turns the changes would be forgotten now."""
    before_ms = runtime.clock.now_ms() - change_rows.KEPT_MS
    return await runtime.store.read(lambda: change_rows.count_old(before_ms))


async def prune_changes(runtime: Runtime) -> int:
    """Forget all changes that are older than 7 days, and what is kept of unused workspaces; how many turns' those were.

    Raises: StoreBusyError, StoreFailedError.
    """
    removed = 0
    while batch := await clean_batch(runtime):
        removed += batch
    await _clean_workspaces(runtime, most=100_000)
    return removed


async def clean_quietly(runtime: Runtime, say: Callable[[str], None] | None) -> None:
    """`clean_after_run` behind results that are out: it takes 2 s at most, and nothing is raised.  `say`: trouble."""
    try:
        await asyncio.wait_for(clean_after_run(runtime), _CLEAN_S)
    except Exception as error:  # nothing of what was run: only those who ask hear of it
        if say is not None:
            say(f"while cleaning: {type(error).__name__}: {error}")


async def clean_after_run(runtime: Runtime) -> None:
    """One bounded batch of everything, for the end of a run.

    Raises: StoreBusyError, StoreFailedError.
    """
    await clean_batch(runtime)
    directory = os.path.join(paths.changes_dir(runtime.data), "workspaces")
    marker = os.path.join(paths.changes_dir(runtime.data), "cleaned")
    if os.path.isdir(directory) and _is_older(marker, _LOOK_S):
        os.close(paths.private_open(marker))
        os.utime(marker)
        await _clean_workspaces(runtime, most=_WORKSPACES)


def _is_older(path: str, age_s: float) -> bool:
    try:
        return not 0 <= time.time() - os.lstat(path).st_mtime < age_s
    except OSError:
        return True


async def _clean_workspaces(runtime: Runtime, *, most: int) -> None:
    from mcode_exec.workspace import snapshot_files

    busy = await runtime.store.read(change_rows.busy_workspaces)
    changes_dir = paths.changes_dir(runtime.data)
    await on_thread(lambda _: snapshot_files.clean(changes_dir, unused_s=_UNUSED_S, most=most, busy=busy))
