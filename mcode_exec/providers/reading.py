"""Reading one answer: a stream or a whole body, until it is complete, and whether it counts.

What the body is decides how it is read, not its content type.  Only events that
bring the answer on move the timer; once the answer may end, its usage is waited
for a short while.  An answer that says nothing, refuses, or writes a tool call as
text is a failure here, with what the provider counted for it in
`details["usage"]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from mcode_exec.errors import ModelCallError
from mcode_exec.providers import failures
from mcode_exec.providers.endings import code_of
from mcode_exec.providers.payload import BeyondLimitsError, PayloadError, decode
from mcode_exec.providers.sse import MAX_EVENT_BYTES, SseParser, is_line
from mcode_exec.providers.wire import AnswerReader
from mcode_exec.records.history import TextBlock, ToolCallBlock
from mcode_exec.records.model import Answer, ModelRequest, ToolSchema
from mcode_exec.records.usage import Usage

#: largest stream, bytes: what a model writes at most, in the wordiest format, fits into it
MAX_ANSWER_BYTES = 64 * 1024 * 1024
#: how long the usage may follow the finish reason, and how long a `[DONE]` that brings nothing more
_USAGE_S = 2.0
_DONE_S = 0.2
#: what of the turn's time is left for committing an answer whose usage was waited for
_COMMIT_S = 0.5
#: what may stand before a body without being part of it
_BLANK = b"\xef\xbb\xbf \t\r\n"
#: how much of it is read through before what follows is taken for a stream
_BLANK_BYTES = 64 * 1024
#: so much of a stream without an event is looked at to tell what it is instead
_BEGIN_BYTES = failures.SHOWN_BODY * 4
#: what all markup of tool calls has one of
_CALL_MARKS = (
    *("tool_call", "<function=", "<invoke ", "<|", "<｜", "[TOOL_CALLS]", "function_call"),
    *("<TOOLCALL>", "functools[", "<tool_code>", "<tool_use>"),
)


class Body(Protocol):
    """What is read from: http.Response, or anything like it."""

    headers: failures.Headers

    async def read(self) -> bytes: ...


async def read_answer(
    response: Body,
    reader: AnswerReader,
    timer: asyncio.Timeout,
    *,
    idle_s: float,
    answer_s: float = 3600.0,
    left_s: float | None = None,
) -> None:
    """Read until the answer is complete; a stream may take `answer_s` in all, however lively it is.

    `left_s`: seconds until the turn's deadline, which ends the wait for the usage of a complete answer.
    Raises: ModelCallError if it never is; TimeoutError (by `timer`), which a complete
        answer need not mind.
    """
    first = await _first_bytes(response, reader)
    if _is_stream(first, response):
        usage_end_s = None if left_s is None else asyncio.get_running_loop().time() + left_s - _COMMIT_S
        await _read_stream(first, response, reader, timer, idle_s, answer_s, usage_end_s)
    else:
        await _read_body(first, response, reader)


#: what is parsed at a time of one read, which may be a few bytes that unpack to very many
_SLICE_BYTES = 64 * 1024


async def _read_stream(
    first: bytes,
    response: Body,
    reader: AnswerReader,
    timer: asyncio.Timeout,
    idle_s: float,
    answer_s: float,
    usage_end_s: float | None,
) -> None:
    loop = asyncio.get_running_loop()
    parser = SseParser()
    data = first
    size, end_s = 0, loop.time() + answer_s
    begin = b""
    #: until when what follows a complete answer is waited for, whatever comes meanwhile
    wait_end_s: float | None = None
    while data:
        size += len(data)
        if not reader.events and len(begin) < _BEGIN_BYTES:
            begin = (begin + data)[:_BEGIN_BYTES]
        if size > MAX_ANSWER_BYTES:
            if reader.is_complete:
                return
            raise ModelCallError(
                "LLM_BAD_RESPONSE", f"the provider sent an answer of more than {MAX_ANSWER_BYTES} bytes"
            )
        is_progress, was_complete = False, reader.is_complete
        try:
            for start in range(0, len(data), _SLICE_BYTES):
                if start:
                    await asyncio.sleep(0)  # an abort is heard between two slices
                for event in parser.feed(data[start : start + _SLICE_BYTES]):
                    was_complete = reader.is_complete
                    is_progress = reader.feed(event) or is_progress
                    if reader.is_terminal:
                        return
        except ModelCallError as failure:
            # what no answer may be does not undo one that was told; that the provider failed would
            if was_complete and failure.code == "LLM_BAD_RESPONSE":
                return
            raise
        if not reader.events:
            reader.is_inside_event = parser.is_inside_event
        if is_progress:
            if loop.time() > end_s:
                raise ModelCallError(
                    "LLM_STALLED", f"the provider's answer did not end within {answer_s:g} s"
                )
            timer.reschedule(loop.time() + idle_s)
        if reader.is_complete:
            if wait_end_s is None:
                wait_end_s = loop.time() + _USAGE_S
                if usage_end_s is not None:
                    wait_end_s = min(wait_end_s, usage_end_s)
            if is_progress and reader.has_usage:
                wait_end_s = min(wait_end_s, loop.time() + _DONE_S)
            timer.reschedule(wait_end_s)
        try:
            data = await response.read()
        except ModelCallError:
            if reader.is_complete:
                return
            raise
    if not reader.is_complete:
        from mcode_exec.providers.unfinished import ended

        raise ended(reader, begin, response.headers)


async def _first_bytes(response: Body, reader: AnswerReader) -> bytes:
    """Enough of the body to tell a stream from anything else."""
    data = b""
    while len(data.lstrip(_BLANK)) < 6:
        more = await response.read()
        if not more:
            break
        reader.has_bytes = True
        data += more
        if len(data) > _BLANK_BYTES:
            break
    return data


def _is_stream(first: bytes, response: Body) -> bool:
    """What the body is decides; the content type only where the body could be either."""
    body = first.lstrip(_BLANK)
    if body[:1] in (b"{", b"[", b"<"):
        return False
    if is_line(body):
        return True
    return (failures.header(response.headers, b"content-type") or "").lower().startswith("text/event-stream")


async def _read_body(first: bytes, response: Body, reader: AnswerReader) -> None:
    """A whole answer in one JSON body, though a stream was asked for."""
    pieces, size = [first], len(first)
    reader.is_whole_body = True
    is_json = first.lstrip(_BLANK)[:1] in (b"{", b"[")
    wanted = MAX_EVENT_BYTES if is_json else failures.SHOWN_BODY * 4
    while size <= wanted and (data := await response.read()):
        pieces.append(data)
        size += len(data)
    if size > MAX_EVENT_BYTES:
        raise ModelCallError(
            "LLM_BAD_RESPONSE", f"the provider sent a body of more than {MAX_EVENT_BYTES} bytes"
        )
    body = b"".join(pieces)
    try:
        value = decode(body.lstrip(_BLANK))
    except BeyondLimitsError as error:
        raise ModelCallError("LLM_BAD_RESPONSE", f"the provider's answer is {error}") from None
    except PayloadError:
        if is_json and not _is_json_lines(body):
            raise ModelCallError(
                "LLM_UPSTREAM_ERROR", "the provider's answer ended in the middle of its JSON"
            ) from None
        raise failures.foreign_body(response.headers, body) from None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict) or not reader.feed_body(value):
        if isinstance(value, dict):
            reader.check_bare(value)
        raise failures.foreign_body(response.headers, body)


def _is_json_lines(body: bytes) -> bool:
    """Whether more follows where a JSON text is over: no format of ours, though others have it."""
    first, _, rest = body.strip(_BLANK).partition(b"\n")
    try:
        decode(first)
    except PayloadError:
        return False
    return bool(rest)


def assembled(reader: AnswerReader, headers: failures.Headers) -> Answer:
    """The answer, unless the provider says that it is none, or all that came before the end is of another format."""
    if reader.foreign and reader.draft.is_empty and not reader.has_usage:
        raise failures.foreign_body(headers, reader.foreign)
    found = reader.finish()
    request_id = failures.request_id_of(headers)
    # an answer that came whole is billed, whatever it said of its usage
    usage = found.usage
    if found.refusal is not None:
        said = failures.printable(f"the model refused to answer: {found.refusal}")
        raise failure_with("LLM_CONTENT_REFUSED", said, request_id=request_id, usage=usage)
    if found.ending == "overflow":
        full = "the context window was full before the answer was over"
        raise failure_with("LLM_CONTEXT_OVERFLOW", full, request_id=request_id, usage=usage)
    if found.ending == "failure":
        label = str(found.label)
        broke = failures.printable(f"the provider broke its answer off ({label})")
        raise failure_with(code_of(label), broke, request_id=request_id, usage=usage)
    return Answer(
        content=found.content, finish_reason=found.finish_reason, usage=usage, request_id=request_id
    )


def judged(answer: Answer, request: ModelRequest, *, may_be_empty: bool) -> Answer:
    """`answer`, if it is one that a turn can go on with."""
    has_calls = any(isinstance(block, ToolCallBlock) for block in answer.content)
    texts = [block.text for block in answer.content if isinstance(block, TextBlock)]
    if has_calls or answer.finish_reason == "length":
        return answer
    if request.tools and any(_leaks_call(text, request.tools) for text in texts):
        message = "the model wrote a tool call into its text instead of making it"
    elif not texts and not may_be_empty:
        message = "the model thought, but said nothing" if answer.content else "the model said nothing"
    else:
        return answer
    raise failure_with("LLM_EMPTY_RESPONSE", message, request_id=answer.request_id, usage=answer.usage)


def failure_with(code: str, message: str, *, request_id: str | None, usage: Usage | None) -> ModelCallError:
    failure = ModelCallError(code, message, request_id=request_id)
    if usage is not None:
        failure.details["usage"] = usage
    return failure


def _leaks_call(text: str, tools: Sequence[ToolSchema]) -> bool:
    if not any(mark in text for mark in _CALL_MARKS):
        return False
    from mcode_exec.providers.leaked_calls import leaks_call

    return leaks_call(text, {tool.name for tool in tools})
