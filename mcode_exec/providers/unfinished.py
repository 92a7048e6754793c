"""Why an answer that was waited for never came to its end: what had come of it, and what had not.

Imported by failures only.  An answer is told apart by its events: with the first of
them the silence is that of a stream, before it that of a provider.
"""

from __future__ import annotations

from mcode_exec.errors import ModelCallError
from mcode_exec.plurals import counted
from mcode_exec.providers import failures
from mcode_exec.providers.assembly import CallPart, TextPart
from mcode_exec.providers.sse import is_line
from mcode_exec.providers.wire import AnswerReader


def silence(
    place: str, status: int | None, reader: AnswerReader | None, *, first_byte_s: float, idle_s: float
) -> str:
    """The sentence for an answer that a timer has ended; `place` is whom it was waited for from."""
    if status is None or reader is None:
        return f"{place} did not answer within {first_byte_s:g} s"
    if reader.events:
        return f"the provider's stream went silent: {_so_far(reader)}, then none for {idle_s:g} s"
    if reader.is_whole_body:
        return f"the provider answered {status}, but its answer was not over within {first_byte_s:g} s"
    if reader.foreign:
        shown = failures.shown(reader.foreign)
        return failures.printable(
            f"the provider answered {status}, but began no answer within {first_byte_s:g} s; it sent: {shown}"
        )
    came = "nothing but comments and pings" if reader.has_bytes else "nothing"
    if reader.is_inside_event:
        came = "no whole event"
    return f"the provider answered {status}, but {came} followed within {first_byte_s:g} s"


def ended(reader: AnswerReader, begin: bytes, headers: failures.Headers) -> ModelCallError:
    """The failure of a stream that is over before its answer is; `begin` is how its body began."""
    if not reader.events and (reader.foreign or _is_no_stream(begin)):
        return failures.foreign_body(headers, reader.foreign or begin)
    if reader.events:
        message = f"the provider's stream ended in the middle of the answer ({_so_far(reader)})"
    elif reader.has_bytes:
        message = "the provider's stream ended before its first event"
    else:
        message = "the provider's answer is empty"
    return ModelCallError("LLM_UPSTREAM_ERROR", message, request_id=failures.request_id_of(headers))


def _so_far(reader: AnswerReader) -> str:
    came = f"{counted(reader.events, 'event')} came"
    last = reader.draft.last
    if last is None:
        return f"{came}, {'ending in a refusal' if any(reader.refusals) else 'none with content'}"
    if isinstance(last, CallPart):
        return f"{came}, ending in a call of {failures.printable(last.name[:60]) or 'a tool'}"
    return f"{came}, ending in {'text' if isinstance(last, TextPart) else 'reasoning'}"


def _is_no_stream(body: bytes) -> bool:
    """Whether no line is one of a stream: a text that is only called so."""
    lines = [line for line in body.replace(b"\r", b"\n").split(b"\n") if line.strip()]
    return bool(lines) and not any(is_line(line.lstrip(b"\xef\xbb\xbf")) for line in lines)
