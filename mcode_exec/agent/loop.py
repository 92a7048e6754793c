"""The loop: ask the model, commit what it says, run what it asks for, until it answers.

Nothing of a call counts before its terminal event: deltas are shown, only the
answer is committed, and only committed calls run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from mcode_exec.agent.checking import AnswerCheck
from mcode_exec.agent.limits import check_before_call, check_spending, output_cap
from mcode_exec.agent.loop_guard import LoopGuard
from mcode_exec.agent.ports import AgentTask, Callee, Ports, Steer
from mcode_exec.agent.turn_state import TurnState
from mcode_exec.errors import McodeError, ModelCallError
from mcode_exec.ids import new_message_id
from mcode_exec.records.frame import AttemptVoided, BlockDelta, CallRetrying, ModelChanged, Said
from mcode_exec.records.history import (
    HistoryRecord,
    Message,
    StepMeta,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from mcode_exec.records.model import (
    Answer,
    AttemptDiscarded,
    CallCutOff,
    EffortLeftOut,
    ModelFact,
    ModelRequest,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
)
from mcode_exec.records.permission import Need
from mcode_exec.records.result import ModelSwitch
from mcode_exec.records.usage import Usage

if TYPE_CHECKING:
    from mcode_exec.permissions.judge import Judge

MAX_CONTINUATIONS = 3  # times an answer cut off by the output limit is continued

_GO_ON = "Your answer was cut off by the output limit. Go on exactly where it stopped; repeat nothing."
_CUT_CALLS = (
    "not run: the answer was cut off by the output limit while it asked for this. "
    "Ask again with less in one call (write large files in several parts)."
)


class AgentLoop:
    """One turn of the agent."""

    def __init__(
        self,
        *,
        task: AgentTask,
        ports: Ports,
        judge: Callable[[], Judge],
        state: TurnState,
        messages: Sequence[Message],
    ) -> None:
        self._task = task
        self._ports = ports
        self._judge = judge
        self._state = state
        self._messages = list(messages)
        self._guard = self._new_guard()
        self._check = None if task.check is None else AnswerCheck(task.check, ports, state)
        #: pieces of an answer that the output limit cut into several
        self._pieces: list[str] = []
        self._message_id = ""
        #: pieces of text of the call that is running, and whether they say anything yet
        self._streamed: list[str] = []
        self._has_said = False
        #: what a call that was cancelled may be billed for
        self._cut_off: tuple[Usage, ...] = ()
        #: whose effort was said to be left out
        self._told_of: Callee | None = None
        #: text of the newest committed step that said something
        self._committed_text: str | None = None

    async def run(self) -> None:
        """Run until the model has answered and the answer stands its check; `state.answer` is set then.

        Raises: ModelCallError, LimitReachedError, TurnFailedError, and what commits raise.
        """
        await self._answer()
        while self._check is not None and (failed := await self._check.run()) is not None:
            await self._commit_note(failed)
            if self._check.failure is not None:
                raise self._check.failure
            self._state.answer = None
            self._guard = self._new_guard()  # calls that come again have a reason now
            await self._answer()

    def _new_guard(self) -> LoopGuard:
        return LoopGuard(is_allowed=lambda: _allows_loops(self._judge()))

    async def _answer(self) -> None:
        continuations = 0
        asked_again = False
        while True:
            if not self._pieces:  # an answer that is cut into pieces is not interrupted
                await self._take(self._ports.steering())
            answer = await self._ask()
            calls = [block for block in answer.content if isinstance(block, ToolCallBlock)]
            text = _text_of(answer)
            was_cut = answer.finish_reason == "length"
            if was_cut:
                continuations += 1
                if continuations > MAX_CONTINUATIONS:
                    raise self._truncated()
            if answer.finish_reason == "refusal":
                raise ModelCallError("LLM_CONTENT_REFUSED", text or "the model refused to answer")
            if calls:
                await self._run_calls(answer, calls, refused=_CUT_CALLS if was_cut else None)
                self._pieces.clear()
                continuations = continuations if was_cut else 0
            elif was_cut:
                self._pieces.append(text)
                await self._commit_note(_GO_ON)
            elif text.strip() or any(piece.strip() for piece in self._pieces):
                if await self._holds_close():
                    self._pieces.clear()
                    continue
                self._state.answer = "".join((*self._pieces, text))
                self._pieces.clear()  # what comes next, if the turn goes on, is another answer
                return
            elif not asked_again:
                asked_again = True
            else:
                self._answer_from_earlier_text()
                return

    async def _holds_close(self) -> bool:
        """Take what machines have said meanwhile: it has no other turn to go to.  A person's words have the queue."""
        steers = self._ports.steering()
        if not any(steer.is_machine for steer in steers):
            return False
        await self._take(steers)
        return True

    async def _take(self, steers: Sequence[Steer]) -> None:
        """Make what was said part of the conversation, before the next call."""
        for steer in steers:
            message = Message(role="user", content=(TextBlock(text=steer.text),))
            await self._ports.commit(
                HistoryRecord(
                    id=steer.message_id,
                    turn_id=self._task.turn_id,
                    at_ms=self._ports.now_ms(),
                    message=message,
                    steered_by=steer.producer,
                )
            )
            self._messages.append(message)

    async def take_all(self) -> None:
        """What was said to a turn that is being stopped becomes part of its conversation."""
        await self._take(self._ports.steering())

    async def _ask(self) -> Answer:
        state, ports = self._state, self._ports
        check_before_call(self._task.limits, state)
        state.steps += 1
        ports.progress(step=state.steps, tool=None, phase="model")
        answer = await self._call()
        while answer is None:  # by a model that others go on for
            check_spending(self._task.limits, state)
            answer = await self._call()
        await self._commit_answer(answer)
        return answer

    async def _call(self) -> Answer | None:
        """One call of the model in use, with its retries; None where it failed and a fallback is in use now."""
        budget = self._state.budget
        if budget is None:
            return await self._complete()
        async with budget.call():
            check_spending(self._task.limits, self._state)
            return await self._complete()

    async def _complete(self) -> Answer | None:
        state = self._state
        self._begin_message()
        self._cut_off = ()
        request = ModelRequest(
            model=self._task.model,
            system=self._task.system,
            tools=self._task.tools,
            messages=tuple(self._messages),
            max_output_tokens=output_cap(self._task.limits, state, self._task.model),
            effort=self._task.callee.effort,
            cache_key=self._task.cache_key,
        )
        started_s = time.monotonic()
        try:
            return await self._ports.complete(
                request, self._on_fact, may_be_empty=state.latest_text is not None
            )
        except ModelCallError as error:
            state.api_duration_ms += round((time.monotonic() - started_s) * 1000)
            await self._keep_failed(error.details.get("failed_usage", ()))
            if not self._switch(error):
                if state.switches:  # who is asked has changed since the run began
                    error.args = (f"{self._task.model.ref}: {error.message}",)
                raise
            return None
        except asyncio.CancelledError:
            state.api_duration_ms += round((time.monotonic() - started_s) * 1000)
            await self._keep_cut_off()
            raise

    def _begin_message(self) -> None:
        self._message_id, self._streamed, self._has_said = new_message_id(), [], False

    def _switch(self, error: ModelCallError) -> bool:
        """Go on with the next fallback, for the rest of the turn; False where there is none, or it could not help."""
        task = self._task
        if not task.fallbacks or not error.is_retried:
            return False
        callee = task.fallbacks[0]
        switch = ModelSwitch(
            from_model=task.model.ref, to_model=callee.model.ref, step=self._state.steps, code=error.code
        )
        self._task = structs.replace(
            task,
            callee=callee,
            fallbacks=task.fallbacks[1:],
            tools=task.tools if callee.model.takes_tools else (),
        )
        self._ports.use(callee)
        self._state.switches.append(switch)
        if self._streamed:
            self._ports.emit(AttemptVoided(self._message_id, "another model is asked"))
            self._state.latest_text = self._committed_text
        self._ports.emit(ModelChanged(switch, error.message))
        return True

    async def _keep_failed(self, usages: tuple[Usage, ...]) -> None:
        """A call that gave no answer may have been billed all the same."""
        self._state.add_failed(usages, self._task.model.price)
        if usages:
            await self._ports.add_failed(self._message_id, usages)

    async def _keep_cut_off(self) -> None:
        """A call that we cut off may be billed as well; one that waited for its next attempt is not."""
        try:
            await self._keep_failed(self._cut_off)
        except McodeError:
            pass  # the turn is ending; a store that fails is met again when it is settled

    def _on_fact(self, fact: ModelFact) -> None:
        emit = self._ports.emit
        if isinstance(fact, TextDelta):
            self._streamed.append(fact.text)
            if self._has_said:
                self._state.add_latest(fact.text)
            elif fact.text.strip():
                self._has_said = True
                self._state.latest_text = "".join((*self._pieces, *self._streamed))
            emit(BlockDelta(self._message_id, fact.index, "agent_message", fact.text))
        elif isinstance(fact, ThinkingDelta):
            emit(BlockDelta(self._message_id, fact.index, "reasoning", fact.text))
        elif isinstance(fact, AttemptDiscarded):
            emit(AttemptVoided(self._message_id, fact.reason))
            self._begin_message()
            self._state.latest_text = self._committed_text
        elif isinstance(fact, RetryScheduled):
            self._state.retries += 1
            emit(CallRetrying(fact.attempt, fact.max_retries, fact.delay_ms, fact.code, fact.reason))
        elif isinstance(fact, CallCutOff):
            self._cut_off = fact.usage
        elif isinstance(fact, EffortLeftOut) and self._told_of != self._task.callee:
            callee = self._told_of = self._task.callee
            said = f"effort {callee.effort!r} is left out for {callee.model.ref}: {fact.reason}"
            emit(Said("effort.left-out", said))

    async def _commit_answer(self, answer: Answer) -> None:
        state, task = self._state, self._task
        price = task.model.price
        cost = price.cost_usd(answer.usage) if price else None
        state.add_answer(answer.usage, cost, answer.failed_usage, price)
        state.api_duration_ms += answer.duration_ms
        state.finish_reason = answer.finish_reason
        text = _text_of(answer)
        if text.strip():
            state.latest_text = self._committed_text = "".join((*self._pieces, text))
        ref = task.model.ref
        message = Message(role="assistant", content=answer.content)
        await self._ports.commit(
            HistoryRecord(
                id=self._message_id,
                turn_id=task.turn_id,
                at_ms=self._ports.now_ms(),
                message=message,
                meta=StepMeta(
                    provider_id=ref.provider_id,
                    model_id=ref.model_id,
                    variant=ref.variant,
                    agent=task.agent,
                    step=state.steps,
                    finish_reason=answer.finish_reason,
                    usage=answer.usage,
                    cost_usd=None if cost is None else format(cost, "f"),
                    duration_ms=answer.duration_ms,
                    request_id=answer.request_id,
                ),
            ),
            failed=answer.failed_usage,
        )
        if any(not isinstance(block, ThinkingBlock) for block in answer.content):
            self._messages.append(message)

    async def _run_calls(
        self, answer: Answer, calls: Sequence[ToolCallBlock], *, refused: str | None
    ) -> None:
        from mcode_exec.agent.tool_calls import StepCalls

        step = StepCalls(
            task=self._task,
            ports=self._ports,
            judge=self._judge(),
            guard=self._guard,
            state=self._state,
            message_id=self._message_id,
            content_index={
                block.id: index
                for index, block in enumerate(answer.content)
                if isinstance(block, ToolCallBlock)
            },
        )
        self._messages.append(await step.run(calls, refused=refused))
        self._guard.step_was_broken(all(call.broken_arguments is not None for call in calls))
        self._guard.check()

    async def _commit_note(self, text: str) -> None:
        """A user message of mcode's own, so that the model goes on."""
        message = Message(role="user", content=(TextBlock(text=text, synthetic=True),))
        await self._ports.commit(
            HistoryRecord(
                id=new_message_id(), turn_id=self._task.turn_id, at_ms=self._ports.now_ms(), message=message
            )
        )
        self._messages.append(message)

    def _truncated(self) -> ModelCallError:
        return ModelCallError(
            "LLM_OUTPUT_TRUNCATED",
            f"the answer was cut off by the output limit {MAX_CONTINUATIONS + 1} times "
            f"(the model writes at most {self._task.model.output_tokens} tokens at once); "
            "ask for less in one turn or raise the model's `output` in the config",
        )

    def _answer_from_earlier_text(self) -> None:
        self._state.answer = self._state.latest_text or ""
        self._ports.emit(
            Said(
                "answer.earlier-text", "the last step said nothing; the answer is the text of an earlier step"
            )
        )


def _text_of(answer: Answer) -> str:
    return "".join(block.text for block in answer.content if isinstance(block, TextBlock))


def _allows_loops(judge: Judge) -> bool:
    """Only a rule that somebody wrote allows loops; a preset never does."""
    decision = judge.judge((Need(permission="doom_loop", subject="doom_loop"),))
    return (
        decision.verdict == "allow"
        and decision.rule is not None
        and not decision.rule.source.startswith("preset")
    )
