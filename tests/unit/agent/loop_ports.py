"""Ports for the agent loop: a scripted model, real tools, and a history that is a list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from mcode_exec.agent.limits import Limits
from mcode_exec.agent.loop import AgentLoop
from mcode_exec.agent.ports import AgentTask, Callee, Steer
from mcode_exec.agent.turn_state import TurnState
from mcode_exec.errors import LeaseLostError
from mcode_exec.permissions.judge import Judge
from mcode_exec.permissions.places import Scope
from mcode_exec.permissions.rules import RuleSet, parse_flag_rule
from mcode_exec.providers.wire import Endpoint
from mcode_exec.records.history import (
    Block,
    HistoryRecord,
    ImageBlock,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mcode_exec.records.invocation import Check
from mcode_exec.records.model import Answer, ModelFact, ModelInfo, ModelRef, ModelRequest, TextDelta
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.records.usage import Price, Usage
from mcode_exec.sessions.transcript import transcript
from mcode_exec.tools import registry
from mcode_exec.tools.context import ToolContext
from tests.unit.tools.tool_call import Session

Step = Answer | BaseException | Callable[[ModelRequest], Answer]


def answer(*blocks: Block | str, finish: Any = None, usage: Usage | None = None, **more: Any) -> Answer:
    content = tuple(TextBlock(text=block) if isinstance(block, str) else block for block in blocks)
    has_calls = any(isinstance(block, ToolCallBlock) for block in content)
    return Answer(
        content=content,
        finish_reason=finish or ("tool_calls" if has_calls else "stop"),
        usage=usage or Usage(input_tokens=10, output_tokens=5),
        **more,
    )


class Ports:
    """Plays a script; the last step repeats."""

    def __init__(self, root: Path, steps: Sequence[Step]) -> None:
        self.session = Session(root)
        self.steps = list(steps)
        self.requests: list[ModelRequest] = []
        self.empty_allowed: list[bool] = []
        self.records: list[HistoryRecord] = []
        self.failed: list[Usage] = []
        self.callees: list[Callee] = []
        self.facts: list[Any] = []
        #: the commit of this number (from 1) finds the lease gone
        self.lease_lost_at: int | None = None
        #: what is said to the turn, by look
        self.said: list[tuple[Steer, ...]] = []
        #: call ids, as they begin to run
        self.began: list[str] = []

    async def commit(self, record: HistoryRecord, *, failed: tuple[Usage, ...] = ()) -> None:
        await asyncio.sleep(0)
        if self.lease_lost_at is not None and len(self.records) + 1 >= self.lease_lost_at:
            raise LeaseLostError
        self.records.append(record)
        self.failed.extend(failed)

    def steering(self) -> tuple[Steer, ...]:
        """Each time one entry of `said`; nothing when it is used up."""
        return self.said.pop(0) if self.said else ()

    async def add_failed(self, message_id: str, failed: tuple[Usage, ...]) -> None:
        self.failed.extend(failed)

    def use(self, callee: Callee) -> None:
        self.callees.append(callee)

    def emit(self, fact: Any) -> None:
        self.facts.append(fact)

    async def complete(
        self, request: ModelRequest, on_fact: Callable[[ModelFact], None], *, may_be_empty: bool
    ) -> Answer:
        self.requests.append(request)
        self.empty_allowed.append(may_be_empty)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        await asyncio.sleep(0)
        if isinstance(step, BaseException):
            raise step
        given = step if isinstance(step, Answer) else step(request)
        for index, block in enumerate(given.content):
            if isinstance(block, TextBlock) and block.text:
                on_fact(TextDelta(index, block.text))
        return given

    async def keep_image(self, mime: str, data: bytes) -> ImageBlock:
        return ImageBlock(digest="0" * 64, mime=mime)

    async def run_tool(self, call: ToolCallBlock) -> ToolOutcome:
        return await registry.run(call.name, call.arguments, self.tool_context(call.id))

    async def run_check(self, check: Check) -> ToolOutcome:
        return await registry.run_check(check.command, dict(check.environment), self.session.context())

    def tool_context(self, call_id: str) -> ToolContext:
        self.began.append(call_id)
        return self.session.context()

    def now_ms(self) -> int:
        return 1000

    def progress(self, *, step: int, tool: str | None, phase: str) -> None:
        return None

    # what came of it

    @property
    def results(self) -> list[ToolResultBlock]:
        return [
            block
            for record in self.records
            for block in record.message.content
            if isinstance(block, ToolResultBlock)
        ]


class Turn:
    """One run of the loop over a script."""

    def __init__(
        self,
        root: Path,
        *steps: Step,
        limits: Limits | None = None,
        price: Price | None = None,
        output_tokens: int = 1000,
        allow: Sequence[str] = (),
        preset: Any = "full",
        check: Check | None = None,
    ) -> None:
        self.ports = Ports(root, steps)
        self.state = TurnState()
        model = ModelInfo(
            ref=ModelRef(provider_id="p", model_id="m"),
            context_tokens=100_000,
            output_tokens=output_tokens,
            price=price,
            source="config",
        )
        task = AgentTask(
            turn_id="turn_1",
            agent=None,
            callee=Callee(
                model=model,
                endpoint=Endpoint(
                    provider_id="p", api="anthropic-messages", base_url="http://x/v1", api_key=None
                ),
                effort=None,
            ),
            system="be brief",
            tools=registry.schemas(registry.tool_names()),
            limits=limits or Limits(),
            check=check,
            deadline_s=None,
        )
        rules = RuleSet(preset=preset, rules=tuple(parse_flag_rule(one, "allow", "--allow") for one in allow))
        scope = Scope(workspace=str(self.ports.session.workspace), home="/nonexistent", temp_dir=None)
        prompt = Message(role="user", content=(TextBlock(text="go"),))
        self.loop = AgentLoop(
            task=task,
            ports=self.ports,
            judge=lambda: Judge(rules, scope),
            state=self.state,
            messages=(prompt,),
        )
        self.prompt = prompt

    def run(self) -> Turn:
        asyncio.run(self._run())
        return self

    async def _run(self) -> None:
        try:
            await self.loop.run()
        finally:
            await self.ports.session.runner.end_leftovers()

    def check_history(self) -> None:
        """What was sent last is what history gives the next turn."""
        prompt = HistoryRecord(id="msg-prompt", turn_id="turn_1", at_ms=1, message=self.prompt)
        told = transcript([prompt, *self.ports.records])
        # a message of nothing but blanks is left out at the latest where the request is encoded
        sent = transcript(
            HistoryRecord(id=f"msg-{number}", turn_id="turn_1", at_ms=1, message=message)
            for number, message in enumerate(self.ports.requests[-1].messages)
            if not all(isinstance(block, TextBlock) and not block.text.strip() for block in message.content)
        )
        assert told[: len(sent)] == sent


def usd(input_price: str, output_price: str) -> Price:
    return Price(input=Decimal(input_price), output=Decimal(output_price))
