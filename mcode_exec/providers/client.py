"""One model call, from a request to an answer: send, read, judge, try again.

Invariants: nothing of a call counts before its terminal event; deltas of an
attempt that is given up are declared void before the next begins; only events
that bring the answer on reset the idle timer; no key is in any message.
Cancelling the task closes the socket at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any

from msgspec import Struct

from mcode_exec.clock import Clock
from mcode_exec.errors import ConfigError, KeyMissingError, ModelCallError
from mcode_exec.providers import failures
from mcode_exec.providers.http import HttpClient, Response, Url
from mcode_exec.providers.payload import PayloadError, decode
from mcode_exec.providers.retry import RetryPolicy, call_with_retry
from mcode_exec.providers.sse import MAX_EVENT_BYTES, SseParser
from mcode_exec.providers.wire import AnswerReader, Endpoint, WireRequest
from mcode_exec.records.history import TextBlock, ToolCallBlock
from mcode_exec.records.model import (
    Answer,
    AttemptDiscarded,
    ModelFact,
    ModelRequest,
    RetryScheduled,
    WireFormat,
)
from mcode_exec.records.usage import Usage
from mcode_exec.version import VERSION

__all__ = ["Endpoint", "ModelClient", "RetryPolicy", "Timeouts"]

#: how long the usage may follow the finish reason, and how long a `[DONE]` that brings nothing more
_USAGE_S = 2.0
_DONE_S = 0.2
#: an error body: how much of it is read, and for how long
_ERROR_BYTES = 64 * 1024
_ERROR_S = 10.0
_SSE_FIELDS = (b"data", b"event", b"id", b"retry", b":")


class Timeouts(Struct, frozen=True, kw_only=True):
    """Seconds; `first_byte_s` to the first real event, `idle_s` between two of them."""

    connect_s: float = 10.0
    first_byte_s: float = 120.0
    idle_s: float = 90.0


class _Attempt:
    """What one attempt has told so far."""

    def __init__(self, on_fact: Callable[[ModelFact], None]) -> None:
        self._on_fact = on_fact
        self.has_told = False

    def emit(self, fact: ModelFact) -> None:
        self.has_told = True
        self._on_fact(fact)


class ModelClient:
    """Calls models of any provider; one per process, it owns the connections."""

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        clock: Clock,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        rng: Callable[[], float] = random.random,
        environ: Mapping[str, str] | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._policy = retry or RetryPolicy()
        self._clock = clock
        self._sleep = sleep
        self._rng = rng
        self._log = log or (lambda _line: None)
        self._http = HttpClient(connect_s=self._timeouts.connect_s, environ=environ)

    async def complete(
        self,
        endpoint: Endpoint,
        request: ModelRequest,
        on_fact: Callable[[ModelFact], None],
        *,
        deadline_s: float | None = None,
        may_be_empty: bool = False,
        on_api_call: Callable[[], None] | None = None,
    ) -> Answer:
        """Ask the model; facts go to `on_fact` as they come, the answer is returned.

        An answer that the output limit cut off comes back with finish reason
        `length`, even if it says nothing.  `on_api_call` is called for every
        attempt.  Units: `deadline_s` is an instant of `clock.monotonic_s()`.
        Raises: ModelCallError; KeyMissingError and ConfigError before any request.
        Cancellation: closes the connection; nothing of the call counts.
        """
        wire = _wire_module(endpoint.api)
        call: WireRequest = wire.encode(request, endpoint)
        url = Url(_address(endpoint, call.path))
        headers = _headers(endpoint, call)
        started_s = self._clock.monotonic_s()
        failed_usage: list[Usage] = []
        retries = 0
        current = _Attempt(on_fact)

        async def attempt() -> Answer:
            nonlocal current
            current = _Attempt(on_fact)
            if on_api_call is not None:
                on_api_call()
            try:
                answer = await self._attempt(endpoint, wire, url, headers, call.body, current)
                return _judged(answer, request, may_be_empty=may_be_empty)
            except ModelCallError as failure:
                if (usage := failure.details.pop("usage", None)) is not None:
                    failed_usage.append(usage)
                failure.details["failed_usage"] = tuple(failed_usage)
                self._log(f"{endpoint.provider_id}: {failure.code}: {failure.message}")
                raise

        def on_retry(retry: int, delay_s: float, failure: ModelCallError) -> None:
            nonlocal retries
            retries = retry
            if current.has_told:
                on_fact(AttemptDiscarded(failure.message))
            on_fact(
                RetryScheduled(
                    attempt=retry,
                    max_retries=self._policy.max_retries,
                    delay_ms=round(delay_s * 1000),
                    code=failure.code,
                    reason=failure.message,
                )
            )

        answer = await call_with_retry(
            attempt,
            policy=self._policy,
            clock=self._clock,
            sleep=self._sleep,
            rng=self._rng,
            deadline_s=deadline_s,
            on_retry=on_retry,
        )
        return Answer(
            content=answer.content,
            finish_reason=answer.finish_reason,
            usage=answer.usage,
            failed_usage=tuple(failed_usage),
            request_id=answer.request_id,
            duration_ms=round((self._clock.monotonic_s() - started_s) * 1000),
            retries=retries,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def _attempt(
        self,
        endpoint: Endpoint,
        wire: ModuleType,
        url: Url,
        headers: failures.Headers,
        body: bytes,
        current: _Attempt,
    ) -> Answer:
        loop = asyncio.get_running_loop()
        self._log(
            f"POST {url.scheme}://{url.host}:{url.port}{url.target.partition('?')[0]} ({len(body)} bytes)"
        )
        limit_s = self._timeouts.first_byte_s
        response: Response | None = None
        reader: AnswerReader | None = None
        try:
            async with asyncio.timeout(None) as timer:
                response = await self._http.post(
                    url, headers, body, on_connected=lambda: timer.reschedule(loop.time() + limit_s)
                )
                self._log(
                    f"{response.status} ({failures.request_id_of(response.headers) or 'no request id'})"
                )
                now_ms = self._clock.now_ms()
                if not 200 <= response.status < 300:
                    timer.reschedule(min(timer.when() or 0.0, loop.time() + _ERROR_S))
                    refused = await response.read_at_most(_ERROR_BYTES)
                    raise failures.from_response(response.status, response.headers, refused, now_ms)
                reader = wire.Reader(current.emit, endpoint.provider_id, response.headers, now_ms)
                await self._read(response, reader, timer)
        except TimeoutError:
            _end(response, is_good=False)
            if reader is None or not reader.is_complete:
                raise self._stalled(response, reader) from None
        except ModelCallError as failure:
            _end(response, is_good=False)
            if reader is not None and reader.has_usage:
                failure.details["usage"] = reader.usage()
            raise
        except BaseException:
            _end(response, is_good=False)
            raise
        _end(response, is_good=True)
        assert reader is not None
        assert response is not None
        return _assembled(reader, response)

    def _stalled(self, response: Response | None, reader: AnswerReader | None) -> ModelCallError:
        if response is not None and not 200 <= response.status < 300:
            return failures.from_response(response.status, response.headers, b"", self._clock.now_ms())
        if reader is None or reader.draft.is_empty:
            message = f"the provider sent nothing for {self._timeouts.first_byte_s:g} s"
        else:
            message = f"the provider's stream was silent for {self._timeouts.idle_s:g} s"
        request_id = failures.request_id_of(response.headers) if response is not None else None
        usage = reader.usage() if reader is not None and reader.has_usage else None
        return _failure("LLM_STALLED", message, request_id=request_id, usage=usage)

    async def _read(self, response: Response, reader: AnswerReader, timer: asyncio.Timeout) -> None:
        """Read until the answer is complete.

        Raises: ModelCallError if it never is.
        """
        first = await _first_bytes(response)
        if _is_stream(first, response):
            await self._read_stream(first, response, reader, timer)
        else:
            await _read_body(first, response, reader)

    async def _read_stream(
        self, data: bytes, response: Response, reader: AnswerReader, timer: asyncio.Timeout
    ) -> None:
        loop = asyncio.get_running_loop()
        parser = SseParser()
        try:
            while data:
                was_complete = reader.is_complete
                is_progress = False
                for event in parser.feed(data):
                    is_progress = reader.feed(event) or is_progress
                    if reader.is_terminal:
                        return
                if reader.is_complete:
                    if not was_complete or is_progress:
                        timer.reschedule(loop.time() + (_DONE_S if reader.has_usage else _USAGE_S))
                elif is_progress:
                    timer.reschedule(loop.time() + self._timeouts.idle_s)
                data = await response.read()
        except ModelCallError as failure:
            if not (reader.is_complete and failure.code == "LLM_UPSTREAM_ERROR" and not failure.http_status):
                raise
        if not reader.is_complete:
            raise ModelCallError(
                "LLM_UPSTREAM_ERROR",
                "the provider's stream ended in the middle of the answer",
                request_id=failures.request_id_of(response.headers),
            )


def _end(response: Response | None, *, is_good: bool) -> None:
    if response is not None:
        if is_good:
            response.release()
        else:
            response.abort()


async def _first_bytes(response: Response) -> bytes:
    """Enough of the body to tell a stream from anything else."""
    data = b""
    while len(data.lstrip(b"\xef\xbb\xbf \t\r\n")) < 6:
        more = await response.read()
        if not more:
            break
        data += more
        if len(data) > MAX_EVENT_BYTES:
            break
    return data


def _is_stream(first: bytes, response: Response) -> bool:
    """What the body is decides; the content type only where the body could be either."""
    body = first.lstrip(b"\xef\xbb\xbf \t\r\n")
    if body[:1] in (b"{", b"[", b"<"):
        return False
    if not body or body.startswith(_SSE_FIELDS):
        return True
    return (failures.header(response.headers, b"content-type") or "").lower().startswith("text/event-stream")


async def _read_body(first: bytes, response: Response, reader: AnswerReader) -> None:
    """A whole answer in one JSON body, though a stream was asked for."""
    pieces, size = [first], len(first)
    if first.lstrip()[:1] in (b"{", b"["):
        while data := await response.read():
            pieces.append(data)
            size += len(data)
            if size > MAX_EVENT_BYTES:
                raise ModelCallError(
                    "LLM_BAD_RESPONSE", f"the provider sent a body of more than {MAX_EVENT_BYTES} bytes"
                )
    body = b"".join(pieces)
    try:
        value = decode(body)
    except PayloadError:
        raise failures.foreign_body(response.headers, body) from None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict) or not reader.feed_body(value):
        raise failures.foreign_body(response.headers, body)


def _assembled(reader: AnswerReader, response: Response) -> Answer:
    """The answer, unless the provider says that it is none."""
    found = reader.finish()
    request_id = failures.request_id_of(response.headers)
    usage = found.usage if reader.has_usage else None
    if found.refusal is not None:
        said = failures.printable(f"the model refused: {found.refusal}")
        raise _failure("LLM_CONTENT_REFUSED", said, request_id=request_id, usage=usage)
    if found.failure_label is not None:
        broke = f"the provider broke its answer off ({found.failure_label})"
        raise _failure("LLM_UPSTREAM_ERROR", broke, request_id=request_id, usage=usage)
    return Answer(
        content=found.content, finish_reason=found.finish_reason, usage=found.usage, request_id=request_id
    )


def _judged(answer: Answer, request: ModelRequest, *, may_be_empty: bool) -> Answer:
    """`answer`, if it is one that a turn can go on with."""
    has_calls = any(isinstance(block, ToolCallBlock) for block in answer.content)
    texts = [block.text for block in answer.content if isinstance(block, TextBlock)]
    if has_calls or answer.finish_reason == "length":
        return answer
    if request.tools and any(_leaks_call(text) for text in texts):
        message = "the model wrote a tool call into its text instead of making it"
    elif not texts and not may_be_empty:
        message = "the model thought, but said nothing" if answer.content else "the model said nothing"
    else:
        return answer
    raise _failure("LLM_EMPTY_RESPONSE", message, request_id=answer.request_id, usage=answer.usage)


def _failure(code: str, message: str, *, request_id: str | None, usage: Usage | None) -> ModelCallError:
    failure = ModelCallError(code, message, request_id=request_id)
    if usage is not None and usage != Usage():
        failure.details["usage"] = usage
    return failure


def _leaks_call(text: str) -> bool:
    if "tool_call>" not in text:
        return False
    from mcode_exec.providers.leaked_calls import leaks_call

    return leaks_call(text)


def _wire_module(api: WireFormat) -> ModuleType:
    """Only the format that is spoken is imported."""
    if api == "anthropic-messages":
        from mcode_exec.providers import anthropic_messages

        return anthropic_messages
    if api == "openai-responses":
        from mcode_exec.providers import openai_responses

        return openai_responses
    from mcode_exec.providers import openai_completions

    return openai_completions


def _address(endpoint: Endpoint, path: str) -> str:
    base, _, query = endpoint.base_url.partition("?")
    pairs = [query] if query else []
    if endpoint.query:
        from urllib.parse import urlencode

        pairs.append(urlencode(endpoint.query))
    return base.rstrip("/") + path + ("?" + "&".join(pairs) if pairs else "")


def _headers(endpoint: Endpoint, call: WireRequest) -> failures.Headers:
    """Header lines in an order that never changes; the configuration's own come last and win.

    Raises: KeyMissingError; ConfigError for what cannot be sent.
    """
    lines = {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        "user-agent": f"mcode-exec/{VERSION}",
        **dict(call.headers),
    }
    if endpoint.auth != "none":
        key = (endpoint.api_key or "").strip()
        if not key:
            where = f"set {endpoint.key_env}" if endpoint.key_env else "set api_key in the configuration"
            raise KeyMissingError(f"no key for the provider {endpoint.provider_id}: {where}")
        if not key.isascii() or not key.isprintable():
            raise ConfigError(
                f"the key of the provider {endpoint.provider_id} holds a character no key can hold"
                + (f"; look at {endpoint.key_env}" if endpoint.key_env else "")
            )
        if endpoint.auth == "bearer":
            lines["authorization"] = f"Bearer {key}"
        else:
            lines[endpoint.auth] = key
    for name, value in endpoint.headers.items():
        lines[name.lower()] = value
    try:
        return [(name.encode("ascii"), value.encode("latin-1").strip()) for name, value in lines.items()]
    except UnicodeEncodeError:
        raise ConfigError(
            f"a header of the provider {endpoint.provider_id} holds a character that cannot be sent"
        ) from None
