"""From records to what is shown: display messages and outward events.

`display_of` and `with_results` make display messages from history records;
`EventProjector` makes events from frames (live) and from display messages (on
resync): the same items with the same ids either way, each completed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from mcode_exec.ids import item_id
from mcode_exec.records.event import (
    AnyEvent,
    CallStatus,
    CheckCompleted,
    CheckStarted,
    Item,
    ItemCompleted,
    ItemDiscarded,
    ItemStarted,
    ItemType,
    ItemUpdated,
    LlmRetry,
    ModelSwitched,
    Notice,
    PermissionDenied,
)
from mcode_exec.records.frame import (
    AttemptVoided,
    BlockDelta,
    CallRetrying,
    CheckEnded,
    CheckRunning,
    Denied,
    LiveFact,
    ModelChanged,
    Said,
    ToolRunning,
)
from mcode_exec.records.history import (
    FileBlock,
    HistoryRecord,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mcode_exec.records.items import call_item, item_of_part, steer_of
from mcode_exec.records.message import (
    DisplayMessage,
    FilePart,
    Part,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolPending,
    ToolState,
)


def display_of(record: HistoryRecord, session_id: str, parent_id: str | None = None) -> DisplayMessage | None:
    """The display message a history record makes; None for tool results, which complete their call's part."""
    message = record.message
    if message.role == "tool":
        return None
    meta = record.meta
    parts: list[Part] = []
    if meta is not None and meta.step is not None:
        parts.append(StepStartPart(step=meta.step))
    for index, block in enumerate(message.content):
        if isinstance(block, TextBlock):
            parts.append(TextPart(index=index, text=block.text, synthetic=block.synthetic))
        elif isinstance(block, ThinkingBlock):
            parts.append(ReasoningPart(index=index, text=block.text))
        elif isinstance(block, ToolCallBlock):
            pending = ToolPending(input=block.arguments, raw=block.broken_arguments)
            parts.append(ToolPart(index=index, call_id=block.id, tool=block.name, state=pending))
        elif isinstance(block, ImageBlock | FileBlock):
            parts.append(FilePart(index=index, digest=block.digest, mime=block.mime, filename=block.filename))
    if meta is not None and meta.finish_reason is not None:
        parts.append(StepFinishPart(reason=meta.finish_reason, usage=meta.usage, cost_usd=meta.cost_usd))
    return DisplayMessage(
        id=record.id,
        session_id=session_id,
        turn_id=record.turn_id,
        role=message.role,
        created_ms=record.at_ms,
        completed_ms=record.at_ms,
        parts=tuple(parts),
        parent_id=parent_id,
        agent=meta.agent if meta else None,
        provider_id=meta.provider_id if meta else None,
        model_id=meta.model_id if meta else None,
        variant=meta.variant if meta else None,
        finish_reason=meta.finish_reason if meta else None,
        usage=meta.usage if meta else None,
        cost_usd=meta.cost_usd if meta else None,
        steered_by=record.steered_by,
        summary=message.role == "summary",
    )


def with_results(message: DisplayMessage, results: Mapping[str, ToolResultBlock]) -> DisplayMessage:
    """`message` with the parts of those calls completed that `results`, by call id, answer."""
    parts = tuple(
        structs.replace(part, state=_state_of(part, results[part.call_id]))
        if isinstance(part, ToolPart) and part.call_id in results
        else part
        for part in message.parts
    )
    return structs.replace(message, parts=parts)


def _state_of(part: ToolPart, result: ToolResultBlock) -> ToolState:
    title = str(result.metadata.get("title", ""))
    if not result.is_error:
        return ToolCompleted(
            input=part.state.input,
            output=result.content,
            title=title,
            metadata=result.metadata,
            duration_ms=result.duration_ms,
        )
    kind = result.status
    return ToolError(
        input=part.state.input,
        error=result.content,
        kind="denied" if kind == "denied" else "interrupted" if kind == "interrupted" else "error",
        title=title,
        metadata=result.metadata,
        duration_ms=result.duration_ms,
    )


