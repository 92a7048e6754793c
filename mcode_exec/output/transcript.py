"""A session as people read it: who said what, which tools ran, how they ended, how long they took."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import msgspec

from mcode_exec.durations import format_duration
from mcode_exec.output.escape import escape, escape_text
from mcode_exec.output.narration import cut
from mcode_exec.output.turn_words import SUBJECTS, result_of, status_of, subject_of
from mcode_exec.records.event import AnyEvent, ItemCompleted, SteerAccepted, TurnCompleted, TurnFailed
from mcode_exec.records.message import (
    DisplayMessage,
    FilePart,
    ReasoningPart,
    TextPart,
    ToolPart,
)
from mcode_exec.records.session import Session

#: lines of a tool's output that are shown
_OUTPUT_LINES = 8
_LINE_CHARS = 200


def local_time(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


def heading(session: Session) -> str:
    """The first lines of a transcript."""
    model = f"{session.provider_id}/{session.model_id}" if session.model_id else "-"
    lines = [
        f"session {session.id}: {escape(session.title)}",
        f"workspace {escape(session.workspace)} · model {escape(model)} · {session.shown_status}",
        f"created {local_time(session.created_ms)} · last turn {local_time(session.activity_ms)}",
    ]
    if session.forked_from is not None:
        lines.append(f"forked from {session.forked_from} at {session.forked_at}")
    if session.run_location is not None:
        location = session.run_location
        lines.append(f"worktree {escape(location.path)} · branch {escape(location.branch or '-')}")
    if session.error_message:
        lines.append(f"last error: {escape(session.error_message)}")
    return "".join(f"{line}\n" for line in lines)


def transcript(messages: Iterable[DisplayMessage]) -> str:
    """`messages` in order, each under a line that names its author and its time."""
    out: list[str] = []
    for message in messages:
        out.append(f"\n── {author(message)} · {local_time(message.created_ms)}\n")
        out.extend(f"{line}\n" for line in _body(message))
    return "".join(out)


def of_watched(told: AnyEvent | DisplayMessage) -> str:
    """A user's message or an event of a turn, as it comes; empty for what people need not read."""
    if isinstance(told, DisplayMessage):
        return transcript((told,)) + "\n"
    if isinstance(told, SteerAccepted):
        return f"── steer\n{escape_text(told.text)}\n"
    if isinstance(told, ItemCompleted):
        item = told.item
        if item.tool_call is not msgspec.UNSET:
            call = item.tool_call
            subject = next((str(call.input[key]) for key in SUBJECTS if call.input.get(key)), "")
            took = "" if call.duration_ms is None else f" in {format_duration(call.duration_ms / 1000)}"
            return f"▸ {escape(cut(f'{call.name} {subject}'.strip(), _LINE_CHARS))} [{call.status}{took}]\n"
        text = str(item.content or "")
        return f"(thinking) {escape(cut(text))}\n" if item.type == "reasoning" else escape_text(text) + "\n"
    if isinstance(told, TurnCompleted):
        return f"── the turn was answered in {format_duration(told.duration_ms / 1000)}\n"
    if isinstance(told, TurnFailed) and told.status == "interrupted":
        return "── the turn's process died\n"
    if isinstance(told, TurnFailed):
        why = "" if told.error is None else f": {escape(told.error.message)} ({told.error.code})"
        return f"── the turn ended as {told.status}{why}\n"
    return ""


def author(message: DisplayMessage) -> str:
    """Who said a message, with agent and model."""
    if message.role != "assistant":
        return message.role if message.steered_by is None else f"{message.role} · steer"
    model = f"{message.provider_id}/{message.model_id}" if message.model_id else None
    return escape(" · ".join(name for name in ("assistant", message.agent, model) if name))


def _body(message: DisplayMessage) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, TextPart):
            yield escape_text(part.text).rstrip("\n")
        elif isinstance(part, ReasoningPart):
            yield f"(thinking) {escape(cut(part.text, _LINE_CHARS))}"
        elif isinstance(part, FilePart):
            yield f"[file {escape(part.filename or part.digest)}, {escape(part.mime)}]"
        elif isinstance(part, ToolPart):
            yield from _tool(part)
    if message.finish_reason not in (None, "stop", "end_turn", "tool_calls", "tool_use"):
        yield f"({escape(str(message.finish_reason))})"


def _tool(part: ToolPart) -> Iterator[str]:
    what = escape(cut(f"{part.tool} {subject_of(part)}".strip(), _LINE_CHARS))
    yield f"▸ {what} [{status_of(part)}]"
    text = result_of(part)
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    for line in lines[:_OUTPUT_LINES]:
        yield f"    {escape(line[:_LINE_CHARS])}"
    if len(lines) > _OUTPUT_LINES:
        yield f"    … {len(lines) - _OUTPUT_LINES} more lines"
