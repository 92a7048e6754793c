"""Items: what of a message is told as a piece of its own, the same live, on resync and to who watches."""

from __future__ import annotations

from mcode_exec.ids import item_id
from mcode_exec.records.event import CallStatus, Item, ItemToolCall, SteerAccepted
from mcode_exec.records.message import (
    DisplayMessage,
    Part,
    ReasoningPart,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolPending,
)


def item_of_part(message_id: str, part: Part) -> Item | None:
    """A part of an answer as an item, as far as it has come; None for a part that is none."""
    key = item_id(message_id, part.index) if isinstance(part, TextPart | ReasoningPart | ToolPart) else ""
    if isinstance(part, TextPart):
        return Item(id=key, type="agent_message", content=part.text)
    if isinstance(part, ReasoningPart):
        return Item(id=key, type="reasoning", content=part.text)
    if not isinstance(part, ToolPart):
        return None
    state = part.state
    if isinstance(state, ToolPending):
        return call_item(key, part.call_id, part.tool, state.input, "pending")
    return call_item(
        key,
        part.call_id,
        part.tool,
        state.input,
        state.kind if isinstance(state, ToolError) else "completed",
        output=state.output if isinstance(state, ToolCompleted) else None,
        error=state.error if isinstance(state, ToolError) else None,
        duration_ms=state.duration_ms,
    )


def steer_of(message: DisplayMessage) -> SteerAccepted:
    """The event of words that were said to a running turn."""
    return SteerAccepted(text="".join(part.text for part in message.parts if isinstance(part, TextPart)))


def call_item(
    key: str,
    call_id: str,
    tool: str,
    arguments: dict[str, object],
    status: CallStatus,
    *,
    output: str | None = None,
    error: str | None = None,
    duration_ms: int | None = None,
) -> Item:
    call = ItemToolCall(
        id=call_id,
        name=tool,
        input=arguments,
        status=status,
        output=output,
        error=error,
        duration_ms=duration_ms,
    )
    if tool == "todo_write":
        return Item(id=key, type="todo_list", content=todo_text(arguments), tool_call=call)
    return Item(id=key, type="tool_call", tool_call=call)


def todo_text(arguments: dict[str, object]) -> str:
    """A todo list as lines for people: `[x] done`, `[>] in progress`, `[ ] pending`."""
    marks = {"completed": "[x]", "in_progress": "[>]", "cancelled": "[-]"}
    todos = arguments.get("todos")
    if not isinstance(todos, list):
        return ""
    return "\n".join(
        f"{marks.get(str(todo.get('status')), '[ ]')} {todo.get('content', '')}"
        for todo in todos
        if isinstance(todo, dict)
    )
