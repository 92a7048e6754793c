"""Records of the history as they may leave the data directory.

The history is what a model gets, secrets included; rows were masked by the run
that knew the secrets.  Whoever exports may not know them any more: so a record
takes from its row what was masked there, and is masked once more by what is
known now.  A record without a secret comes out as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import structs

from mcode_exec.records.history import (
    Block,
    HistoryRecord,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mcode_exec.records.message import (
    DisplayMessage,
    Part,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolError,
    ToolPart,
    ToolPending,
)
from mcode_exec.redaction import MASK, Redactor


def as_shown(
    record: HistoryRecord,
    row: DisplayMessage | None,
    holders: Mapping[str, DisplayMessage],
    redactor: Redactor,
) -> HistoryRecord:
    """`record` without its secrets.

    `row`: the display message it made.  `holders`: by call id, the messages whose calls its results answer.
    """
    parts = {} if row is None else _by_index(row)
    content = tuple(
        _of_call(block, holders.get(block.call_id))
        if isinstance(block, ToolResultBlock)
        else _of_part(block, parts.get(index))
        for index, block in enumerate(record.message.content)
    )
    taken = structs.replace(record, message=structs.replace(record.message, content=content))
    if not redactor.may_change(msgspec.json.encode(taken).decode()):
        return _unsigned(record, taken)
    clean = msgspec.convert(redactor.json(msgspec.to_builtins(taken)), HistoryRecord)
    return _unsigned(record, clean)


def _by_index(row: DisplayMessage) -> dict[int, Part]:
    parts = (part for part in row.parts if not isinstance(part, StepStartPart | StepFinishPart))
    return {part.index: part for part in parts}


def _of_part(block: Block, part: Part | None) -> Block:
    if isinstance(block, TextBlock) and isinstance(part, TextPart) and _is_masked(part.text, block.text):
        return structs.replace(block, text=part.text)
    if (
        isinstance(block, ThinkingBlock)
        and isinstance(part, ReasoningPart)
        and _is_masked(part.text, block.text)
    ):
        return structs.replace(block, text=part.text)
    if isinstance(block, ToolCallBlock) and isinstance(part, ToolPart):
        shown = part.state.input
        if shown != block.arguments and MASK in str(shown):
            broken = None if block.broken_arguments is None else MASK
            return structs.replace(block, arguments=shown, broken_arguments=broken)
    return block


def _of_call(block: ToolResultBlock, holder: DisplayMessage | None) -> ToolResultBlock:
    part = next(
        (
            one
            for one in (() if holder is None else holder.parts)
            if isinstance(one, ToolPart) and one.call_id == block.call_id
        ),
        None,
    )
    if part is None or isinstance(part.state, ToolPending):
        return block
    shown = part.state.error if isinstance(part.state, ToolError) else part.state.output
    if _is_masked(shown, block.content):
        block = structs.replace(block, content=shown)
    if part.state.metadata != block.metadata and MASK in str(part.state.metadata):
        block = structs.replace(block, metadata=part.state.metadata)
    return block


def _is_masked(shown: str, said: str) -> bool:
    return shown != said and MASK in shown


def _unsigned(before: HistoryRecord, after: HistoryRecord) -> HistoryRecord:
    """Thinking whose words have changed is no longer what its provider signed."""
    content = tuple(
        structs.replace(new, signature=None, encrypted=None)
        if isinstance(new, ThinkingBlock) and isinstance(old, ThinkingBlock) and new.text != old.text
        else new
        for old, new in zip(before.message.content, after.message.content, strict=True)
    )
    return structs.replace(after, message=structs.replace(after.message, content=content))
