"""Events and results as sentences for people on stderr.

Owns the wording; it decides nothing and writes nothing.  Every function gives
plain text without prefix; the sink escapes, redacts and writes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from mcode_exec.durations import format_duration
from mcode_exec.errors import McodeError
from mcode_exec.plurals import counted
from mcode_exec.records.event import (
    AnyEvent,
    CheckCompleted,
    CheckStarted,
    ItemCompleted,
    LlmRetry,
    ModelSwitched,
    Notice,
    PermissionDenied,
    SessionForked,
    SessionResumed,
    SessionStarted,
    TurnQueued,
    TurnStarted,
)
from mcode_exec.records.result import Result

_LIMIT_NAMES = {"steps": "step limit", "cost": "cost limit", "tokens": "token limit", "timeout": "time limit"}
_SHOWN_CHARS = 200
_REASON_CHARS = 500  # the reason is all that is said, and ends with what to do


def shell_quote(text: str) -> str:
    """`text` as one word of a shell command."""
    import shlex

    return shlex.quote(text)


def cut(text: str, limit: int = _SHOWN_CHARS) -> str:
    """`text` on one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def of_event(event: AnyEvent, *, verbose: bool) -> str | None:
    """What a person should read when `event` happens; None for nothing."""
    if isinstance(event, Notice):
        return event.message
    if isinstance(event, LlmRetry):
        delay = format_duration(event.delay_ms / 1000)
        return f"retry {event.attempt}/{event.max_retries} in {delay}: {cut(event.reason)} ({event.code})"
    if isinstance(event, ModelSwitched):
        return (
            f"{event.from_model} failed ({event.code}): {cut(event.reason)}; {event.to_model} goes on instead"
        )
    if isinstance(event, PermissionDenied):
        return _of_denial(event)
    if isinstance(event, CheckCompleted) and event.status == "failed" and event.attempts_left:
        more = counted(event.attempts_left, "attempt")
        return f"the check failed ({_how(event)}): the agent is told, {more} left"
    if isinstance(event, TurnQueued):
        place = "next in line" if event.position == 1 else f"at place {event.position} in line"
        return f"the session is busy: waiting, {place} ({event.item_id})"
    return _of_progress(event) if verbose else None


def _how(event: CheckCompleted) -> str:
    if event.timed_out:
        return "timed out"
    return f"signal {event.signal}" if event.signal is not None else f"exit code {event.exit_code}"


def _of_denial(event: PermissionDenied) -> str:
    return f"denied {event.reason or f'{event.tool}: {cut(event.pattern)}'}"


def _of_progress(event: AnyEvent) -> str | None:
    if isinstance(event, SessionStarted):
        return f"session {event.session_id} started in {event.workspace}"
    if isinstance(event, SessionForked):
        return f"session {event.session_id} begins with {event.forked_from} in {event.workspace}"
    if isinstance(event, SessionResumed):
        return f"session {event.session_id} resumed in {event.workspace}"
    if isinstance(event, TurnStarted):
        return f"turn {event.turn_id} started with {event.model}, permission {event.permission}"
    if isinstance(event, CheckStarted):
        return f"check {cut(event.command, 100)}"
    if isinstance(event, CheckCompleted):
        return f"check {event.status} in {format_duration(event.duration_ms / 1000)}"
    if isinstance(event, ItemCompleted):
        call = event.item.tool_call
        if not call:
            return None
        subject = call.input.get("command") or call.input.get("file_path") or call.input.get("pattern") or ""
        took = "" if call.duration_ms is None else f" in {format_duration(call.duration_ms / 1000)}"
        return f"{f'{call.name} {cut(str(subject), 100)}'.rstrip()}: {call.status}{took}"
    return None


def of_ending(result: Result) -> Iterator[str]:
    """Why the run did not simply succeed, in one or a few lines."""
    session = f"; session {result.session_id}" if result.session_id else ""
    if result.limit is not None:
        limit = result.limit
        name = _LIMIT_NAMES[limit.name]
        yield f"stopped: {name} {limit.value} reached (set by {limit.source}){session}"
        return
    if result.queue is not None:
        yield (
            f"queued as {result.queue.item_id}, at place {result.queue.position} in line; "
            f"`mcode queue list {result.session_id}` shows it"
        )
    elif result.status == "steered":
        yield f"handed to turn {result.turn_id}; `mcode sessions watch {result.session_id}` follows it"
    elif result.status == "interaction_required":
        why = "a decision was asked for and nobody is there" if result.error is None else result.error.message
        yield f"interaction required: {why}"
    elif result.error is not None:
        error = result.error
        number = f", {error.number}" if error.number else ""
        yield f"error: {error.message} ({error.code}{number})"
    elif result.exit_code != 0:
        yield f"error: the run ended as {result.status}"
    if result.tool_errors and result.exit_code == 0:
        yield f"{counted(result.tool_errors, 'tool call')} failed during the run; the result object names them"


def of_delivered(item_id: str, outcome: str, result: Result | None, error: McodeError | None) -> str:
    """What became of a queue item that this process took."""
    if result is not None and outcome == "ran":
        took = format_duration(result.duration_ms / 1000)
        why = "" if result.error is None else f": {cut(result.error.message)} ({result.error.code})"
        return f"{item_id} {result.status} in {took} (turn {result.turn_id}){why}"
    if error is None:
        return f"{item_id} was stopped before it began, and waits on"
    if outcome == "dropped":
        kept = "can never run and was taken out"
    else:
        kept = f"could not run {'now' if error.retryable else 'here'} and waits on"
    return f"{item_id} {kept}: {reason_of(error)}"


def reason_of(error: McodeError) -> str:
    """Why something was not done, where that is part of a sentence."""
    return f"{cut(error.message, _REASON_CHARS)} ({error.code})"


def continue_line(session_id: str, program: str, flags: tuple[str, ...]) -> str:
    """How to go on with the session; `flags` are those without which it would not be found."""
    command = f"{shell_quote(program)} exec{_words(flags)}"
    return f'session {session_id}, continue with: {command} --session {session_id} "…"'


def read_line(session_id: str, program: str, flags: tuple[str, ...]) -> str:
    """What is left to do with a session that the model cannot take any more."""
    kept_in = tuple(word for flag, word in zip(flags[::2], flags[1::2], strict=True) if flag == "--data-dir")
    where = ("--data-dir", *kept_in) if kept_in else ()
    return f"session {session_id}, read it with: {shell_quote(program)} sessions show{_words(where)} {session_id}"


def _words(flags: tuple[str, ...]) -> str:
    return "".join(f" {shell_quote(flag)}" for flag in flags)
