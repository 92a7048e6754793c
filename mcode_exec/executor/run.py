"""One run: prepare, submit, supervise, conclude.

Before admission everything is prepared in a task that an abort cancels; after
it the turn system owns the ending.  The sink hears what happens; the result is
the caller's to write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from mcode_exec.abort import AbortReason, AbortScope
from mcode_exec.errors import McodeError, SessionError
from mcode_exec.executor import submission
from mcode_exec.executor.outcome import TIMEOUT_FLAG, decode_result, stopped_before_turn, timeout_hit
from mcode_exec.executor.preparation import Prepared, prepare
from mcode_exec.executor.prompt import Prompt
from mcode_exec.executor.submission import Left
from mcode_exec.executor.turn import TurnRun
from mcode_exec.executor.turn_plan import Input
from mcode_exec.output.sink import READER_GRACE_S, Sink
from mcode_exec.plurals import counted
from mcode_exec.records.event import Notice
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.result import LimitHit, Result
from mcode_exec.records.turn import Accepted, Replayed
from mcode_exec.turns import queue

if TYPE_CHECKING:
    from mcode_exec.executor.delivery import Delivery
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.executor.settings import Settings

T = TypeVar("T")

_NOTHING_RECORDED = "the request was answered before; no model was called, and nothing was recorded"


async def run_invocation(
    runtime: Runtime,
    invocation: Invocation,
    sink: Sink,
    abort: AbortScope,
    delivery: Delivery | None = None,
) -> Result:
    """Run one invocation to its result; the caller writes it.  `delivery`: it comes from the queue.

    Raises: McodeError when no turn was admitted.
    """
    deadline = _Deadline(runtime, invocation, sink, abort)
    made: list[Prepared] = []
    try:
        try:
            given = None
            if invocation.steering is not None:
                left, given = await _abortable(_hand_over(runtime, invocation, sink), abort)
                if left is not None:
                    await _say_of_prompt(given.prompt, sink)
                    return left.result
            prepared = await _abortable(_prepare(runtime, invocation, sink, deadline, delivery, given), abort)
            made.append(prepared)
            if invocation.edits_last:
                await _take_back(runtime, prepared)
            admission = await _abortable(submission.submit(runtime, prepared, invocation, sink, abort), abort)
        except _Stopped:
            # A submission that was cut off may have been admitted all the same: admission has given that up.
            return stopped_before_turn(
                abort, invocation, time_limit=deadline.limit, duration_ms=_elapsed_ms(runtime, invocation)
            )
        if not isinstance(admission, Accepted):  # a turn says it among its own notices
            await _say_of_prompt(prepared.prompt, sink)
        if isinstance(admission, Left):
            sink.bind(turn_id=admission.result.turn_id)
            return admission.result
        await sink.session_known(admission.receipt.session_id)
        if isinstance(admission, Replayed):
            sink.bind(turn_id=admission.receipt.turn_id)
            if invocation.record is not None:
                await sink.event(Notice(code="record.nothing", message=_NOTHING_RECORDED))
            return _replayed(admission, invocation)
        if not isinstance(admission, Accepted):
            raise AssertionError("submit answers with an acceptance or a replay")
        if prepared.choice.operation is not None:
            from mcode_exec.executor import forking

            await forking.complete(runtime, prepared.choice.operation)
        made.clear()
        await sink.admitted()
        await _say_passed(admission, sink)
        if invocation.drains:
            await queue.stand_behind(
                runtime.store, runtime.owner, admission.receipt.session_id, runtime.clock
            )
        turn = TurnRun(
            runtime, invocation, prepared, admission, sink, abort, time_limit=_limit_of(deadline, delivery)
        )
        return await turn.run()
    finally:
        deadline.cancel()
        for prepared in made:
            await _leave_nothing(runtime, prepared)


def _limit_of(deadline: _Deadline, delivery: Delivery | None) -> LimitHit | None:
    """The wall-clock limit that ends a turn: its own, or that of the process which runs it for somebody else."""
    runner = None if delivery is None else delivery.drainer
    if runner is None or runner.timeout_s is None:
        return deadline.limit
    if deadline.at_s is not None and deadline.at_s <= runner.started_monotonic_s + runner.timeout_s:
        return deadline.limit
    return timeout_hit(runner.timeout_s, f"{TIMEOUT_FLAG} of the process that ran this for somebody else")


async def _take_back(runtime: Runtime, prepared: Prepared) -> None:
    """Take the session's last prompt back; an abort waits for that, which takes some milliseconds."""
    from mcode_exec.executor.rewinding import rewind
    from mcode_exec.sessions.rewinding import LAST

    turn_id = prepared.request.turn_id
    await rewind(runtime, prepared.choice.session, LAST, prepared.redactor, held_for=turn_id)
    prepared.has_rewound = True


