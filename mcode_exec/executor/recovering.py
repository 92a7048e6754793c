"""Recovery beside whatever a process does: at its start, every 10 s while it lives, and all of it at once.

`turns.recovery` ends in the store what dead owners left; here their stray
commands end too, and the pieces are put together for those who ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec.errors import McodeError
from mcode_exec.executor.finishing import Finished, finish_operations
from mcode_exec.turns.recovery import FIRST, Place, recover

if TYPE_CHECKING:
    from mcode_exec.executor.deletion import Unfinished
    from mcode_exec.executor.runtime import Runtime

AGAIN_S = 10.0  # between two looks; source: turn-system notes, recovery


class Report(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was found and ended."""

    #: turns of dead processes, settled as `process-restart`
    turns: int = 0
    #: sessions that said `started` although nobody held them
    sessions: int = 0
    #: queue items whose delivery was given back
    claims: int = 0
    #: places in line of processes that are gone
    places: int = 0
    #: queue items past their time
    expired: int = 0
    #: words for turns that are over or never came
    signals: int = 0
    #: pids of commands that dead processes had left running
    strays: tuple[int, ...] = ()
    #: sessions whose deletion a dead process had begun, and that are gone now
    deleting: tuple[str, ...] = ()
    #: sessions whose deletion was begun and cannot be ended now
    unfinished: tuple[Unfinished, ...] = ()
    #: sessions that a dead process had begun to make: those that are whole now, and those that are gone
    made: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    #: sessions whose rewind, or the way back from one, a dead process had begun
    rewound: tuple[str, ...] = ()

    def __add__(self, other: Report) -> Report:
        return Report(
            turns=self.turns + other.turns,
            sessions=self.sessions + other.sessions,
            claims=self.claims + other.claims,
            places=self.places + other.places,
            expired=self.expired + other.expired,
            signals=self.signals + other.signals,
            strays=(*self.strays, *other.strays),
            deleting=tuple(dict.fromkeys((*self.deleting, *other.deleting))),
            unfinished=self._still_unfinished(other),
            made=(*self.made, *other.made),
            undone=(*self.undone, *other.undone),
            rewound=(*self.rewound, *other.rewound),
        )

    def _still_unfinished(self, later: Report) -> tuple[Unfinished, ...]:
        """What a later look has not ended, by the reason of the last one."""
        found = {one.session_id: one for one in (*self.unfinished, *later.unfinished)}
        return tuple(one for one in found.values() if one.session_id not in later.deleting)


async def recover_batch(runtime: Runtime, place: Place = FIRST) -> tuple[Report, Place | None]:
    """End what dead processes left, a batch of it; and where to go on.

    Raises: StoreBusyError, StoreFailedError.
    """
    found = await recover(runtime.store, runtime.owner, runtime.clock, runtime.sessions_dir, place)
    dead = {*found.dead_owners, *runtime.owner.take_swept()}
    strays: tuple[int, ...] = ()
    if dead:
        from mcode_exec.sandbox.strays import end_strays

        strays = tuple(ref.pid for ref in await end_strays(dead))
    deleted: tuple[str, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    if found.deleting:
        from mcode_exec.executor.deletion import finish_deletions

        deleted, unfinished = await finish_deletions(runtime, found.deleting)
    finished = Finished()
    if found.making:
        finished = await finish_operations(runtime, found.making)
    report = Report(
        turns=found.turns,
        sessions=found.sessions,
        claims=found.claims,
        places=found.places,
        expired=found.expired,
        signals=found.signals,
        strays=strays,
        deleting=deleted,
        unfinished=unfinished,
        made=finished.made,
        undone=finished.undone,
        rewound=finished.rewound,
    )
    return report, found.then


async def recover_all(runtime: Runtime) -> Report:
    """Everything that dead processes left, batch after batch.  Raises: StoreBusyError, StoreFailedError."""
    report, place = Report(), FIRST
    runtime.owner.sweep(None)
    while True:
        part, then = await recover_batch(runtime, place)
        report += part
        if then is None:
            return report
        place = then


async def recover_data(data_dir: str | None, env: Mapping[str, str]) -> Report:
    """Recover all of a data directory, what opening it does included.  Raises: StoreBusyError, StoreFailedError."""
    from mcode_exec.executor.inspect import opened

    async with opened(data_dir, env) as runtime:
        if runtime.store.is_read_only:
            return Report()  # no run has made a store
        return runtime.recovered + await recover_all(runtime)


class Again:
    """Looks again every AGAIN_S, for as long as the process lives; one that ends sooner pays for a timer."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        #: how many looks there were
        self.looks = 0

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(AGAIN_S, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        try:
            await recover_all(self._runtime)
        except McodeError:
            pass  # a busy store: what is dead stays so, and the next look finds it
        self.looks += 1
        self.start()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