class EventProjector:
    """Turns frames and display messages into events; keeps which items are open and which are done."""

    def __init__(self, *, with_deltas: bool) -> None:
        self._with_deltas = with_deltas
        #: open item id -> kind, in order of their start
        self._open: dict[str, ItemType] = {}
        self._done: set[str] = set()
        #: call id -> (item id, tool, input) of calls that have no result yet
        self._calls: dict[str, tuple[str, str, dict[str, object]]] = {}

    def live(self, fact: LiveFact) -> Iterator[AnyEvent]:
        """Events of a live fact; none where deltas are not wanted."""
        if isinstance(fact, BlockDelta):
            yield from self._delta(fact)
        elif isinstance(fact, AttemptVoided):
            yield from self._voided(fact.message_id, fact.reason)
        elif isinstance(fact, CallRetrying):
            yield LlmRetry(
                attempt=fact.attempt,
                max_retries=fact.max_retries,
                delay_ms=fact.delay_ms,
                code=fact.code,
                reason=fact.reason,
            )
        elif isinstance(fact, ModelChanged):
            switch = fact.switch
            yield ModelSwitched(
                from_model=switch.from_model,
                to_model=switch.to_model,
                step=switch.step,
                code=switch.code,
                reason=fact.reason,
            )
        elif isinstance(fact, ToolRunning):
            yield ItemUpdated(
                item=call_item(
                    item_id(fact.message_id, fact.index), fact.call_id, fact.tool, fact.input, "running"
                )
            )
        elif isinstance(fact, Denied):
            denial = fact.denial
            yield PermissionDenied(
                tool=denial.tool,
                permission=denial.permission,
                pattern=denial.pattern,
                rule=denial.rule,
                verdict=denial.verdict,
                reason=denial.reason,
            )
        elif isinstance(fact, CheckRunning):
            yield CheckStarted(number=fact.number, command=fact.command)
        elif isinstance(fact, CheckEnded):
            info = fact.info
            yield CheckCompleted(
                number=info.runs,
                command=fact.command,
                status=info.status,
                exit_code=info.exit_code,
                signal=info.signal,
                timed_out=info.timed_out,
                output=fact.output,
                duration_ms=info.duration_ms,
                attempts_left=fact.attempts_left,
            )
        elif isinstance(fact, Said):
            yield Notice(code=fact.code, message=fact.message)

    def _delta(self, fact: BlockDelta) -> Iterator[AnyEvent]:
        if not self._with_deltas or fact.kind == "tool_call":
            return
        key = item_id(fact.message_id, fact.index)
        if key in self._done:
            return
        if key not in self._open:
            self._open[key] = fact.kind
            yield ItemStarted(item=Item(id=key, type=fact.kind, content=""))
        yield ItemUpdated(item=Item(id=key, type=fact.kind, content_delta=fact.text))

    def _voided(self, message_id: str, reason: str) -> Iterator[AnyEvent]:
        prefix = message_id + ":"
        for key in [key for key in self._open if key.startswith(prefix)]:
            del self._open[key]
            yield ItemDiscarded(item_id=key, reason=reason)

    def committed(self, record: HistoryRecord, session_id: str) -> Iterator[AnyEvent]:
        """Events of a record that was committed while this consumer kept up."""
        if record.message.role == "tool":
            for block in record.message.content:
                if isinstance(block, ToolResultBlock):
                    yield from self._result(block)
            return
        message = display_of(record, session_id)
        if message is not None:
            yield from self.persisted((message,))

    def persisted(self, messages: Iterable[DisplayMessage]) -> Iterator[AnyEvent]:
        """Events of messages read back from the store; items already completed are not repeated."""
        for message in messages:
            if message.role != "assistant":
                yield from self._steer(message)
                continue
            for part in message.parts:
                item = item_of_part(message.id, part)
                if item is not None:
                    yield from self._item(part, item)

    def _steer(self, message: DisplayMessage) -> Iterator[AnyEvent]:
        if message.steered_by is None or message.id in self._done:
            return
        self._done.add(message.id)
        yield steer_of(message)

    def _item(self, part: Part, item: Item) -> Iterator[AnyEvent]:
        if not isinstance(part, ToolPart):
            yield from self._complete(item)
        elif item.id in self._done:
            return
        elif not isinstance(part.state, ToolPending):
            self._calls.pop(part.call_id, None)
            yield from self._complete(item)
        elif item.id not in self._open:
            self._calls[part.call_id] = (item.id, part.tool, part.state.input)
            self._open[item.id] = item.type
            yield ItemStarted(item=item)

    def _result(self, block: ToolResultBlock) -> Iterator[AnyEvent]:
        found = self._calls.pop(block.call_id, None)
        if found is None:
            return
        key, tool, arguments = found
        status: CallStatus = "completed"
        if block.is_error:
            status = (
                "denied"
                if block.status == "denied"
                else "interrupted"
                if block.status == "interrupted"
                else "error"
            )
        yield from self._complete(
            call_item(
                key,
                block.call_id,
                tool,
                arguments,
                status,
                output=None if block.is_error else block.content,
                error=block.content if block.is_error else None,
                duration_ms=block.duration_ms,
            )
        )

    def _complete(self, item: Item) -> Iterator[AnyEvent]:
        if item.id in self._done:
            return
        self._done.add(item.id)
        self._open.pop(item.id, None)
        yield ItemCompleted(item=item)

    def abandoned(self, reason: str) -> Iterator[AnyEvent]:
        """Close what is still open when the turn is over: streamed text that never committed is void."""
        for key in list(self._open):
            del self._open[key]
            yield ItemDiscarded(item_id=key, reason=reason)
        self._calls.clear()
