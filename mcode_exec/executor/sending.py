"""Sending one queued item now: to the turn that runs in its session, or as a turn of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcode_exec.abort import AbortScope
from mcode_exec.errors import BusyError
from mcode_exec.executor.delivery import Delivered, Delivery, deliver
from mcode_exec.executor.delivery_sink import DeliverySink
from mcode_exec.executor.queue_actions import named_item
from mcode_exec.output.sink import Sink
from mcode_exec.records.invocation import Invocation
from mcode_exec.turns import claims, steering

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime


async def send_now(
    runtime: Runtime, invocation: Invocation, item_text: str, sink: Sink, abort: AbortScope
) -> Delivered | None:
    """What became of an item that ran here, past a pause; None when a running turn has it now.

    Raises: SessionError, BusyError; what keeps the item from running.
    """
    item = await runtime.store.read(lambda: named_item(item_text))
    steered = await steering.steer_item(runtime.store, runtime.owner, item.id, runtime.clock)
    if steered.signal is not None:
        sink.say(f"{item.id} was handed to turn {steered.signal.turn_id}")
        return None
    claimed = await claims.claim_item(runtime.store, runtime.owner, item.id, runtime.clock)
    if claimed is None:
        raise BusyError(f"{item.id} cannot be sent now: another item of its session is being delivered")
    delivery = Delivery(item=claimed, drainer=invocation, priority="paused-queue-send")
    delivered = await deliver(runtime, delivery, DeliverySink(sink), abort)
    if delivered.error is not None:
        raise delivered.error
    return delivered
