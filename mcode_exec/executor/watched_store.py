"""The store for who watches: read and never written, and looked at whenever another process has changed it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from mcode_exec import paths
from mcode_exec.clock import Clock, SystemClock
from mcode_exec.errors import StoreFailedError
from mcode_exec.executor.runtime import check_data_directory
from mcode_exec.store.database import Store
from mcode_exec.store.looking import check_schema
from mcode_exec.turns.owner import is_alive

LOOK_S = 0.05  # between two looks whether another process has changed the store


class Watched:
    """An open store, and when to look at it."""

    def __init__(self, store: Store, run_dir: str, clock: Clock, rest: Callable[[], None]) -> None:
        self.store = store
        self._run_dir = run_dir
        self._clock = clock
        self._rest = rest
        self._version = -1
        self._file = _identity(store.path)

    def is_alive(self, owner: str) -> bool:
        """Whether the process of an owner token lives."""
        return is_alive(self._run_dir, owner)

    def look_again(self) -> None:
        """Let the next `change` return at once."""
        self._version = -1

    async def change(self, most_s: float | None = None) -> None:
        """Return when the store has changed since this last returned, or after `most_s`.

        Raises: StoreFailedError where its file has gone, or a newer mcode has made it its own.
        """
        until_s = None if most_s is None else self._clock.monotonic_s() + most_s
        while True:
            # Asked before anything is read: what is committed meanwhile is the next change.
            version = await self.store.data_version()
            if version != self._version:
                await self.store.read(lambda: check_schema(self.store.path))
                self._version = version
                return
            if _identity(self.store.path) != self._file:
                raise StoreFailedError(
                    f"the store {self.store.path} was moved or removed while it was watched"
                )
            if until_s is not None and self._clock.monotonic_s() >= until_s:
                return
            self._rest()
            await asyncio.sleep(LOOK_S)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


@asynccontextmanager
async def watched(
    data_dir: str | None, env: Mapping[str, str], rest: Callable[[], None], *, waits: bool
) -> AsyncIterator[tuple[Watched | None, bool]]:
    """The store, and whether it was there; where there is none yet it is waited for, or (not `waits`) None.

    `rest`: called between two looks; what it raises ends the watching.
    Raises: StoreFailedError, StoreBusyError, ConfigError.
    """
    data = paths.data_dir(data_dir, dict(env))
    check_data_directory(data)
    clock, path = SystemClock(), paths.database_file(data)
    store = await Store.follow(path, clock)
    was_there = store is not None
    while store is None and waits:
        rest()
        await asyncio.sleep(LOOK_S)
        store = await Store.follow(path, clock)
    try:
        yield None if store is None else Watched(store, paths.run_dir(data), clock, rest), was_there
    finally:
        if store is not None:
            await store.close()
