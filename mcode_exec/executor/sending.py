"""Sending one queued item now: to the turn that runs in its session, or as a turn of this process.

Handing over is one transaction, claiming and being admitted are others: a turn
may begin or end between them, so that both doors are tried until one holds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcode_exec.abort import AbortScope
from mcode_exec.errors import BusyError
from mcode_exec.executor.delivery import Delivered, Delivery, deliver
from mcode_exec.executor.delivery_sink import DeliverySink
from mcode_exec.executor.queue_actions import named_item
from mcode_exec.executor.steering import AGAIN_S, TRIES, held_by_other, kept_notice
from mcode_exec.output.sink import Sink
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.queue import QueueItem
from mcode_exec.turns import claims, steering

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime


async def send_now(
    runtime: Runtime, invocation: Invocation, item_text: str, sink: Sink, abort: AbortScope
) -> Delivered:
    """What became of an item: `steered` where a running turn has it now, else it ran here, past a pause.

    Raises: SessionError, BusyError; what keeps the item from running.
    """
    item = await runtime.store.read(lambda: named_item(item_text))
    for number in range(TRIES):
        steered = await steering.steer_item(runtime.store, runtime.owner, item.id, runtime.clock)
        if steered.signal is not None:
            sink.say(f"{item.id} was handed to turn {steered.signal.turn_id}")
            if kept := kept_notice(item.payload):
                sink.say(kept)
            return Delivered(item=item, outcome="steered", turn_id=steered.signal.turn_id)
        if steered.holder is not None:
            raise held_by_other(item.session_id, steered.holder)
        claimed = await claims.claim_item(runtime.store, runtime.owner, item.id, runtime.clock)
        if claimed is None:
            raise _not_claimed(item)
        delivery = Delivery(item=claimed, drainer=invocation, priority="paused-queue-send")
        delivered = await deliver(runtime, delivery, DeliverySink(sink), abort)
        has_turn_come = isinstance(delivered.error, BusyError) and delivered.outcome == "released"
        if delivered.error is None:
            return delivered
        if not has_turn_come or number == TRIES - 1:
            raise delivered.error
        await asyncio.sleep(AGAIN_S)
    raise AssertionError("the last try answers")


def _not_claimed(item: QueueItem) -> BusyError:
    if item.waiter is not None:
        return BusyError(
            f"{item.id} is the place of a process that waits in session {item.session_id}, and runs it itself"
        )
    return BusyError(
        f"{item.id} cannot be sent now: it is gone, or another item of its session is being delivered"
    )
