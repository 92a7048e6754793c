"""From history records to what a model may be sent, and what repair must append first.

A transcript is always valid: every tool call has exactly one result, in the
order of the calls, right after its message; results without a call, doubled
records and empty messages are left out.  What a crash cut short is made up for
by appended facts (`missing_results`), never by dropping what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mcode_exec.ids import new_message_id
from mcode_exec.records.history import (
    INTERRUPTED,
    NOT_STARTED,
    Block,
    FileBlock,
    HistoryRecord,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)


def missing_results(records: Sequence[HistoryRecord], now_ms: int) -> list[HistoryRecord]:
    """One record per call at the end of history that has no result: `interrupted`."""
    answered = {block.call_id for record in records for block in _results(record)}
    last = next((record for record in reversed(records) if record.message.role != "tool"), None)
    if last is None or last.message.role != "assistant":
        return []
    unfinished = [call for call in calls_of(last.message) if call.id not in answered]
    return [
        result_record(
            _interrupted(call, INTERRUPTED if index == 0 else NOT_STARTED),
            turn_id=last.turn_id,
            now_ms=now_ms,
            repair="interrupted",
        )
        for index, call in enumerate(unfinished)
    ]


def _interrupted(call: ToolCallBlock, content: str) -> ToolResultBlock:
    return ToolResultBlock(
        call_id=call.id, name=call.name, content=content, is_error=True, status="interrupted"
    )


def result_record(
    result: ToolResultBlock, *, turn_id: str, now_ms: int, repair: str | None = None
) -> HistoryRecord:
    """The record of one tool result."""
    return HistoryRecord(
        id=new_message_id(),
        turn_id=turn_id,
        at_ms=now_ms,
        message=Message(role="tool", content=(result,)),
        repair=repair,
    )


def calls_of(message: Message) -> list[ToolCallBlock]:
    return [block for block in message.content if isinstance(block, ToolCallBlock)]


def _results(record: HistoryRecord) -> list[ToolResultBlock]:
    return [block for block in record.message.content if isinstance(block, ToolResultBlock)]


def transcript(records: Iterable[HistoryRecord]) -> tuple[Message, ...]:
    """The messages a model may be sent, valid whatever the records hold."""
    known: set[str] = set()
    kept: list[HistoryRecord] = []
    results: dict[str, tuple[Block, ...]] = {}
    for record in records:
        if record.id in known:
            continue
        known.add(record.id)
        if record.message.role == "tool":
            for call_id, blocks in _with_images(record.message):
                results.setdefault(call_id, blocks)
        else:
            kept.append(record)
    messages: list[Message] = []
    called: set[str] = set()
    for record in kept:
        content = _kept_blocks(record.message, called)
        if not content or all(isinstance(block, ThinkingBlock) for block in content):
            continue
        if (
            record.message.role == "user"
            and messages
            and messages[-1] == Message(role="user", content=content)
        ):
            continue  # the same prompt once more, after a turn that came to nothing: it is said once
        messages.append(Message(role=record.message.role, content=content))
        calls = [block for block in content if isinstance(block, ToolCallBlock)]
        if calls:
            answers = tuple(block for call in calls for block in _answer_of(call, results))
            messages.append(Message(role="tool", content=answers))
    return tuple(messages)


def has_earlier_work(records: Sequence[HistoryRecord], prompt: tuple[Block, ...]) -> bool:
    """Whether this very prompt was answered by anything: by its own turn, or by one that came behind it."""
    newest = next((at for at in reversed(range(len(records))) if records[at].message.role == "assistant"), 0)
    for record in records[:newest]:
        said = tuple(
            block
            for block in record.message.content
            if not (isinstance(block, TextBlock) and block.synthetic)
        )
        if record.message.role == "user" and said == prompt:
            return True
    return False


def _kept_blocks(message: Message, called: set[str]) -> tuple[Block, ...]:
    """What of a message may be sent: calls only of an assistant, each id once; `called` is kept up here.

    Results come from tool records alone, one for each call.
    """
    blocks: list[Block] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            continue
        if isinstance(block, ToolCallBlock):
            if message.role != "assistant" or block.id in called:
                continue
            called.add(block.id)
        if not _is_empty(block):
            blocks.append(block)
    return tuple(blocks)


def _with_images(message: Message) -> list[tuple[str, tuple[Block, ...]]]:
    """Each result of a tool message with the images that follow it, by call id."""
    groups: list[tuple[str, list[Block]]] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            groups.append((block.call_id, [block]))
        elif groups and isinstance(block, ImageBlock | FileBlock):
            groups[-1][1].append(block)
    return [(call_id, tuple(blocks)) for call_id, blocks in groups]


def _answer_of(call: ToolCallBlock, results: dict[str, tuple[Block, ...]]) -> tuple[Block, ...]:
    found = results.get(call.id)
    if found is not None:
        return found
    return (_interrupted(call, INTERRUPTED),)


def _is_empty(block: Block) -> bool:
    if isinstance(block, TextBlock):
        return not block.text.strip()
    return isinstance(block, ThinkingBlock) and not (block.text or block.encrypted or block.signature)
