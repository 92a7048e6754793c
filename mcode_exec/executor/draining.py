"""Draining queues: run what waits, item after item in each session, several sessions at once.

A session is looked at when there is reason to: at the start, and when its wake
counter has changed (an item came, a turn was answered, a pause was lifted).
Turns that failed or were stopped give no reason; but every 10 s what was left
because others were at work is looked at again, so that nothing waits for good
behind a turn that wakes nobody.  Source: turn-system notes, queue dispatcher;
docs/contract.md §5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from mcode_exec.abort import AbortScope
from mcode_exec.errors import McodeError, SessionDeletingError, SessionError
from mcode_exec.executor.delivery import Delivered, Delivery, deliver
from mcode_exec.executor.delivery_sink import DeliverySink
from mcode_exec.executor.refusals import Refusals
from mcode_exec.executor.sharing import write_pages
from mcode_exec.executor.submission import holder_line
from mcode_exec.output.sink import Sink
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.queue import QueueItem
from mcode_exec.sessions import finding
from mcode_exec.store import queue_rows, queue_state_rows, session_rows, turn_rows
from mcode_exec.store.queue_state_rows import EVERY_SESSION
from mcode_exec.turns import claims, queue
from mcode_exec.turns.lease import is_held

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

LOOK_S = 0.1  # between two looks whether another process has changed the store
DEFAULT_JOBS = 4
_PAGE = 200  # sessions per read


class SessionEnd(Struct, frozen=True, kw_only=True):
    """Why a session was left."""

    #: nothing waits; it is held; somebody else is at work there; its first item cannot be run here; a turn did
    #: not succeed; we were stopped
    reason: Literal["empty", "paused", "busy", "refused", "failed", "stopped"]
    #: for people
    why: str = ""


EMPTY = SessionEnd(reason="empty")
PAUSED = SessionEnd(reason="paused", why="the queue is paused")
REFUSED = SessionEnd(reason="refused", why="the next one cannot run here")
FAILED = SessionEnd(reason="failed", why="a turn did not succeed (--stop-on-failure)")
STOPPED = SessionEnd(reason="stopped", why="this process was stopped")


class DrainOptions(Struct, frozen=True, kw_only=True):
    """What is drained, and when to stop."""

    #: id or unique prefix; None: every session
    session: str | None
    follows: bool = False
    stops_on_failure: bool = False
    #: how many sessions at once
    jobs: int = DEFAULT_JOBS


def _check_kept(session_id: str) -> None:
    """Raise SessionError for a session that is deleted while somebody waits for its items; inside a read."""
    session = session_rows.find_session(session_id)
    if session is None:
        raise SessionError(
            f"session {session_id} is gone: it was deleted while this process drained its queue"
        )
    if session.deleting_by is not None:
        raise SessionDeletingError(session_id)


class DrainEnd(Struct, frozen=True, kw_only=True):
    """How a drain ended: why each session was left that still has items."""

    left: dict[str, SessionEnd]


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
        self._refusals = Refusals(runtime.clock)
        self._left: dict[str, SessionEnd] = {}
        #: wake counter of each session when it was last looked at
        self._seen: dict[str, int] = {}
        #: sessions that are due, in their order
        self._due: dict[str, None] = {}
        self._running: dict[str, asyncio.Task[SessionEnd]] = {}
        #: state of the store, and number of the looks for dead processes, when due sessions were last looked for
        self._version: int | None = None
        self._looks = 0
        self._has_failed = False
        self._error: McodeError | None = None

    async def run(self) -> DrainEnd:
        try:
            while True:
                await self._look()
                await self._run_due()
                if self._error is not None:
                    raise self._error
                if self._is_over:
                    break
                if self._options.follows:
                    await asyncio.sleep(LOOK_S)
                elif self._only is None or await self._is_done(self._only):
                    break  # else an item came while we were about to leave
        finally:
            for task in self._running.values():
                task.cancel()
        return DrainEnd(left=await self._store.read(self._still_left))

    def _still_left(self) -> dict[str, SessionEnd]:
        """Why each session was left that has items now; inside a transaction."""
        left = {one: end for one, end in self._left.items() if queue_rows.has_items(one)}
        if self._has_failed and self._options.stops_on_failure:
            left |= {one: FAILED for one in self._due if one not in left and queue_rows.has_items(one)}
        return left

    @property
    def _is_over(self) -> bool:
        """Whether no further item is to be begun."""
        has_failed = self._has_failed and self._options.stops_on_failure
        return self._abort.is_tripped or has_failed or self._error is not None

    async def _run_due(self) -> None:
        """Run what is due, at most so many sessions at once; who follows takes up what comes meanwhile."""
        while self._running or (self._due and not self._is_over):
            while self._due and len(self._running) < self._options.jobs and not self._is_over:
                session_id = next(iter(self._due))
                del self._due[session_id]
                self._running[session_id] = asyncio.ensure_future(self._session(session_id))
            await asyncio.wait(
                self._running.values(),
                timeout=LOOK_S if self._options.follows else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for session_id, task in list(self._running.items()):
                if task.done():
                    del self._running[session_id]
                    self._ended(session_id, task)
            if self._options.follows and not self._is_over:
                await self._look()

    def _ended(self, session_id: str, task: asyncio.Task[SessionEnd]) -> None:
        self._version = None  # it may have been woken while it ran
        try:
            end = task.result()
        except McodeError as error:
            self._error = self._error or error
            return
        self._left[session_id] = end
        if end.reason == "empty":
            del self._left[session_id]

    async def _is_done(self, session_id: str) -> bool:
        if session_id in self._left:
            return True
        return await queue.is_drained_out(self._store, self._runtime.owner, session_id, self._runtime.clock)

    async def _look(self) -> None:
        """Find what is due; what goes wrong with that ends the drain, once what runs has come to its end."""
        try:
            await self._find_due()
        except McodeError as error:
            self._error = self._error or error

    async def _find_due(self) -> None:
        """Add the sessions with items that there is reason to look at."""
        version, looks = await self._store.data_version(), self._runtime.again.looks
        is_again = looks != self._looks
        if (
            self._options.follows
            and version == self._version
            and not is_again
            and not self._refusals.any_due()
        ):
            return
        self._version, self._looks = version, looks
        wanted = [self._only] if self._only is not None else await self._with_items()

        def counters() -> dict[str, int]:
            if self._only is not None:
                _check_kept(self._only)
            return {one: queue_state_rows.find_wake(one) for one in wanted if queue_rows.has_items(one)}

        found = await self._store.read(counters)
        for gone in self._left.keys() - found.keys():
            del self._left[gone]
            self._refusals.forget(gone)
        for session_id, counter in found.items():
            if session_id in self._running:
                continue  # if it is woken meanwhile, its counter says so afterwards
            left = self._left.get(session_id)
            is_woken = self._seen.get(session_id) != counter
            is_free_again = is_again and left is not None and left.reason == "busy"
            if is_woken or is_free_again or self._refusals.is_due(session_id):
                self._seen[session_id] = counter
                self._due[session_id] = None

    async def _with_items(self) -> list[str]:
        found: list[str] = []
        while True:
            after = found[-1] if found else ""
            page = await self._store.read(partial(queue_rows.sessions_with_items, after, _PAGE))
            found += page
            if len(page) < _PAGE:
                return found

    async def _session(self, session_id: str) -> SessionEnd:
        """Run a session's items until there is none to take."""
        while not self._is_over:
            end = await self._store.read(lambda: self._kept_by(session_id))
            if end is not None:
                self._refusals.put_off(session_id)
                return end
            item = await claims.claim_next(
                self._store,
                self._runtime.owner,
                session_id,
                self._runtime.clock,
                rests=self._refusals.rests,
            )
            if item is None:
                self._refusals.put_off(session_id)
                end = await self._store.read(lambda: self._kept_by(session_id))
                return end or SessionEnd(reason="busy", why="another process is at work there")
            end = await self._deliver(item)
            if end is not None:
                return end
        return STOPPED

    async def _deliver(self, item: QueueItem) -> SessionEnd | None:
        """Run one item; why its session is left after it, if it is."""
        name = item.id if self._only is None else None  # several may speak at once
        delivered = await deliver(
            self._runtime,
            Delivery(item=item, drainer=self._invocation),
            DeliverySink(self._sink, name=name),
            self._abort,
        )
        if delivered.exit_code:
            self._has_failed = True
        if delivered.is_refused and delivered.error is not None:
            if self._refusals.note(item, delivered.error):
                self._on_delivered(delivered)
            return REFUSED
        self._refusals.forget(item.session_id)
        self._on_delivered(delivered)
        await write_pages(self._runtime, self._sink.say)
        if delivered.outcome == "released":
            end = await self._store.read(lambda: self._kept_by(item.session_id))
            why = STOPPED.why if delivered.error is None else delivered.error.message
            return STOPPED if self._abort.is_tripped else end or SessionEnd(reason="busy", why=why)
        if delivered.exit_code and self._options.stops_on_failure:
            return FAILED
        return None

    def _kept_by(self, session_id: str) -> SessionEnd | None:
        """Why nothing can be taken from a session now, as far as can be seen; inside a transaction."""
        if not queue_rows.count_delivered(session_id):
            return EMPTY
        if queue_state_rows.find_pause(session_id) is not None:
            return PAUSED
        first = queue_rows.first_queued(session_id)
        if first is not None and self._refusals.rests(first):
            return REFUSED
        lock = turn_rows.find_lock(session_id)
        if lock is not None and is_held(lock, self._runtime.owner, self._runtime.clock):
            return SessionEnd(reason="busy", why=holder_line(lock.holder()))
        return None
