"""When a failed call is tried again: at most so often, at most so long, never past the deadline.

The first attempt runs bare; tenacity is imported when it has failed in a way
that another attempt may mend.  The budget runs from that first failure, and a
wait that would end after it, or after the turn's deadline, is not begun.
Source: docs/contract.md §6.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec import Struct

from mcode_exec.clock import Clock
from mcode_exec.errors import ModelCallError
from mcode_exec.providers.failures import MAX_MESSAGE

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[Any]]


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """Seconds; `max_retries` counts what follows the first request."""

    max_retries: int = 5
    base_delay_s: float = 1.0
    max_delay_s: float = 30.0
    #: from the first failure on
    budget_s: float = 120.0

    def delay_s(self, retry: int, hint_ms: int | None, rng: Callable[[], float]) -> float:
        """The wait before retry number `retry` (from 1); a server's hint replaces the backoff."""
        if hint_ms is not None:
            return min(max(0.0, hint_ms / 1000), self.max_delay_s)
        backoff: float = self.base_delay_s * 2.0 ** min(retry - 1, 64)
        return min(backoff, self.max_delay_s) * (0.5 + 0.5 * rng())


def uniform() -> float:
    """A random number from 0 to 1; `random` is imported by the first retry only."""
    import random

    return random.random()


async def call_with_retry(
    attempt: Callable[[], Awaitable[T]],
    *,
    policy: RetryPolicy,
    clock: Clock,
    sleep: Sleep,
    rng: Callable[[], float],
    deadline_s: float | None,
    on_retry: Callable[[int, float, ModelCallError], None],
    held_s: Callable[[], float] = lambda: 0.0,
) -> T:
    """The first result of `attempt`, or its last failure.

    `on_retry(retry, delay_s, failure)` is called before each wait; `held_s` tells how long attempts
    have waited for their place so far, which is no part of the budget.
    Raises: ModelCallError; one that ends retrying says how often and how long it was tried.
    """
    try:
        return await attempt()
    except ModelCallError as failure:
        if not failure.is_retried or policy.max_retries < 1:
            raise
        first = failure
    return await _retry(
        first,
        attempt,
        policy=policy,
        clock=clock,
        sleep=sleep,
        rng=rng,
        deadline_s=deadline_s,
        on_retry=on_retry,
        held_s=held_s,
    )


async def _retry(
    first: ModelCallError,
    attempt: Callable[[], Awaitable[T]],
    *,
    policy: RetryPolicy,
    clock: Clock,
    sleep: Sleep,
    rng: Callable[[], float],
    deadline_s: float | None,
    on_retry: Callable[[int, float, ModelCallError], None],
    held_s: Callable[[], float],
) -> T:
    from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

    first_failure_s, held_before_s = clock.monotonic_s(), held_s()
    attempts, why = 0, ""

    def wait(state: RetryCallState) -> float:
        failure = _failure_of(state)
        return policy.delay_s(state.attempt_number, failure.retry_after_ms, rng)

    def is_spent(state: RetryCallState) -> bool:
        nonlocal why
        wait_s = state.upcoming_sleep
        ends_s = clock.monotonic_s() + wait_s
        if deadline_s is not None and ends_s > deadline_s:
            why = f"a wait of {wait_s:.3g} s would end after the run's time limit"
        elif ends_s - first_failure_s - (held_s() - held_before_s) > policy.budget_s:
            why = f"a wait of {wait_s:.3g} s would end after the retry budget of {policy.budget_s:g} s"
        return bool(why)

    async def again() -> T:
        nonlocal attempts
        attempts += 1
        if attempts == 1:  # it has been made already
            raise first
        return await attempt()

    # made anew for every call: tenacity's object carries the state of one
    retrying = AsyncRetrying(
        sleep=sleep,
        stop=lambda state: stop_after_attempt(policy.max_retries + 1)(state) or is_spent(state),
        wait=wait,
        retry=retry_if_exception(lambda error: isinstance(error, ModelCallError) and error.is_retried),
        before_sleep=lambda state: on_retry(state.attempt_number, state.upcoming_sleep, _failure_of(state)),
        reraise=True,
    )
    try:
        return await retrying(again)
    except ModelCallError as failure:
        if not failure.is_retried:
            raise
        elapsed_s = clock.monotonic_s() - first_failure_s
        raise _with_history(failure, attempts, elapsed_s, why) from failure


def _failure_of(state: Any) -> ModelCallError:
    failure = state.outcome.exception()
    assert isinstance(failure, ModelCallError)
    return failure


def _with_history(failure: ModelCallError, attempts: int, elapsed_s: float, why: str) -> ModelCallError:
    """`failure`, with how often and how long it was tried, and why no longer where that was not the number."""
    tried = f"{attempts} attempts" if attempts > 1 else "1 attempt"
    tried = f" ({tried}, {elapsed_s:.0f} s since the first failure{'; ' + why if why else ''})"
    return ModelCallError(
        failure.code,
        failure.message[: MAX_MESSAGE - len(tried)] + tried,
        http_status=failure.http_status,
        request_id=failure.request_id,
        retry_after_ms=failure.retry_after_ms,
        **failure.details,
    )
