"""todo_write: the model's own list of steps, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcode_exec.records.tool import ToolOutcome
from mcode_exec.tools.context import ToolContext

_MARKS = {"pending": " ", "in_progress": "~", "completed": "x", "cancelled": "-"}


async def run(arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    todos: list[dict[str, Any]] = arguments["todos"]
    ctx.todos[:] = [dict(todo) for todo in todos]
    still_open = sum(todo["status"] in ("pending", "in_progress") for todo in todos)
    lines = [f"[{_MARKS[todo['status']]}] {todo['content']}" for todo in todos]
    return ToolOutcome(
        content="\n".join([f"{still_open} of {len(todos)} open", *lines]),
        title=f"{still_open} of {len(todos)} open",
        metadata={"open": still_open, "total": len(todos)},
    )
