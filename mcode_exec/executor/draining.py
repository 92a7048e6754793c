"""Draining queues: run what waits, item after item, one at a time in each session.

A session is looked at when there is reason to: at the start, and when its wake
counter has changed (an item came, a turn was answered, a pause was lifted).
Turns that failed or were stopped give no reason.  Source: turn-system notes,
queue dispatcher; docs/contract.md §5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from mcode_exec.abort import AbortScope
from mcode_exec.errors import BusyError, McodeError
from mcode_exec.executor.delivery import Delivered, Delivery, deliver
from mcode_exec.executor.delivery_sink import DeliverySink
from mcode_exec.output.sink import Sink
from mcode_exec.records.invocation import Invocation
from mcode_exec.sessions import finding
from mcode_exec.store import queue_rows, queue_state_rows
from mcode_exec.store.queue_state_rows import EVERY_SESSION
from mcode_exec.turns import claims, queue

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

LOOK_S = 0.1  # between two looks whether another process has changed the store
_PAGE = 200  # sessions per read

#: why a session was left: nothing waits, it is held, somebody else is at work there, its next item
#: cannot run here, a turn did not succeed, or we were stopped
SessionEnd = Literal["empty", "paused", "busy", "cannot-run", "failed", "stopped"]


class DrainOptions(Struct, frozen=True, kw_only=True):
    """What is drained, and when to stop."""

    #: id or unique prefix; None: every session
    session: str | None
    follows: bool = False
    stops_on_failure: bool = False


class Left(Struct, frozen=True, kw_only=True):
    """Why a session was left."""

    end: SessionEnd
    #: why its next item could not run
    error: McodeError | None = None


class DrainEnd(Struct, frozen=True, kw_only=True):
    """How a drain ended: why each session was left that still has items."""

    left: dict[str, Left]
    #: the one session that was drained
    session_id: str | None


async def drain(
    runtime: Runtime,
    drainer: Invocation,
    options: DrainOptions,
    sink: Sink,
    abort: AbortScope,
    on_delivered: Callable[[Delivered], None],
) -> DrainEnd:
    """Run what waits until nothing is left, or (`follows`) until it is stopped.

    Raises: SessionError for a session that does not exist; StoreFailedError, StoreBusyError.
    """
    named = options.session
    session_id = EVERY_SESSION if named is None else (await finding.find_exact(runtime.store, named)).id
    await queue.stand_behind(runtime.store, runtime.owner, session_id, runtime.clock)
    only = None if named is None else session_id
    try:
        return await _Drainer(runtime, drainer, options, only, sink, abort, on_delivered).run()
    finally:
        await asyncio.shield(
            asyncio.ensure_future(queue.stop_draining(runtime.store, runtime.owner, session_id))
        )


class _Drainer:
    """One drain of one or all sessions."""

    def __init__(
        self,
        runtime: Runtime,
        invocation: Invocation,
        options: DrainOptions,
        session_id: str | None,
        sink: Sink,
        abort: AbortScope,
        on_delivered: Callable[[Delivered], None],
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._invocation = invocation
        self._options = options
        #: the one session to drain; None: every one
        self._only = session_id
        self._sink = sink
        self._abort = abort
        self._on_delivered = on_delivered
        self._left: dict[str, Left] = {}
        #: wake counter of each session when it was last looked at
        self._seen: dict[str, int] = {}

    async def run(self) -> DrainEnd:
        while True:
            version = await self._store.data_version()
            for session_id in await self._due():
                left = await self._session(session_id)
                if left.end == "empty":
                    self._left.pop(session_id, None)
                else:
                    self._left[session_id] = left
                has_failed = left.end in ("failed", "cannot-run")
                if self._abort.is_tripped or (has_failed and self._options.stops_on_failure):
                    return self._end()
            if not self._options.follows:
                if self._only is None or await self._is_done(self._only):
                    return self._end()
                continue  # an item came while we were about to leave
            await self._change(version)
            if self._abort.is_tripped:
                return self._end()

    def _end(self) -> DrainEnd:
        return DrainEnd(left=self._left, session_id=self._only)

    async def _is_done(self, session_id: str) -> bool:
        if session_id in self._left:
            return True
        return await queue.is_drained_out(self._store, self._runtime.owner, session_id, self._runtime.clock)

    async def _due(self) -> list[str]:
        """Sessions with items that there is reason to look at."""
        wanted = [self._only] if self._only is not None else await self._with_items()

        def counters() -> list[tuple[str, int]]:
            return [(one, queue_state_rows.find_wake(one)) for one in wanted if queue_rows.has_items(one)]

        due = []
        for session_id, counter in await self._store.read(counters):
            if self._seen.get(session_id) != counter:
                self._seen[session_id] = counter
                due.append(session_id)
        return due

    async def _with_items(self) -> list[str]:
        found: list[str] = []
        while True:
            after = found[-1] if found else ""
            page = await self._store.read(lambda a=after: queue_rows.sessions_with_items(a, _PAGE))  # type: ignore[misc]
            found += page
            if len(page) < _PAGE:
                return found

    async def _session(self, session_id: str) -> Left:
        """Run a session's items until there is none to take."""
        while not self._abort.is_tripped:
            item = await claims.claim_next(self._store, self._runtime.owner, session_id, self._runtime.clock)
            if item is None:
                return Left(end=await self._why_none(session_id))
            delivered = await deliver(
                self._runtime,
                Delivery(item=item, drainer=self._invocation),
                DeliverySink(self._sink),
                self._abort,
            )
            self._on_delivered(delivered)
            if delivered.outcome == "released":
                return self._why_released(delivered.error)
            result = delivered.result
            has_failed = delivered.outcome == "dropped" or (result is not None and result.exit_code != 0)
            if has_failed and self._options.stops_on_failure:
                return Left(end="failed")
        return Left(end="stopped")

    def _why_released(self, error: McodeError | None) -> Left:
        if self._abort.is_tripped or error is None:
            return Left(end="stopped")
        return Left(end="busy" if isinstance(error, BusyError) else "cannot-run", error=error)

    async def _why_none(self, session_id: str) -> SessionEnd:
        def look() -> SessionEnd:
            if not queue_rows.count_delivered(session_id):
                return "empty"
            return "paused" if queue_state_rows.find_pause(session_id) is not None else "busy"

        return await self._store.read(look)

    async def _change(self, version: int) -> None:
        """Return when another process has changed the store, we are stopped, or dead ones may have left something."""
        freed = self._runtime.again.changes
        while not self._abort.is_tripped:
            await asyncio.sleep(LOOK_S)
            if self._runtime.again.changes != freed or await self._store.data_version() != version:
                return
