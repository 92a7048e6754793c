"""The tool calls of one step: judged, run, and each given exactly one committed result.

Read-only calls that stand side by side run side by side, others one after the
other.  A failure, a denial and an unknown tool are results that the model can
act on.  When the turn is aborted, calls without a result get one that says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from mcode_exec.agent.loop_guard import LoopGuard
from mcode_exec.agent.ports import AgentTask, Ports
from mcode_exec.agent.turn_state import TurnState
from mcode_exec.ids import new_message_id
from mcode_exec.records.frame import Denied, ToolRunning
from mcode_exec.records.history import Block, HistoryRecord, Message, ToolCallBlock, ToolResultBlock
from mcode_exec.records.permission import Decision
from mcode_exec.records.result import PermissionDenial
from mcode_exec.records.result import ToolFailure as FailedCall
from mcode_exec.tools import registry
from mcode_exec.tools.failure import ToolFailure

if TYPE_CHECKING:
    from mcode_exec.permissions.judge import Judge

_NO_OBJECT = "the arguments are no JSON object, so nothing was run; send them again as one valid JSON object"
_UNREPRESENTABLE = (
    "the arguments hold a NUL character or half a surrogate pair, which cannot be passed on, so nothing was run;"
    " give it as an escape sequence of the language, or let a command produce it"
)

_MAX_PATTERN = 1000  # characters of what was denied that a denial repeats
_CUT_OFF = "aborted: the run was stopped before this finished; its effects may remain"
_NOT_BEGUN = "not run: the run was stopped before this was started; it has changed nothing"


class StepCalls:
    """Runs the calls of one committed assistant message."""

    def __init__(
        self,
        *,
        task: AgentTask,
        ports: Ports,
        judge: Judge,
        guard: LoopGuard,
        state: TurnState,
        message_id: str,
        content_index: dict[str, int],
    ) -> None:
        self._task = task
        self._ports = ports
        self._judge = judge
        self._guard = guard
        self._state = state
        self._message_id = message_id
        self._index = content_index
        #: each finished call's result and the images it brought
        self._results: dict[str, tuple[Block, ...]] = {}
        #: ids of the calls that have been begun
        self._begun: set[str] = set()
        self._offered = {tool.name for tool in task.tools}

    async def run(self, calls: Sequence[ToolCallBlock], *, refused: str | None = None) -> Message:
        """Run `calls` in order; the tool message with their results, in the order of the calls.

        `refused`: run none of them, and give this as each one's result.
        """
        try:
            if refused is not None:
                for call in calls:
                    await self._finish(call, _failure(call, refused))
            else:
                for batch in _batches(calls):
                    if len(batch) == 1:
                        await self._run_one(batch[0])
                    else:
                        await self._side_by_side(batch)
        except asyncio.CancelledError:
            await self._interrupt(calls)
            raise
        return Message(
            role="tool", content=tuple(block for call in calls for block in self._results[call.id])
        )

    async def _side_by_side(self, batch: Sequence[ToolCallBlock]) -> None:
        tasks = [asyncio.ensure_future(self._run_one(call)) for call in batch]
        try:
            await asyncio.gather(*tasks)
        finally:
            # One that could not be committed ends the turn: the others must not run on behind it.
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _run_one(self, call: ToolCallBlock) -> None:
        images: tuple[Block, ...] = ()
        result = self._unusable(call) or self._denied(call)
        if result is None:
            self._begun.add(call.id)
            self._ports.emit(
                ToolRunning(self._message_id, self._index[call.id], call.id, call.name, call.arguments)
            )
            self._ports.progress(step=self._state.steps, tool=call.name, phase="tool")
            started = time.monotonic()
            outcome = await self._ports.run_tool(call)
            result = ToolResultBlock(
                call_id=call.id,
                name=call.name,
                content=outcome.content or "(no output)",
                is_error=outcome.is_error,
                status="error" if outcome.is_error else "completed",
                duration_ms=int((time.monotonic() - started) * 1000),
                metadata={**outcome.metadata, "title": outcome.title} if outcome.title else outcome.metadata,
            )
            images = tuple([await self._ports.keep_image(mime, data) for mime, data in outcome.images])
        await self._finish(call, result, images)

    def _unusable(self, call: ToolCallBlock) -> ToolResultBlock | None:
        if call.name not in self._offered and not self._is_hidden(call.name):
            known = ", ".join(sorted(self._offered)) or "none"
            return _failure(call, f"there is no tool {call.name!r} here; the tools are: {known}")
        if call.broken_arguments is not None:
            return _failure(call, _UNREPRESENTABLE if call.arguments else _NO_OBJECT)
        problem = registry.check_arguments(call.name, call.arguments)
        return _failure(call, problem) if problem is not None else None

    def _is_hidden(self, name: str) -> bool:
        """Whether the tool is one of the turn's, only not offered because a rule denies all that it does."""
        return name in self._task.hidden_tools

    def _denied(self, call: ToolCallBlock) -> ToolResultBlock | None:
        context = self._ports.tool_context(call.id)
        try:
            needs = registry.needs(call.name, call.arguments, context.workspace)
        except ToolFailure as failure:
            return _failure(call, str(failure))
        decision = self._judge.judge(needs)
        if decision.verdict == "allow":
            return None
        denial = _denial(call.name, decision)
        self._state.denials.append(denial)
        self._ports.emit(Denied(denial))
        return ToolResultBlock(
            call_id=call.id,
            name=call.name,
            content=f"denied, not run: {decision.reason}",
            is_error=True,
            status="denied",
            metadata={
                "verdict": decision.verdict,
                "permission": decision.permission,
                "pattern": _shortened(decision.pattern),
            },
        )

    async def _finish(
        self, call: ToolCallBlock, result: ToolResultBlock, images: tuple[Block, ...] = ()
    ) -> None:
        reminder = self._guard.seen(call.name, call.arguments, result.content)
        if reminder:
            result = structs.replace(result, content=result.content + reminder)
        await self._commit(call, result, images)

    async def _commit(
        self, call: ToolCallBlock, result: ToolResultBlock, images: tuple[Block, ...] = ()
    ) -> None:
        self._results[call.id] = (result, *images)
        self._state.tool_calls += 1
        if result.is_error and result.status == "error":
            self._state.tool_failures.append(
                FailedCall(tool=call.name, call_id=call.id, message=result.content[:500])
            )
        await self._ports.commit(
            HistoryRecord(
                id=new_message_id(),
                turn_id=self._task.turn_id,
                at_ms=self._ports.now_ms(),
                message=Message(role="tool", content=(result, *images)),
            )
        )

    async def _interrupt(self, calls: Sequence[ToolCallBlock]) -> None:
        for call in calls:
            if call.id not in self._results:
                result = ToolResultBlock(
                    call_id=call.id,
                    name=call.name,
                    content=_CUT_OFF if call.id in self._begun else _NOT_BEGUN,
                    is_error=True,
                    status="interrupted",
                )
                await self._commit(call, result)


def _failure(call: ToolCallBlock, message: str) -> ToolResultBlock:
    return ToolResultBlock(call_id=call.id, name=call.name, content=message, is_error=True, status="error")


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_PATTERN else text[: _MAX_PATTERN - 1] + "…"


def _denial(tool: str, decision: Decision) -> PermissionDenial:
    return PermissionDenial(
        tool=tool,
        permission=decision.permission,
        pattern=_shortened(decision.pattern),
        rule=str(decision.rule) if decision.rule is not None else None,
        verdict="ask" if decision.verdict == "ask" else "deny",
        reason=decision.reason,
    )


def _batches(calls: Sequence[ToolCallBlock]) -> list[list[ToolCallBlock]]:
    """Neighbouring read-only calls together, every other call alone."""
    batches: list[list[ToolCallBlock]] = []
    is_open = False
    for call in calls:
        read_only = registry.is_read_only(call.name)
        if read_only and is_open:
            batches[-1].append(call)
        else:
            batches.append([call])
        is_open = read_only
    return batches
