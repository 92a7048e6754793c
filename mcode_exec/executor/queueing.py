"""Leaving a prompt in a session's queue, for whoever drains it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mcode_exec.executor.delivery import payload_of
from mcode_exec.executor.outcome import queued_as
from mcode_exec.executor.preparation import Prepared
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.queue import ITEM_TTL_S, QueueItem
from mcode_exec.records.result import Result
from mcode_exec.sessions.attachments import Attachments
from mcode_exec.sessions.layout import history_paths
from mcode_exec.store import queue_rows
from mcode_exec.turns import queue

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime


async def leave_in_queue(runtime: Runtime, prepared: Prepared, invocation: Invocation) -> Result:
    """`exec --when-busy queue`: an item, if a live process drains the session.

    Raises: BusyError `queue_not_drained`, `queue_full`; InvocationError.
    """
    item = await enqueue(runtime, prepared, invocation, only_if_drained=True)
    place = await runtime.store.read(lambda: queue_rows.place_of(item.session_id, item.position))
    return queued_as(invocation, item, place)


async def enqueue(
    runtime: Runtime,
    prepared: Prepared,
    invocation: Invocation,
    *,
    only_if_drained: bool,
    ttl_s: float = ITEM_TTL_S,
    dedupe_key: str | None = None,
) -> QueueItem:
    """Append what was prepared to its session's queue; the same request again is the same item."""
    request = prepared.request
    payload = payload_of(invocation, prepared.prompt.content, request.request_scope)
    if prepared.prompt.attachments:
        attachments = Attachments(
            history_paths(runtime.sessions_dir, prepared.choice.session.history_relative_dir), runtime.data
        )
        for attachment in prepared.prompt.attachments:
            await runtime.store.on_thread(partial(attachments.keep, attachment.data))
    item, _ = await queue.add(
        runtime.store,
        runtime.owner,
        request.session_id,
        payload,
        runtime.clock,
        digest=request.digest,
        source=request.source,
        dedupe_key=dedupe_key or request.request_id,
        ttl_s=ttl_s,
        turn_id=request.turn_id,
        only_if_drained=only_if_drained,
    )
    return item
