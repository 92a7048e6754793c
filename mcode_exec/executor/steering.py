"""Words for a session that may be busy: to the turn that runs in it, else a turn of this process.

`mcode steer` and `exec --when-busy steer`.  Looking and handing over is one
transaction, being admitted another; between the two a turn may begin or end,
so that they are tried in turn until one of them holds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcode_exec.errors import BusyError, McodeError, SessionError
from mcode_exec.executor.delivery import payload_of
from mcode_exec.executor.outcome import steered_into
from mcode_exec.executor.preparation import Prepared
from mcode_exec.executor.prompt import Prompt
from mcode_exec.executor.submission import BUSY, Left, holder_line
from mcode_exec.executor.turn_plan import Input, read_input
from mcode_exec.output.sink import Sink
from mcode_exec.records.event import Notice
from mcode_exec.records.invocation import Invocation, SteerFlags
from mcode_exec.records.queue import Origin, QueuePayload
from mcode_exec.records.signal import TurnSignal
from mcode_exec.records.turn import Admission, Holder, Rejected, RejectionReason, TurnRequest
from mcode_exec.sessions import finding
from mcode_exec.turns import steering as steers
from mcode_exec.turns.admission import admit
from mcode_exec.turns.requests import session_scope
from mcode_exec.turns.steering import Steered, is_known, steer
from mcode_exec.turns.words import text_of

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

TRIES = 40  # of both doors, before somebody who comes later is told to
AGAIN_S = 0.05  # between two of them
#: a turn began, or is about to, between our look and our submission
_TURN_CAME: tuple[RejectionReason, ...] = ("active-turn", "priority-blocked", "policy")

_MODEL_FLAGS = {
    "model": "--model",
    "fallback_models": "--fallback-model",
    "effort": "--effort",
    "agent": "--agent",
}
#: what a running turn has had from the one who began it
_KEPT_FLAGS = {
    "permission": "--permission",
    "rules": "--allow and --deny",
    "env": "--env",
    "tools": "--tools",
    "system_prompt_file": "--system-prompt-file",
    "append_system_prompt": "--append-system-prompt",
    "no_project_instructions": "--no-project-instructions",
    "timeout_s": "--timeout",
    "max_steps": "--max-steps",
    "max_cost_usd": "--max-cost",
    "max_tokens": "--max-tokens",
    "check": "--check",
    "title": "--title",
    "labels": "--label",
    "drains": "--drain",
    "record": "--record",
}
#: those whose value is their absence
_DEFAULTS = {"on_ask": ("--on-ask", "fail"), "paused_queue": ("--paused-queue", "keep")}  # fmt: skip


async def hand_over(runtime: Runtime, invocation: Invocation, sink: Sink) -> tuple[Left | None, Input]:
    """`mcode steer` to a turn that runs, which needs no model, key or workspace; and what was read.

    Raises: SessionError, BusyError, InvocationError.
    """
    assert invocation.session is not None
    given = await read_input(invocation)
    found = await finding.find_named(runtime.store, invocation.session)
    await sink.session_known(found.session.id)
    scope = session_scope(found.session.id)
    return await _try(runtime, invocation, sink, found.session.id, given.prompt, scope), given


async def steer_or_admit(
    runtime: Runtime, prepared: Prepared, invocation: Invocation, request: TurnRequest, sink: Sink
) -> Admission | Left:
    """Hand the words to the turn that runs in the session, or be admitted where none does."""
    flags = _flags_of(invocation)
    key = flags.idempotency_key

    def with_a_turn(_: TurnRequest) -> str | None:
        return "a turn has these words" if key and is_known(request.session_id, flags.producer, key) else None

    is_last = False
    for number in range(TRIES):
        left = await _try(
            runtime, invocation, sink, request.session_id, prepared.prompt, request.request_scope
        )
        if left is not None:
            return left
        is_last = number == TRIES - 1
        admission = await admit(runtime.store, runtime.owner, request, runtime.clock, policies=(with_a_turn,))
        came = isinstance(admission, Rejected) and (
            admission.reason in _TURN_CAME
            or (admission.reason == "request-running" and invocation.steering is not None)
        )
        if not came or is_last:
            return admission
        await asyncio.sleep(AGAIN_S)
    raise AssertionError("the last try answers")


async def _try(
    runtime: Runtime, invocation: Invocation, sink: Sink, session_id: str, prompt: Prompt, scope: str | None
) -> Left | None:
    """The words are with a turn now, or were before; None where no turn runs that could take them.

    Raises: BusyError where the session is held by something else; SessionError for what a turn cannot take.
    """
    flags = _flags_of(invocation)
    request = None
    if invocation.request_id is not None and scope is not None:
        request = (scope, invocation.request_id, prompt.digest())
    steered = await steer(
        runtime.store,
        runtime.owner,
        session_id,
        text_of(prompt.content),
        runtime.clock,
        producer=flags.producer,
        idempotency_key=flags.idempotency_key,
        key_name="request id" if invocation.steering is None else "idempotency key",
        is_machine=flags.is_machine,
        request=request,
        origin=_origin(invocation, prompt, scope),
        refusal=_refusal(invocation, prompt, session_id),
    )
    if steered.holder is not None:
        raise held_by_other(session_id, steered.holder)
    turn_id, is_replayed = None, True
    if steered.signal is not None:
        turn_id, is_replayed = steered.signal.turn_id, steered.is_duplicate
    elif _runs_with_them(steered, invocation):
        assert steered.receipt is not None
        turn_id = steered.receipt.turn_id
    if turn_id is None:
        return None
    sink.bind(turn_id=turn_id)
    if steered.signal is not None and steered.is_duplicate:
        await _say_where(runtime, steered.signal, sink)
    if kept := kept_notice(invocation):
        await sink.event(Notice(code="steer.flags", message=kept))
    return Left(result=steered_into(invocation, session_id, turn_id, is_replayed=is_replayed))


async def answer_handed_over(
    runtime: Runtime, signal: TurnSignal, invocation: Invocation, sink: Sink
) -> Left:
    """The answer to a request whose words were handed to a running turn before: they are not said twice."""
    await _say_where(runtime, signal, sink)
    return Left(result=steered_into(invocation, signal.session_id, signal.turn_id, is_replayed=True))


async def _say_where(runtime: Runtime, signal: TurnSignal, sink: Sink) -> None:
    """What became of words that a turn had not taken when it ended."""
    item_id = signal.item_id
    if item_id is None:
        return
    ran = await runtime.store.read(lambda: steers.ran_as(signal))
    now = f"wait in the queue as {item_id}" if ran is None else f"became {item_id}, which began turn {ran}"
    message = f"turn {signal.turn_id} ended before it took these words: they {now}"
    await sink.event(Notice(code="steer.queued", message=message))


def _origin(invocation: Invocation, prompt: Prompt, scope: str | None) -> Origin:
    """What the words become if the turn ends without them: an item with all that was said with them."""
    return Origin(
        payload=payload_of(invocation, prompt.content, scope),
        digest=prompt.digest(),
        dedupe_key=invocation.request_id,
    )


def _runs_with_them(steered: Steered, invocation: Invocation) -> bool:
    """Whether the running turn was begun with these words; `exec` waits for its own request instead."""
    begun = steered.receipt
    return begun is not None and begun.settled_ms is None and invocation.steering is not None


def _flags_of(invocation: Invocation) -> SteerFlags:
    """What `exec` says as a steer: its request id is the key."""
    return invocation.steering or SteerFlags(idempotency_key=invocation.request_id)


def _given(flags: Invocation | QueuePayload, names: dict[str, str]) -> list[str]:
    return [flag for name, flag in names.items() if getattr(flags, name, None) not in (None, False, ())]


def _refusal(invocation: Invocation, prompt: Prompt, session_id: str) -> McodeError | None:
    """What a running turn cannot take."""
    instead = (
        "wait for it (`mcode exec --when-busy wait`), queue this (`mcode queue add`), or give the words alone"
    )
    if overrides := _given(invocation, _MODEL_FLAGS):
        return SessionError(
            f"a turn runs in session {session_id} and keeps its model, {' and '.join(overrides)} cannot "
            f"change it: {instead}",
            code="active-model-override-unsupported",
        )
    if prompt.attachments:
        return SessionError(
            f"a turn runs in session {session_id}, and a running turn takes no attachments: {instead}",
            code="steer-attachments-unsupported",
        )
    return None


def kept_notice(flags: Invocation | QueuePayload) -> str | None:
    """What of somebody's flags a running turn does not take, in one sentence."""
    kept = _given(flags, _KEPT_FLAGS)
    kept += [flag for name, (flag, absent) in _DEFAULTS.items() if getattr(flags, name, absent) != absent]
    return f"the running turn keeps what it began with: {', '.join(kept)} changed nothing" if kept else None


def held_by_other(session_id: str, holder: Holder) -> BusyError:
    """A session is held by something that takes no words."""
    reason: RejectionReason = "compaction-active" if holder.kind == "compaction" else "session-mutating"
    return BusyError(
        f"session {session_id} is busy: {holder_line(holder)}; try again when it has ended", code=BUSY[reason]
    )
