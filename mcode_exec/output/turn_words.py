"""What a turn and its tools came to, in words: the same on a terminal, in Markdown and on a page.

Plain text throughout; escaping it for where it is shown is the renderer's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from mcode_exec.durations import format_duration
from mcode_exec.plurals import counted
from mcode_exec.records.message import ToolCompleted, ToolError, ToolPart, ToolPending
from mcode_exec.records.question import TurnFacts

SUBJECTS = ("command", "file_path", "pattern", "path", "description")
_ENDED = {"completed": "answered", "aborted": "stopped", "failed": "failed", "waiting": "paused"}
_SMALLEST_USD = Decimal("0.0001")


def model_name(provider_id: str | None, model_id: str | None) -> str | None:
    return f"{provider_id}/{model_id}" if model_id else None


def subject_of(part: ToolPart) -> str:
    """What a call is about, by the argument that tells it best."""
    value = next((part.state.input[key] for key in SUBJECTS if part.state.input.get(key)), "")
    return str(value)


def status_of(part: ToolPart, *, is_running: bool = False) -> str:
    """How a call ended, and how long it took where that is known.

    `is_running`: its turn does, so that a call without a result is under way.
    """
    state = part.state
    if isinstance(state, ToolPending):
        return "running" if is_running else "no result"
    status = "completed" if isinstance(state, ToolCompleted) else state.kind
    took = "" if state.duration_ms is None else f" in {format_duration(state.duration_ms / 1000)}"
    return f"{status}{took}"


def result_of(part: ToolPart) -> str:
    """What a call gave back; empty where it has no result."""
    if isinstance(part.state, ToolPending):
        return ""
    return part.state.error if isinstance(part.state, ToolError) else part.state.output


def changed_lines(part: ToolPart) -> str:
    """`+3 −1` of a call that changed a file; empty for any other."""
    metadata: Mapping[str, Any] = {} if isinstance(part.state, ToolPending) else part.state.metadata
    added, deleted = metadata.get("additions"), metadata.get("deletions")
    return f"+{added} −{deleted}" if isinstance(added, int) and isinstance(deleted, int) else ""


def end_of(facts: TurnFacts) -> str:
    """How a turn stands, in a word or two: `answered in 3s`, `failed (LLM_AUTH_ERROR) in 1s`, `running`."""
    if facts.state == "running":
        return "running"
    if facts.state == "unknown":
        return "kept"
    why = facts.code or facts.reason
    what = _ENDED[facts.state] + (f" ({why})" if why and facts.state != "completed" else "")
    if facts.duration_ms is not None:
        what += f" in {format_duration(facts.duration_ms / 1000)}"
    return what


def sum_of(facts: TurnFacts) -> str:
    """What a turn took and changed: steps, calls, tokens, cost, files; what is not known is left out."""
    return " · ".join(_sums(facts))


def _sums(facts: TurnFacts) -> Iterator[str]:
    if facts.steps:
        yield counted(facts.steps, "step")
    if facts.tool_calls:
        errors = f" ({facts.tool_errors} failed)" if facts.tool_errors else ""
        yield counted(facts.tool_calls, "call") + errors
    usage = facts.usage
    if usage is not None and (usage.input_tokens is not None or usage.output_tokens is not None):
        parts = [_tokens(usage.input_tokens, "in"), _tokens(usage.output_tokens, "out")]
        if usage.reasoning_tokens:
            parts.append(_tokens(usage.reasoning_tokens, "thinking"))
        if usage.cache_read_tokens:
            parts.append(_tokens(usage.cache_read_tokens, "from cache"))
        if usage.cache_write_tokens:
            parts.append(_tokens(usage.cache_write_tokens, "to cache"))
        yield "tokens " + ", ".join(parts) + (" (not all reported)" if facts.usage_incomplete else "")
    cost = money(facts.cost_usd)
    if cost is not None:
        yield cost
    files = files_of(facts)
    if files:
        yield files


def _tokens(count: int | None, what: str) -> str:
    return f"{'?' if count is None else f'{count:,}'} {what}"


def money(cost_usd: str | None) -> str | None:
    """`$0.0123`; None where the cost is not known."""
    try:
        cost = Decimal(cost_usd) if cost_usd is not None else None
    except InvalidOperation:
        return None
    if cost is None or not cost.is_finite():
        return None
    if 0 < cost < _SMALLEST_USD:
        return f"under ${_SMALLEST_USD}"
    return f"${cost:.4f}" if cost else "$0"


def files_of(facts: TurnFacts) -> str:
    """`2 files, +10 −3`, by the `fileChanges` of a turn's result; empty where nothing changed or is known."""
    changes = facts.file_changes
    if changes is None:
        return ""
    files, gap = changes.get("files"), changes.get("gap")
    if gap == "all" or not isinstance(files, int):
        return "changed files not known"
    if not files:
        return "changed files not all known" if gap == "some" else ""
    added, deleted = changes.get("additions"), changes.get("deletions")
    lines = f", +{added} −{deleted}" if isinstance(added, int) and isinstance(deleted, int) else ""
    return counted(files, "file") + lines + (" (not all known)" if gap == "some" else "")


def paths_of(facts: TurnFacts) -> tuple[str, ...]:
    """The files that a turn changed, as its result names them."""
    paths = (facts.file_changes or {}).get("paths")
    return tuple(_path(path) for path in paths) if isinstance(paths, list) else ()


def _path(path: Any) -> str:
    return str(path.get("path", path)) if isinstance(path, dict) else str(path)
