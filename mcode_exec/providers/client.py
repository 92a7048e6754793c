"""One model call, from a request to an answer: send, read, judge, try again.

Invariants: nothing of a call counts before its terminal event; deltas of an
attempt that is given up are declared void before the next begins; only events
that bring the answer on reset the idle timer; no key is in any message.
Cancelling the task closes the socket at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from mcode_exec.clock import Clock
from mcode_exec.errors import ModelCallError
from mcode_exec.plurals import counted
from mcode_exec.providers import failures
from mcode_exec.providers.advice import advise
from mcode_exec.providers.reading import assembled, failure_with, judged, read_answer
from mcode_exec.providers.retry import RetryPolicy, call_with_retry, uniform
from mcode_exec.providers.sending import address, headers_of, wire_module
from mcode_exec.providers.transport import Response, Transport
from mcode_exec.providers.url import Url
from mcode_exec.providers.wire import AnswerReader, Endpoint, WireRequest
from mcode_exec.records.model import (
    Answer,
    AttemptDiscarded,
    CallCutOff,
    EffortLeftOut,
    ModelFact,
    ModelRequest,
    RetryScheduled,
)
from mcode_exec.records.usage import Usage

if TYPE_CHECKING:
    from mcode_exec.providers.limiter import Limiter

__all__ = ["Endpoint", "ModelClient", "RetryPolicy", "Timeouts"]

#: an error body: how much of it is read, and for how long
_ERROR_BYTES = 4 * 1024 * 1024
_ERROR_S = 10.0


class Timeouts(Struct, frozen=True, kw_only=True):
    """Seconds; `first_byte_s` to the first real event, `idle_s` between two of them, `answer_s` from it to the end."""

    connect_s: float = 10.0
    first_byte_s: float = 120.0
    idle_s: float = 90.0
    answer_s: float = 3600.0


class _Call:
    """One call over all its attempts: what was told, what failed, what that cost."""

    def __init__(
        self, endpoint: Endpoint, request: ModelRequest, on_fact: Callable[[ModelFact], None]
    ) -> None:
        self.wire = wire_module(endpoint.api)
        encoded: WireRequest = self.wire.encode(request, endpoint)
        self.endpoint = endpoint
        self.path = encoded.path
        self.url = Url(address(endpoint, encoded.path))
        self.headers = headers_of(endpoint, encoded)
        self.body = encoded.body
        if encoded.effort_left_out is not None:
            on_fact(EffortLeftOut(encoded.effort_left_out))
        #: what knows the same fields of a request
        self.server = (endpoint.base_url, request.model.ref.model_id)
        self.failed_usage: list[Usage] = []
        self.retries = 0
        #: whether the present attempt has told anything
        self.has_told = False
        #: seconds that its attempts waited for their place among others
        self.held_s = 0.0
        self._on_fact = on_fact

    def emit(self, fact: ModelFact) -> None:
        self.has_told = True
        self._on_fact(fact)

    def leave_out(self, field: str) -> None:
        from mcode_exec.providers.spare_fields import without

        self.body = without(self.body, field)

    def note_failure(self, failure: ModelCallError) -> None:
        usage = failure.details.pop("usage", None)
        if usage is None and (self.has_told or failure.code == "LLM_STALLED"):
            usage = Usage()  # what was generated, or is still, is billed, and nobody said how much it was
        if usage is not None:
            self.failed_usage.append(usage)
        failure.details["failed_usage"] = tuple(self.failed_usage)

    def note_cut_off(self, usage: Usage | None) -> None:
        """The request is out, and what it comes to will not be heard."""
        self.failed_usage.append(usage or Usage())

    def announce_cut_off(self) -> None:
        self._on_fact(CallCutOff(tuple(self.failed_usage)))

    def announce_retry(self, retry: int, max_retries: int, delay_s: float, failure: ModelCallError) -> None:
        self.retries = retry
        if self.has_told:
            self._on_fact(AttemptDiscarded(failure.message))
        self._on_fact(
            RetryScheduled(
                attempt=retry,
                max_retries=max_retries,
                delay_ms=round(delay_s * 1000),
                code=failure.code,
                reason=failure.message,
            )
        )


class ModelClient:
    """Calls models of any provider over one transport, which others may share."""

    def __init__(
        self,
        *,
        transport: Transport,
        limiter: Limiter | None = None,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        clock: Clock,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        rng: Callable[[], float] | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._policy = retry or RetryPolicy()
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or uniform
        self._log = log or (lambda _line: None)
        self._transport = transport
        self._limiter = limiter
        #: the spare fields that were refused, by address and model
        self._refused: dict[tuple[str, str], list[str]] = {}

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
        Cancellation: closes the connection; nothing of the call counts, and what may be billed is the last fact.
        """
        call = _Call(endpoint, request, on_fact)
        for field in self._refused.get(call.server, ()):
            call.leave_out(field)
        started_s = self._clock.monotonic_s()

        async def attempt() -> Answer:
            while True:
                call.has_told = False
                if on_api_call is not None:
                    on_api_call()
                try:
                    return judged(await self._placed(call, deadline_s), request, may_be_empty=may_be_empty)
                except ModelCallError as failure:
                    advise(failure, endpoint)
                    self._log(f"{endpoint.provider_id}: {failure.code}: {failure.message}")
                    if self._leaves_out(call, failure):
                        continue
                    call.note_failure(failure)
                    raise

        answer = await self._with_retries(call, attempt, deadline_s)
        return structs.replace(
            answer,
            failed_usage=tuple(call.failed_usage),
            duration_ms=round((self._clock.monotonic_s() - started_s) * 1000),
            retries=call.retries,
        )

    def _leaves_out(self, call: _Call, failure: ModelCallError) -> bool:
        """Whether the call was refused for a field that it can do without, and now does: it is asked once more."""
        if failure.code != "LLM_BAD_REQUEST":
            return False
        from mcode_exec.providers.spare_fields import refused_field

        field = refused_field(failure, call.body, call.endpoint.api)
        refused = self._refused.setdefault(call.server, [])
        if field is None or field in refused:
            return False
        refused.append(field)
        call.leave_out(field)
        return True

    async def _with_retries(
        self, call: _Call, attempt: Callable[[], Awaitable[Answer]], deadline_s: float | None
    ) -> Answer:
        max_retries = self._policy.max_retries
        try:
            return await call_with_retry(
                attempt,
                policy=self._policy,
                clock=self._clock,
                sleep=self._sleep,
                rng=self._rng,
                deadline_s=deadline_s,
                held_s=lambda: call.held_s,
                on_retry=lambda retry, delay_s, failure: call.announce_retry(
                    retry, max_retries, delay_s, failure
                ),
            )
        except asyncio.CancelledError:
            call.announce_cut_off()
            raise

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()

    async def _placed(self, call: _Call, deadline_s: float | None) -> Answer:
        if self._limiter is None:
            return await self._attempt(call, deadline_s)
        while True:
            started_s, waited_s = self._clock.monotonic_s(), 0.0
            try:
                async with self._limiter.place(call.endpoint) as waited_s:
                    call.held_s += waited_s
                    return await self._attempt(call, deadline_s)
            except ModelCallError as failure:
                if not failure.details.pop("is_crowded", False):
                    raise
                # others were answered meanwhile: it is asked again in its turn, which costs no attempt
                call.held_s += self._clock.monotonic_s() - started_s - waited_s

    async def _attempt(self, call: _Call, deadline_s: float | None) -> Answer:
        loop = asyncio.get_running_loop()
        url = call.url
        path = url.target.partition("?")[0]
        self._log(f"POST {url.scheme}://{url.host}:{url.port}{path} ({counted(len(call.body), 'byte')})")
        limit_s = self._timeouts.first_byte_s
        response: Response | None = None
        reader: AnswerReader | None = None
        is_out = False

        def goes_out() -> None:
            nonlocal is_out
            is_out = True
            timer.reschedule(loop.time() + limit_s)

        try:
            async with asyncio.timeout(None) as timer:
                response = await self._transport.post(url, call.headers, call.body, on_connected=goes_out)
                self._log(
                    f"{response.status} ({failures.request_id_of(response.headers) or 'no request id'})"
                )
                now_ms = self._clock.now_ms()
                if not 200 <= response.status < 300:
                    left_s = (timer.when() or 0.0) - loop.time()
                    timer.reschedule(None)
                    refusal = await _refusal(response, call, min(left_s, _ERROR_S), now_ms)
                    response.release()
                    response = None
                    raise refusal
                reader = call.wire.Reader(call.emit, call.endpoint.provider_id, response.headers, now_ms)
                limits = self._timeouts
                await read_answer(
                    response,
                    reader,
                    timer,
                    idle_s=limits.idle_s,
                    answer_s=limits.answer_s,
                    left_s=None if deadline_s is None else deadline_s - self._clock.monotonic_s(),
                )
        except TimeoutError:
            _end(response, is_good=False)
            if reader is None or not reader.is_complete:
                raise self._stalled(url, response, reader) from None
        except ModelCallError as failure:
            _end(response, is_good=False)
            if (usage := _usage_so_far(reader)) is not None:
                failure.details["usage"] = usage
            raise
        except BaseException as error:
            _end(response, is_good=False)
            if isinstance(error, asyncio.CancelledError) and is_out:  # else nobody has anything to bill
                call.note_cut_off(_usage_so_far(reader))
            raise
        _end(response, is_good=True)
        assert reader is not None
        assert response is not None
        return assembled(reader, response.headers)

    def _stalled(self, url: Url, response: Response | None, reader: AnswerReader | None) -> ModelCallError:
        from mcode_exec.providers.unfinished import silence

        limits = self._timeouts
        message = silence(
            f"{url.scheme}://{url.netloc}",
            None if response is None else response.status,
            reader,
            first_byte_s=limits.first_byte_s,
            idle_s=limits.idle_s,
        )
        request_id = failures.request_id_of(response.headers) if response is not None else None
        return failure_with("LLM_STALLED", message, request_id=request_id, usage=_usage_so_far(reader))


async def _refusal(response: Response, call: _Call, limit_s: float, now_ms: int) -> ModelCallError:
    """What an answer other than 2xx means; its body is waited for no longer than `limit_s`."""
    if 300 <= response.status < 400:
        from mcode_exec.providers.redirects import redirected

        return redirected(response.status, response.headers, call.url, call.path, call.endpoint.provider_id)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + limit_s
    body = await response.read_at_most(_ERROR_BYTES, limit_s)
    is_late = loop.time() >= end_s
    return failures.from_response(
        response.status, response.headers, body, now_ms, is_late=is_late, proxy=response.proxy
    )


def _usage_so_far(reader: AnswerReader | None) -> Usage | None:
    """What a failed attempt reported; its output is unknown if it was cut off before its end."""
    if reader is None:
        return None
    if not reader.has_usage:
        return Usage() if any(reader.refusals) else None
    usage = reader.usage()
    if reader.is_complete or reader.is_counted:
        return usage
    return structs.replace(usage, output_tokens=None, reasoning_tokens=None)


def _end(response: Response | None, *, is_good: bool) -> None:
    if response is not None:
        if is_good:
            response.release()
        else:
            response.abort()