async def _leave_nothing(runtime: Runtime, prepared: Prepared) -> None:
    """What was made, or taken back, for a turn that was not admitted is as it was before."""
    if prepared.has_rewound:
        from mcode_exec.executor.rewinding import give_back

        try:
            await give_back(runtime, prepared.choice.session, prepared.request.turn_id, prepared.redactor)
        except McodeError:
            pass  # another turn runs there already; what was taken back is kept in `snapshots/`
    if prepared.choice.operation is not None:
        try:
            await submission.drop(runtime, prepared)
        except McodeError:
            pass  # the next start finds its manifest


async def _say_of_prompt(prompt: Prompt, sink: Sink) -> None:
    """What reading the prompt has changed of it, where no turn of this process begins with it."""
    for code, message in prompt.notices:
        await sink.event(Notice(code=code, message=message))


async def _say_passed(accepted: Accepted, sink: Sink) -> None:
    """What acceptance has changed: the session's archive, and its queue, when this turn did not wait for it."""
    session_id = accepted.receipt.session_id
    if accepted.session is not None and accepted.session.archived_ms is not None:
        await sink.event(
            Notice(code="session.unarchived", message=f"session {session_id} is not archived any more")
        )
    if accepted.cleared_items:
        cleared = f"{counted(accepted.cleared_items, 'item')} of the paused queue taken away"
        await sink.event(Notice(code="queue.cleared", message=cleared))
    if accepted.passed_items:
        why = "the queue is paused" if accepted.is_queue_paused else "no live process drains them"
        waiting = (
            f"{counted(accepted.passed_items, 'queued item')} passed over: {why}; "
            f"`mcode queue list {session_id}` shows them"
        )
        await sink.event(Notice(code="queue.passed", message=waiting))


async def _prepare(
    runtime: Runtime,
    invocation: Invocation,
    sink: Sink,
    deadline: _Deadline,
    delivery: Delivery | None,
    given: Input | None,
) -> Prepared:
    retry = None
    if invocation.retries:
        from mcode_exec.executor.retrying import begin_retry

        retry = await begin_retry(runtime, invocation)
    prepared = await prepare(runtime, invocation, sink, delivery, given, retry)
    deadline.start_configured(prepared.settings)
    return prepared


async def _hand_over(runtime: Runtime, invocation: Invocation, sink: Sink) -> tuple[Left | None, Input]:
    from mcode_exec.executor.steering import hand_over

    return await hand_over(runtime, invocation, sink)


class _Stopped(Exception):  # noqa: N818  a control signal of this module, not an error
    """An abort came before the turn was admitted."""


async def _abortable(work: Coroutine[Any, Any, T], abort: AbortScope) -> T:
    task: asyncio.Task[T] = asyncio.ensure_future(work)
    abort.bind(task)
    try:
        return await task
    except asyncio.CancelledError:
        if abort.is_tripped:
            raise _Stopped from None
        raise
    finally:
        abort.release()


class _Deadline:
    """Trips the scope when the run's wall-clock limit is reached, counted from the start of the process."""

    def __init__(self, runtime: Runtime, invocation: Invocation, sink: Sink, abort: AbortScope) -> None:
        self._runtime = runtime
        self._invocation = invocation
        self._sink = sink
        self._abort = abort
        self._timer: asyncio.TimerHandle | None = None
        self.limit: LimitHit | None = None
        #: the second of the monotonic clock at which it is reached
        self.at_s: float | None = None
        if invocation.timeout_s is not None:
            self._start(invocation.timeout_s, TIMEOUT_FLAG)

    def start_configured(self, settings: Settings) -> None:
        """The limit of the configuration, where no flag gave one."""
        if self._timer is None and settings.timeout_s is not None:
            self._start(settings.timeout_s, settings.timeout_source)

    def _start(self, timeout_s: float, source: str) -> None:
        self.limit = timeout_hit(timeout_s, source)
        at_s = self.at_s = self._invocation.started_monotonic_s + timeout_s
        self._sink.give_up_at(at_s + READER_GRACE_S)
        left_s = at_s - self._runtime.clock.monotonic_s()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, left_s), self._trip, "deadline")

    def _trip(self, reason: AbortReason) -> None:
        self._abort.trip(reason)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _elapsed_ms(runtime: Runtime, invocation: Invocation) -> int:
    return int((runtime.clock.monotonic_s() - invocation.started_monotonic_s) * 1000)


def _replayed(admission: Replayed, invocation: Invocation) -> Result:
    """The stored result of the same request, under this run's id."""
    from msgspec import structs

    receipt = admission.receipt
    if receipt.result is None:
        raise SessionError(
            f"request {receipt.request_id!r} was answered, but its result is not in the store any more"
        )
    stored = decode_result(receipt.result)
    return structs.replace(stored, run_id=invocation.run_id, replayed=True)
