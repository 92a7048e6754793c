"""Submitting a prepared turn, until it is accepted, answered or left to somebody else.

A rejection becomes the error that tells the caller who holds the session, or
what `--when-busy` makes of it; a request that runs elsewhere is waited for
while it goes on.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct, structs

from mcode_exec.abort import AbortScope
from mcode_exec.errors import (
    BusyError,
    InvocationError,
    SessionDeletingError,
    SessionError,
    TurnFailedError,
)
from mcode_exec.executor.outcome import cancelled_before_turn
from mcode_exec.executor.preparation import Prepared
from mcode_exec.output.sink import Sink
from mcode_exec.records.event import Notice
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.result import Result
from mcode_exec.records.turn import (
    Accepted,
    Admission,
    HandedOver,
    Holder,
    Rejected,
    RejectionReason,
    Replayed,
    TurnRequest,
)
from mcode_exec.sessions import finding, making
from mcode_exec.store import turn_rows
from mcode_exec.turns.admission import admit
from mcode_exec.turns.lease import is_held

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_POLL_S = 0.25  # between two looks at a request that runs elsewhere

#: the session is somebody else's now, and will be free again; and what that is called
BUSY: dict[RejectionReason, str] = {
    "active-turn": "session_busy",
    "compaction-active": "session_compacting",
    "session-mutating": "session_mutating",
    "priority-blocked": "session_has_queued_messages",
}


class Left(Struct, frozen=True, kw_only=True):
    """No turn of this process: what became of the prompt instead."""

    result: Result


async def submit(
    runtime: Runtime, prepared: Prepared, invocation: Invocation, sink: Sink, abort: AbortScope
) -> Accepted | Replayed | Left:
    """Ask for the turn.

    Raises: BusyError, SessionError, InvocationError for a rejection.
    """
    request = prepared.request
    until_s = runtime.clock.monotonic_s() + invocation.wait_timeout_s
    is_told = False
    while True:
        admission = await _ask(runtime, prepared, invocation, request, sink)
        if isinstance(admission, Accepted | Left):
            return admission
        if isinstance(admission, HandedOver):
            from mcode_exec.executor.steering import answer_handed_over

            return await answer_handed_over(runtime, admission.signal, invocation, sink)
        await _drop_new_session(runtime, prepared, admission)
        if isinstance(admission, Replayed):
            return admission
        if admission.reason == "aborted" and request.claim_token is None:
            return Left(result=cancelled_before_turn(invocation, request.session_id, request.turn_id))
        if admission.reason in BUSY:
            answer = await _busy(runtime, prepared, invocation, sink, abort, admission)
            if answer is not None:
                return answer
            reject(admission, request)
        if admission.reason != "request-running":
            reject(admission, request)
        if runtime.clock.monotonic_s() >= until_s:
            raise BusyError(
                f"request {request.request_id!r} is still running after {invocation.wait_timeout_s:g} s; "
                "try again later",
            )
        if not is_told:
            is_told = True
            who = "elsewhere" if admission.holder is None else f"already: {holder_line(admission.holder)}"
            message = f"request {request.request_id!r} runs {who}; waiting for its result"
            await sink.event(Notice(code="request.running", message=message))
        request = await _wait(runtime, admission, request, until_s)
        await _go_to(runtime, prepared, request.session_id)


async def _ask(
    runtime: Runtime, prepared: Prepared, invocation: Invocation, request: TurnRequest, sink: Sink
) -> Admission | Left:
    if invocation.when_busy == "steer":
        from mcode_exec.executor.steering import steer_or_admit

        return await steer_or_admit(runtime, prepared, invocation, request, sink)
    return await admit(runtime.store, runtime.owner, request, runtime.clock, policies=prepared.policies)


async def _busy(
    runtime: Runtime,
    prepared: Prepared,
    invocation: Invocation,
    sink: Sink,
    abort: AbortScope,
    rejected: Rejected,
) -> Accepted | Replayed | Left | None:
    """What `--when-busy` makes of a busy session; None: an error."""
    if invocation.when_busy == "wait":
        from mcode_exec.executor.waiting import stand_in_line

        return await stand_in_line(runtime, prepared, invocation, sink, abort)
    if invocation.when_busy == "queue":
        from mcode_exec.executor.queueing import leave_in_queue

        return Left(result=await leave_in_queue(runtime, prepared, invocation))
    return None


async def _drop_new_session(runtime: Runtime, prepared: Prepared, admission: Rejected | Replayed) -> None:
    """A session made for a request that turned out to be known leaves no trace."""
    if prepared.choice.is_new and not prepared.is_dropped:
        session_id = prepared.choice.session.id
        if admission.receipt is not None and admission.receipt.session_id != session_id:
            await drop(runtime, prepared)


async def drop(runtime: Runtime, prepared: Prepared) -> None:
    """Take away the session that was made for a turn which was not admitted."""
    if not prepared.choice.is_new or prepared.is_dropped:
        return
    prepared.is_dropped = True
    operation = prepared.choice.operation
    if operation is None:
        await making.drop_unused(runtime.store, prepared.choice.session.id)
    else:
        from mcode_exec.executor import forking

        await forking.undo(runtime, operation)


async def _go_to(runtime: Runtime, prepared: Prepared, session_id: str) -> None:
    """The request is known in another session than the one made for it: that one goes on."""
    if prepared.choice.session.id != session_id:
        session = await finding.find_exact(runtime.store, session_id)
        prepared.choice = structs.replace(prepared.choice, session=session, is_new=False)


async def _wait(runtime: Runtime, admission: Rejected, request: TurnRequest, until_s: float) -> TurnRequest:
    """Until the running attempt has ended, its process or its lease has, or it is time; the request to submit then."""
    receipt = admission.receipt
    assert receipt is not None
    while True:
        await asyncio.sleep(_POLL_S)
        now, lock = await runtime.store.read(
            lambda: (turn_rows.find_receipt(receipt.turn_id), turn_rows.find_lock(receipt.session_id))
        )
        is_over = now is None or now.settled_ms is not None or runtime.clock.monotonic_s() >= until_s
        if is_over or lock is None or not is_held(lock, runtime.owner, runtime.clock):
            return structs.replace(request, session_id=receipt.session_id)


def reject(rejected: Rejected, request: TurnRequest) -> NoReturn:
    """Raise what a rejection says to the caller."""
    session_id = request.session_id
    if rejected.reason == "item-gone":  # its claim had run out, or it was taken back
        raise BusyError(f"the item is not this process's to run any more; session {session_id} goes on")
    if rejected.reason == "invalid-session":
        raise SessionError(f"there is no session {session_id} that could run")
    if rejected.reason == "ingress-conflict":
        raise SessionError(
            f"request id {request.request_id!r} was used before with another input; use a new id",
            code="turn_ingress_conflict",
        )
    if rejected.reason == "deleting":
        raise SessionDeletingError(session_id)
    if rejected.reason == "aborted":
        raise TurnFailedError("the turn did not finish: it was aborted before it began", code="TURN_ABORTED")
    if rejected.reason == "policy":
        raise SessionError(f"the turn was refused: {rejected.detail}", code="turn_refused")
    if rejected.reason not in BUSY:
        raise InvocationError(f"the turn was refused: {rejected.reason}")
    if rejected.holder is not None:
        who = holder_line(rejected.holder)
    elif rejected.reason == "session-mutating":
        who = "it is being changed, or what a process that died left of that is not cleared up yet"
    else:
        who = "earlier prompts stand in its line"
    look = f"queue list {session_id}" if rejected.holder is None else f"sessions watch {session_id}"
    waits = "" if request.source == "retry" else "--when-busy wait waits for it, "
    raise BusyError(
        f"session {session_id} is busy: {who}; `mcode {look}` shows it, "
        f"{waits}and the same command works when it has ended",
        code=BUSY[rejected.reason],
    )


def holder_line(holder: Holder) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(holder.acquired_ms // 1000))
    what = f"turn {holder.turn_id}" if holder.turn_id else f"a {holder.kind}"
    return f"{what} has run since {since} UTC (process {holder.pid} on {holder.host})"
