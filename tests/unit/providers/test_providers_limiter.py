"""Many calls of one process share what a provider allows: one gate per provider and key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec import structs

from mcode_exec.clock import SystemClock
from mcode_exec.errors import ModelCallError
from mcode_exec.providers.client import ModelClient, RetryPolicy
from mcode_exec.providers.http import HttpClient
from mcode_exec.providers.limiter import Limiter
from mcode_exec.providers.wire import Endpoint
from tests.unit.providers.byte_peer import endpoint, http, request, said

HERE = endpoint("http://127.0.0.1:9/v1")
PAUSE_S = 0.2


def refusal(hint_s: float | None = PAUSE_S, code: str = "LLM_RATE_LIMITED") -> ModelCallError:
    return ModelCallError(code, "no", retry_after_ms=None if hint_s is None else round(hint_s * 1000))


class Inside:
    """Who is at the provider, and who was at most."""

    def __init__(self, limiter: Limiter, where: Endpoint = HERE) -> None:
        self.limiter = limiter
        self.where = where
        self.now = self.most = 0
        self.entered: list[tuple[int, float]] = []

    async def call(self, name: int, outcome: ModelCallError | None = None, takes_s: float = 0.01) -> None:
        async with self.limiter.place(self.where):
            self.entered.append((name, asyncio.get_running_loop().time()))
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(takes_s)
                if outcome is not None:
                    raise outcome
            finally:
                self.now -= 1


def run(scenario: Callable[[Inside], Awaitable[None]]) -> Inside:
    async def main() -> Inside:
        inside = Inside(Limiter(rng=lambda: 0.0))
        await scenario(inside)
        return inside

    return asyncio.run(main())


async def refuse(inside: Inside, hint_s: float | None = PAUSE_S) -> None:
    with pytest.raises(ModelCallError):
        await inside.call(-1, refusal(hint_s))


def test_without_a_refusal_nobody_waits() -> None:
    async def scenario(inside: Inside) -> None:
        await asyncio.gather(*(inside.call(number) for number in range(50)))

    assert run(scenario).most == 50


def test_after_a_refusal_nobody_goes_until_the_provider_said_so_and_then_one_in_order() -> None:
    async def scenario(inside: Inside) -> None:
        await refuse(inside)
        closed_s = asyncio.get_running_loop().time()
        inside.most, inside.entered = 0, []
        await asyncio.gather(*(inside.call(number) for number in range(6)))
        assert inside.entered[0][1] - closed_s >= PAUSE_S * 0.9

    inside = run(scenario)
    assert [name for name, _ in inside.entered] == list(range(6))
    # one, and with each answer the room grows a little
    assert inside.most < 6


def test_the_room_grows_quickly_to_half_of_what_was_refused_and_slowly_from_there() -> None:
    async def scenario(inside: Inside) -> None:
        async def one(number: int) -> None:
            with pytest.raises(ModelCallError):
                await inside.call(number, refusal(0.05))

        await asyncio.gather(*(one(number) for number in range(16)))
        inside.most = 0
        await asyncio.gather(*(inside.call(number) for number in range(60)))

    assert 8 <= run(scenario).most < 16


def test_calls_that_were_under_way_when_the_gate_closed_close_it_once() -> None:
    async def scenario(inside: Inside) -> None:
        async def one(number: int) -> None:
            with pytest.raises(ModelCallError):
                await inside.call(number, refusal(0.05), takes_s=0.01 + 0.0005 * number)

        await asyncio.gather(*(one(number) for number in range(16)))
        inside.most = 0
        await asyncio.gather(*(inside.call(number) for number in range(60)))

    assert run(scenario).most >= 4


def test_other_keys_and_other_failures_do_not_close_the_gate() -> None:
    async def scenario(inside: Inside) -> None:
        await refuse(inside, 3600.0)
        other = Inside(inside.limiter, structs.replace(HERE, api_key="another"))
        await other.call(1)
        with pytest.raises(ModelCallError):
            await other.call(2, refusal(3600.0, "LLM_UPSTREAM_ERROR"))
        await other.call(3)

    run(scenario)


def test_whoever_gives_up_waiting_takes_no_place() -> None:
    async def scenario(inside: Inside) -> None:
        await refuse(inside, 0.1)
        tasks = [asyncio.ensure_future(inside.call(number)) for number in range(5)]
        await asyncio.sleep(0)
        for task in tasks[:4]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert tasks[4].exception() is None
        # let in and cancelled in the same moment
        async with inside.limiter.place(HERE):
            late = asyncio.ensure_future(inside.call(9))
            await asyncio.sleep(0)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        await asyncio.gather(*(inside.call(number) for number in range(3)))

    run(scenario)


def test_calls_of_a_crowd_all_succeed_at_a_server_that_takes_two_at_once() -> None:
    """Real connections; without a limiter the budget of a single call would not reach."""
    here = refused = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal here, refused
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(size)
                here += 1
                if here > 2:
                    refused += 1
                    answer = http(b"{}", status="429 Too Many Requests", kind="application/json")
                else:
                    await asyncio.sleep(0.02)
                    answer = http(said())
                here -= 1
                writer.write(answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        where = endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        transport = HttpClient(environ={})
        client = ModelClient(
            transport=transport,
            limiter=Limiter(),
            retry=RetryPolicy(max_retries=1, base_delay_s=0.05, max_delay_s=0.1, budget_s=0.5),
            clock=SystemClock(),
        )
        answers = await asyncio.gather(
            *(client.complete(where, request(), lambda _: None) for _ in range(20))
        )
        assert len(answers) == 20
        await transport.close()
        server.close()

    asyncio.run(main())
    # the first crowd is refused, and few of those that follow
    assert 18 <= refused < 40
