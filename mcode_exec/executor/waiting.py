"""Standing in a session's line: `exec --when-busy wait`.

The place is an item of the queue that only this process runs.  While it waits
it dispatches what others have left ahead of it; it gives its place up when it is
stopped, when its time is up, and by dying.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from mcode_exec.abort import AbortScope
from mcode_exec.errors import BusyError, McodeError, SessionDeletingError, SessionError
from mcode_exec.executor.delivery import Delivery, deliver, payload_of
from mcode_exec.executor.delivery_sink import DeliverySink
from mcode_exec.executor.outcome import cancelled_before_turn, steered_into
from mcode_exec.executor.preparation import Prepared
from mcode_exec.executor.refusals import Refusals
from mcode_exec.executor.submission import BUSY, Left, reject
from mcode_exec.output.narration import reason_of
from mcode_exec.output.sink import Sink
from mcode_exec.records.event import Notice, TurnQueued
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.queue import QueueItem, Removal
from mcode_exec.records.turn import Accepted, HandedOver, Replayed, TurnRequest
from mcode_exec.store import queue_rows, queue_state_rows
from mcode_exec.turns import claims, queue
from mcode_exec.turns.admission import admit
from mcode_exec.turns.recovery import recover

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

LOOK_S = 0.1  # between two looks whether another process has changed the store
_AGAIN_S = 0.5  # a process that has died changes nothing in the store: ask again all the same


async def stand_in_line(
    runtime: Runtime, prepared: Prepared, invocation: Invocation, sink: Sink, abort: AbortScope
) -> Accepted | Replayed | Left:
    """Wait for the session, first come, first served.

    Raises: BusyError when `--wait-timeout` has passed; SessionError, InvocationError as admission has them.
    """
    request = prepared.request
    item, _ = await queue.add(
        runtime.store,
        runtime.owner,
        request.session_id,
        payload_of(invocation, prepared.prompt.content, request.request_scope),
        runtime.clock,
        digest=request.digest,
        source=request.source,
        ttl_s=invocation.wait_timeout_s + _AGAIN_S,
        waits=True,
        turn_id=request.turn_id,
    )
    sink.bind(turn_id=item.turn_id)
    waiter = _Waiter(runtime, invocation, sink, abort, item)
    try:
        answer = await waiter.wait(structs.replace(request, item_id=item.id))
    except BaseException:
        # Stopped, or refused: whoever stands behind must not wait for us.
        await asyncio.shield(asyncio.ensure_future(queue.leave(runtime.store, item.id)))
        raise
    if not isinstance(answer, Accepted):
        await queue.leave(runtime.store, item.id)
    return answer


class _Waiter:
    """One place in line."""

    def __init__(
        self, runtime: Runtime, invocation: Invocation, sink: Sink, abort: AbortScope, item: QueueItem
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._invocation = invocation
        self._sink = sink
        self._abort = abort
        self._item = item
        self._told: int | None = None
        #: what stands ahead and cannot be run here
        self._refusals = Refusals(runtime.clock)
        self._blocked_by: str | None = None
        self._until_s = runtime.clock.monotonic_s() + invocation.wait_timeout_s

    async def wait(self, request: TurnRequest) -> Accepted | Replayed | Left:
        while True:
            if self._abort.is_tripped:  # while another's item ran, whose turn it has ended
                raise asyncio.CancelledError
            version = await self._store.data_version()
            admission = await admit(self._store, self._runtime.owner, request, self._runtime.clock)
            if isinstance(admission, Accepted | Replayed):
                return admission
            if isinstance(admission, HandedOver):
                from mcode_exec.executor.steering import answer_handed_over

                return await answer_handed_over(self._runtime, admission.signal, self._invocation, self._sink)
            if admission.reason in ("item-gone", "invalid-session"):  # a place goes with its session too
                return await self._removed()
            if admission.reason not in (*BUSY, "request-running"):
                reject(admission, request)
            await self._say_position()
            if self._runtime.clock.monotonic_s() >= self._until_s:
                raise BusyError(
                    f"session {self._item.session_id} did not become free within the "
                    f"{self._invocation.wait_timeout_s:g} s of --wait-timeout; "
                    f"{self._blocked_by or 'try again later'}",
                    code=BUSY.get(admission.reason, "session_busy"),
                )
            if admission.reason == "priority-blocked" and await self._dispatch():
                continue
            await self._change(version)

    async def _change(self, version: int) -> None:
        """Return when the store has changed, or after a while."""
        until_s = min(self._runtime.clock.monotonic_s() + _AGAIN_S, self._until_s)
        while self._runtime.clock.monotonic_s() < until_s:
            await asyncio.sleep(LOOK_S)
            if await self._store.data_version() != version:
                return
        # Who dies changes nothing in the store: what it held is freed by whoever waits for it.
        runtime = self._runtime
        await recover(self._store, runtime.owner, runtime.clock, runtime.sessions_dir)

    async def _dispatch(self) -> bool:
        """Run one item that stands ahead; False when there is none to take, or it could not run now."""
        item = await claims.claim_next(
            self._store,
            self._runtime.owner,
            self._item.session_id,
            self._runtime.clock,
            before=self._item.position,
            rests=self._refusals.rests,
        )
        if item is None:
            return False
        if self._refusals.find(item) is None:
            self._sink.say(f"running {item.id}, which stands ahead")
        self._blocked_by = None
        delivery = Delivery(item=item, drainer=self._invocation)
        delivered = await deliver(self._runtime, delivery, DeliverySink(self._sink), self._abort)
        if delivered.is_refused and delivered.error is not None:
            await self._refused(item, delivered.error)
            return False
        self._refusals.forget(item.session_id)
        self._sink.say(delivered.sentence())
        return delivered.outcome != "released"

    async def _refused(self, item: QueueItem, error: McodeError) -> None:
        """Say once what stands before us, and why it stays there."""
        self._blocked_by = f"{item.id} stands ahead and cannot run here: {reason_of(error)}"
        if self._refusals.note(item, error):
            until = (
                f"waiting until it is changed (`mcode queue edit {item.id}`), taken away "
                f"(`mcode queue remove {item.id}`) or run by another process"
            )
            await self._sink.event(Notice(code="queue.blocked", message=f"{self._blocked_by}; {until}"))

    async def _say_position(self) -> None:
        item = self._item
        place = await self._store.read(lambda: queue_rows.place_of(item.session_id, item.position))
        if place != self._told:
            self._told = place
            await self._sink.event(TurnQueued(position=place, item_id=item.id))

    async def _removed(self) -> Left:
        """What became of the place that is gone.

        Raises: SessionError, BusyError where somebody or something took it away.
        """
        item = self._item
        removal = await self._store.read(lambda: queue_state_rows.find_removal(item.id))
        if removal is not None and removal.reason == "merged":
            return Left(result=steered_into(self._invocation, item.session_id, removal.turn_id))
        if removal is not None and removal.reason in ("cancelled", "taken-back"):
            return Left(result=cancelled_before_turn(self._invocation, item.session_id, item.turn_id))
        raise _lost_place(item, removal)


def _lost_place(item: QueueItem, removal: Removal | None) -> McodeError:
    reason = removal.reason if removal is not None else "removed"
    if reason == "deleting":
        return SessionDeletingError(item.session_id)
    if reason == "expired":
        return BusyError(f"the place in the line of session {item.session_id} expired; try again later")
    return SessionError(
        f"the place in the line of session {item.session_id} was taken away ({reason})",
        code="queue_item_removed",
    )
