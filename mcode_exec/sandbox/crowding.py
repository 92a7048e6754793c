"""The limit on how many processes commands may have at once.

A command that forks without bound fills the machine's process table and takes
everything else down, mcode included.  The kernel bounds it by RLIMIT_NPROC,
which counts all that the user runs, so what the machine has already is added;
it does not bind root, and a pids cgroup is seldom ours to make.  So the
machine's own count, one small read, is also looked at ten times a second while
commands run, and their processes are counted only when it has grown enough for
them to be the cause.  That is quick enough for what forks by mistake, not for
what forks as fast as it can.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: processes that the commands of one turn may have at once
MAX_PROCESSES = 4096
_LOOK_S = 0.1


@contextmanager
def processes_limited(limit: int) -> Iterator[None]:
    """What is started in this context is refused more than `limit` processes beside what runs already.

    It is inherited: set from outside, it would come after the first forks.
    """
    if os.getuid() == 0:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    wanted = (machine_entities() or 0) + limit
    if soft != resource.RLIM_INFINITY and soft <= wanted:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NPROC, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


class CrowdWatch:
    """Calls `on_crowd` when `count` gives more than `limit`; once, until it is started again."""

    def __init__(self, limit: int, *, count: Callable[[], int], on_crowd: Callable[[], None]) -> None:
        self._limit = limit
        self._count = count
        self._on_crowd = on_crowd
        self._timer: asyncio.TimerHandle | None = None
        #: what the machine may have until the processes are counted
        self._uncounted = 0

    def start(self) -> None:
        if self._timer is None and (entities := machine_entities()) is not None:
            self._uncounted = entities + self._limit // 4
            self._look_later()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        entities = machine_entities() or 0
        if entities >= self._uncounted:
            if self._count() > self._limit:
                self._timer = None
                self._on_crowd()
                return
            # counting costs a look at each of them: not again before an eighth more can be there
            self._uncounted = entities + self._limit // 8
        self._uncounted = min(self._uncounted, entities + self._limit // 4)
        self._look_later()


def machine_entities() -> int | None:
    """Processes and threads of the whole machine; None where the kernel does not say (proc_loadavg(5))."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            entities = int(file.read(128).split()[3].partition(b"/")[2])
    except (OSError, IndexError, ValueError):
        return None
    return entities or None
