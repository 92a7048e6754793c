"""What of a message is searched: what was said, and what tools were asked and gave back.

Not the model's reasoning, and not what mcode itself has put into a message.
Changing what is searched means a new version of the index (store/search_file.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcode_exec.records.finding import Place
from mcode_exec.records.message import (
    DisplayMessage,
    FilePart,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
)

#: of one message and place; a prompt may be longer
MAX_CHARS = 1_000_000
#: of one tool's input, and of its output
MAX_TOOL_CHARS = 4_000
_MAX_DEPTH = 8


def texts_of(message: DisplayMessage) -> dict[Place, str]:
    """The texts of a message by where they are looked for; a place without text is left out."""
    said: Place = "prompt" if message.role == "user" else "answer"
    found: dict[Place, list[str]] = {said: [], "tool": []}
    for part in message.parts:
        if isinstance(part, TextPart):
            if not part.synthetic:
                found[said].append(part.text)
        elif isinstance(part, FilePart):
            if part.filename:
                found[said].append(part.filename)
        elif isinstance(part, ToolPart):
            found["tool"] += _of_tool(part)
    return {place: "\n".join(texts)[:MAX_CHARS] for place, texts in found.items() if texts}


def _of_tool(part: ToolPart) -> Iterator[str]:
    state = part.state
    yield part.tool
    yield "\n".join(_strings(state.input, 0))[:MAX_TOOL_CHARS]
    if isinstance(state, ToolCompleted):
        yield state.output[:MAX_TOOL_CHARS]
    elif isinstance(state, ToolError):
        yield state.error[:MAX_TOOL_CHARS]


def _strings(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:MAX_TOOL_CHARS]
    elif depth < _MAX_DEPTH and isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner, depth + 1)
    elif depth < _MAX_DEPTH and isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner, depth + 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
