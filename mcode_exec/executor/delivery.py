"""Delivering one queue item: the same door as an immediate prompt, with the item's own words and limits.

The item says what is run; the process that runs it gives configuration, keys
and its own permissions, of which the stricter count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from mcode_exec.abort import AbortScope
from mcode_exec.errors import BusyError, InvocationError, McodeError, TurnFailedError
from mcode_exec.executor.delivery_sink import DeliverySink
from mcode_exec.executor.prompt import Prompt
from mcode_exec.executor.workspaces import RECORDED
from mcode_exec.faults import fault
from mcode_exec.ids import new_run_id
from mcode_exec.output.narration import of_delivered
from mcode_exec.records.history import Block
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.queue import QueueItem, QueuePayload
from mcode_exec.records.result import Result
from mcode_exec.records.turn import Priority
from mcode_exec.store import queue_rows
from mcode_exec.turns import claims
from mcode_exec.turns.words import text_of

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

#: rejections after which an item can never run: its row goes.  Source: turn-system notes, queue
_FINAL = ("session_not_found", "session_deleting", "turn_ingress_conflict", "TURN_ABORTED")


class DrainerFlagsError(InvocationError):
    """The flags of the process that delivers cannot be used: the item has no part in it."""


class Delivery(Struct, frozen=True, kw_only=True):
    """An item that is being delivered, and who delivers it."""

    item: QueueItem
    drainer: Invocation
    priority: Priority = "ordinary"


class Delivered(Struct, frozen=True, kw_only=True):
    """What became of an item."""

    item: QueueItem
    outcome: Literal["ran", "steered", "released", "dropped"]
    #: the turn that it was handed to, when it was steered
    turn_id: str | None = None
    #: of the turn, when it ran
    result: Result | None = None
    #: why it did not
    error: McodeError | None = None
    #: takes the secrets of its own configuration out of what is told of it
    mask: Callable[[str], str] = str

    def sentence(self) -> str:
        """What became of it, for people."""
        return self.mask(of_delivered(self.item.id, self.outcome, self.result, self.error))

    @property
    def is_refused(self) -> bool:
        """Whether it went back because this process cannot run it, and not because others are at work."""
        error = self.error
        return self.outcome == "released" and error is not None and error.exit_code != BusyError.exit_code

    @property
    def exit_code(self) -> int:
        """What it is to a script: 0 also where it waits for others."""
        if self.outcome == "ran":
            return 0 if self.result is None else self.result.exit_code
        is_failed = self.error is not None and (self.outcome == "dropped" or self.is_refused)
        return self.error.exit_code if self.error is not None and is_failed else 0


async def deliver(runtime: Runtime, delivery: Delivery, sink: DeliverySink, abort: AbortScope) -> Delivered:
    """Run a claimed item.  An item that could not run goes back into its place, or goes for good."""
    return structs.replace(await _deliver(runtime, delivery, sink, abort), mask=sink.mask)


async def _deliver(runtime: Runtime, delivery: Delivery, sink: DeliverySink, abort: AbortScope) -> Delivered:
    from mcode_exec.executor.run import run_invocation

    item = delivery.item
    fault("after-claim")
    try:
        with abort.inner() as scope:
            result = await run_invocation(runtime, invocation_of(delivery), sink, scope, delivery)
    except McodeError as error:
        if _is_final(error) and await _take_out(runtime, item):
            return Delivered(item=item, outcome="dropped", error=error)
        delivered = Delivered(item=item, outcome="released", error=error)
        await claims.release(runtime.store, item, wakes=delivered.is_refused)
        return delivered
    if result.turn_id is not None:
        return Delivered(item=item, outcome="ran", result=result)
    # It was stopped before it was admitted.
    await claims.release(runtime.store, item)
    if abort.is_tripped or result.error is None:
        return Delivered(item=item, outcome="released", result=result)
    too_late = TurnFailedError(result.error.message, code=result.error.code)
    too_late.exit_code = result.exit_code  # its own time limit had passed
    return Delivered(item=item, outcome="released", error=too_late)


async def _take_out(runtime: Runtime, item: QueueItem) -> bool:
    """Take an item out for good; False where it is another process's by now."""
    if await claims.drop(runtime.store, item):
        return True
    return await runtime.store.read(lambda: queue_rows.find_item(item.id)) is None  # cancelled at admission


def _is_final(error: McodeError) -> bool:
    """Whether an item can never run: what it says, or where, and not who delivers it or with what."""
    if isinstance(error, DrainerFlagsError):
        return False
    return error.code in _FINAL or isinstance(error, InvocationError)


def invocation_of(delivery: Delivery) -> Invocation:
    """The invocation that an item comes to in the hands of this drainer."""
    item, drainer = delivery.item, delivery.drainer
    payload = item.payload
    return Invocation(
        run_id=new_run_id(),
        session=item.session_id,
        cwd=RECORDED,
        model=payload.model,
        fallback_models=payload.fallback_models,
        effort=payload.effort,
        agent=payload.agent,
        tools=payload.tools,
        append_system_prompt=payload.append_system_prompt,
        no_project_instructions=payload.no_project_instructions,
        title=payload.title,
        labels=payload.labels,
        permission=payload.permission,
        rules=payload.rules,
        on_ask=payload.on_ask,
        env=drainer.env,
        source=item.source,
        priority=delivery.priority,
        request_id=payload.request_id,
        timeout_s=payload.timeout_s,
        started_monotonic_s=time.monotonic(),
        max_steps=payload.max_steps,
        max_cost_usd=payload.max_cost_usd,
        max_tokens=payload.max_tokens,
        deltas=False,
        config_file=drainer.config_file,
        data_dir=drainer.data_dir,
        trust_workspace=drainer.trust_workspace,
    )


def payload_of(invocation: Invocation, content: tuple[Block, ...], request_scope: str | None) -> QueuePayload:
    """What of an invocation waits in a queue."""
    return QueuePayload(
        content=content,
        model=invocation.model,
        fallback_models=invocation.fallback_models,
        effort=invocation.effort,
        agent=invocation.agent,
        tools=invocation.tools,
        permission=invocation.permission,
        rules=invocation.rules,
        on_ask=invocation.on_ask,
        max_steps=invocation.max_steps,
        max_cost_usd=invocation.max_cost_usd,
        max_tokens=invocation.max_tokens,
        timeout_s=invocation.timeout_s,
        append_system_prompt=invocation.append_system_prompt,
        no_project_instructions=invocation.no_project_instructions,
        title=invocation.title,
        labels=invocation.labels,
        request_id=invocation.request_id,
        request_scope=request_scope,
    )


def prompt_of(item: QueueItem) -> Prompt:
    """What an item says; the bytes of its attachments lie in its session already."""
    return Prompt(text=text_of(item.payload.content), content=item.payload.content)
