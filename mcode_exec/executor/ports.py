"""What the agent loop is given: the commit door, the stream, the model client, the tools' surroundings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import structs

from mcode_exec.agent.ports import AgentTask, Callee, Steer
from mcode_exec.agent.turn_state import TurnState
from mcode_exec.clock import Clock
from mcode_exec.errors import KeyMissingError, ModelCallError
from mcode_exec.executor.images import RequestImages
from mcode_exec.ids import new_call_id
from mcode_exec.output.sink import Sink
from mcode_exec.providers.failures import MAX_MESSAGE
from mcode_exec.records.frame import LiveFact, Said
from mcode_exec.records.history import HistoryRecord, ImageBlock, ToolCallBlock
from mcode_exec.records.invocation import Check
from mcode_exec.records.model import Answer, CallCutOff, ModelFact, ModelRequest
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.records.usage import Usage
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.attachments import Attachments
from mcode_exec.sessions.commit import CommitDoor, FailedAttempt
from mcode_exec.sessions.stream import SessionStream
from mcode_exec.store.database import Store
from mcode_exec.tools import registry

if TYPE_CHECKING:
    from mcode_exec.executor.change_recording import ChangeRecorder
    from mcode_exec.executor.tape import Tape
    from mcode_exec.providers.client import ModelClient
    from mcode_exec.tools.context import ToolContext


class TurnPorts:
    """One turn's ports; see agent/ports.py for what each promises."""

    def __init__(
        self,
        *,
        task: AgentTask,
        door: CommitDoor,
        stream: SessionStream,
        client: Callable[[Callee], ModelClient],
        tape: Tape | None,
        sink: Sink,
        state: TurnState,
        tools: Callable[[str], ToolContext],
        attachments: Attachments,
        redactor: Redactor,
        store: Store,
        clock: Clock,
        changes: ChangeRecorder,
        set_phase: Callable[[str], None],
    ) -> None:
        self._task = task
        self._callee = task.callee
        self._door = door
        self._stream = stream
        self._client = client
        self._tape = tape
        self._sink = sink
        self._state = state
        self._tools = tools
        self._attachments = attachments
        self._redactor = redactor
        self._store = store
        self._images = RequestImages(attachments.read)
        self._clock = clock
        self._changes = changes
        self._set_phase = set_phase
        #: steers that stand in history, though their rows may be still to come
        self._taken: set[str] = set()

    async def commit(self, record: HistoryRecord, *, failed: tuple[Usage, ...] = ()) -> None:
        if record.steered_by is not None:
            self._taken.add(record.id)
        await self._door.commit(record, failed=tuple(self._attempt(usage) for usage in failed))

    def steering(self) -> tuple[Steer, ...]:
        return tuple(
            Steer(
                message_id=signal.message_id,
                producer=signal.producer,
                text=signal.text,
                is_machine=signal.is_machine,
            )
            for signal in self._door.steers
            if signal.message_id is not None and signal.message_id not in self._taken
        )

    async def add_failed(self, message_id: str, failed: tuple[Usage, ...]) -> None:
        await self._door.add_failed_attempts(message_id, tuple(self._attempt(usage) for usage in failed))

    def use(self, callee: Callee) -> None:
        self._callee = callee

    def _attempt(self, usage: Usage) -> FailedAttempt:
        model = self._callee.model
        ref, price = model.ref, model.price
        cost = price.cost_usd(usage) if price else None
        return FailedAttempt(
            provider_id=ref.provider_id,
            model_id=ref.model_id,
            usage=usage,
            cost_usd=None if cost is None else format(cost, "f"),
        )

    def emit(self, fact: LiveFact) -> None:
        self._stream.publish_live(self._task.turn_id, fact)

    async def complete(
        self, request: ModelRequest, on_fact: Callable[[ModelFact], None], *, may_be_empty: bool
    ) -> Answer:
        try:
            return await self._call(request, on_fact, may_be_empty=may_be_empty)
        except ModelCallError as error:
            if not await self._can_mend(error, request):
                raise
            earlier: tuple[Usage, ...] = error.details.get("failed_usage", ())

        def told(fact: ModelFact) -> None:
            on_fact(CallCutOff((*earlier, *fact.usage)) if isinstance(fact, CallCutOff) else fact)

        try:
            answer = await self._call(request, told, may_be_empty=may_be_empty)
        except ModelCallError as error:
            error.details["failed_usage"] = (*earlier, *error.details.get("failed_usage", ()))
            raise
        return structs.replace(answer, failed_usage=(*earlier, *answer.failed_usage))

    async def _can_mend(self, error: ModelCallError, request: ModelRequest) -> bool:
        """Whether the call may succeed now: with fewer images, or with a key that has changed meanwhile."""
        if error.http_status == 413:
            return self._images.drop_oldest(request.messages)
        # some say it with another status, or inside a 200; 403 is no word on the key itself, 407 a proxy's
        is_refused_key = error.code == "LLM_AUTH_ERROR" and error.http_status not in (403, 407)
        return is_refused_key and await self._has_new_key(error)

    async def _has_new_key(self, refused: ModelCallError) -> bool:
        """Read the key again where it comes from a file or a command; False if it is the one that was refused.

        One that cannot be read any more leaves the refusal what it is, which says so.
        """
        endpoint, read_key = self._callee.endpoint, self._callee.read_key
        if read_key is None:
            return False
        try:
            key = await asyncio.to_thread(read_key)
        except KeyMissingError as unread:
            said = f"; the key could not be read anew: {unread.message.rstrip('.')}"
            refused.args = (refused.message[: MAX_MESSAGE - len(said)] + said, *refused.args[1:])
            return False
        if key is None or key == endpoint.api_key:
            return False
        self._redactor.add(key)
        self._callee = structs.replace(self._callee, endpoint=structs.replace(endpoint, api_key=key))
        return True

    async def _call(
        self, request: ModelRequest, on_fact: Callable[[ModelFact], None], *, may_be_empty: bool
    ) -> Answer:
        messages = self._images.fill(request.messages, request.model)
        for code, sentence in self._images.take_notices():
            self.emit(Said(code, sentence))
        return await self._client(self._callee).complete(
            self._callee.endpoint,
            structs.replace(request, messages=messages),
            on_fact,
            deadline_s=self._task.deadline_s,
            may_be_empty=may_be_empty,
        )

    async def keep_image(self, mime: str, data: bytes) -> ImageBlock:
        digest = await self._store.on_thread(lambda: self._attachments.keep(data))
        return ImageBlock(digest=digest, mime=mime)

    async def run_tool(self, call: ToolCallBlock) -> ToolOutcome:
        context = self._tools(call.id)
        return await self._run(call, lambda: registry.run(call.name, call.arguments, context))

    async def run_check(self, check: Check) -> ToolOutcome:
        # to a recording it is a call like those of the model
        call = ToolCallBlock(id=new_call_id(), name="check", arguments={"command": check.command})
        context = self._tools(call.id)
        return await self._run(
            call, lambda: registry.run_check(check.command, dict(check.environment), context)
        )

    async def _run(self, call: ToolCallBlock, run: Callable[[], Awaitable[ToolOutcome]]) -> ToolOutcome:
        if self._tape is None or self._tape.runs_tools(self._callee):
            await self._changes.before(call.name, call.arguments)
        return await (run() if self._tape is None else self._tape.run_tool(self._callee, call, run))

    def tool_context(self, call_id: str) -> ToolContext:
        return self._tools(call_id)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def progress(self, *, step: int, tool: str | None, phase: str) -> None:
        self._set_phase(phase if tool is None else f"tool {tool}")
        usage = self._state.total_usage()
        self._sink.status(
            step=step, tool=tool, tokens=usage.total_tokens, cost_usd=self._state.cost_usd, phase=phase
        )
