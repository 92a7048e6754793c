"""What other processes say to a turn of this one, heard within a quarter of a second.

The store is asked only when another connection has changed it (SQLite's
`data_version`): a turn that nobody talks to costs one pragma a look.
"""

from __future__ import annotations

import asyncio

from mcode_exec.abort import AbortReason, AbortScope
from mcode_exec.errors import McodeError
from mcode_exec.store import signal_rows
from mcode_exec.store.database import Store

LOOK_S = 0.2  # seconds between two looks

_REASONS: dict[str | None, AbortReason] = {"session-deleting": "session-deleting"}


class TurnEar:
    """Trips a turn's scope when somebody has told the turn to stop."""

    def __init__(self, store: Store, turn_id: str, abort: AbortScope) -> None:
        self._store = store
        self._turn_id = turn_id
        self._abort = abort
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _listen(self) -> None:
        seen = -1  # what was said before this began is heard at the first look
        while not self._abort.is_tripped:
            try:
                version = await self._store.data_version()
                if version != seen:
                    told = await self._store.read(lambda: signal_rows.pending(self._turn_id, "abort"))
                    if told:
                        self._abort.trip(_REASONS.get(told[0].reason, "user-stop"))
                        return
                    seen = version
            except McodeError:
                pass  # a busy or failing store is the commits' and the lease's to end the turn by
            await asyncio.sleep(LOOK_S)
