"""How many calls a provider gets at once from one process, and when: one gate per provider and key.

Many sessions that are told to wait would otherwise each find out for
themselves, and come back together.  A refusal for its rate closes the gate for
as long as the provider says, a little longer each time by chance; then one call
goes, and with each answer more may go beside each other, as many as went well
before (the way of TCP's congestion window, RFC 5681).  Waiting at the gate
costs no attempt and none of the retry budget.  A single `exec` has no limiter:
its calls follow docs/contract.md §6 alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.retry import uniform
from mcode_exec.providers.wire import Endpoint

#: codes that mean "not so many, not so fast"
_TOO_MUCH = frozenset({"LLM_RATE_LIMITED", "LLM_TPM_RATE_LIMITED", "LLM_CLUSTER_OVERLOADED"})
#: how long a refusal without a hint closes the gate
_PAUSE_S = 1.0
#: the longest hint that is followed
MAX_PAUSE_S = 3600.0
#: by which part of itself a pause is longer, at most
_SPREAD = 0.1


class Limiter:
    """The gates of one process."""

    def __init__(self, *, rng: Callable[[], float] = uniform) -> None:
        self._gates: dict[tuple[str, str, str | None], _Gate] = {}
        self._rng = rng

    @asynccontextmanager
    async def place(self, endpoint: Endpoint) -> AsyncIterator[float]:
        """A place among the calls to this provider; the seconds that it was waited for.

        A ModelCallError that leaves the block is taken into account; `details["is_crowded"]` is set where others
        were answered or are under way, so that there were too many calls and nothing is wrong with the provider.
        Cancellation: gives the place, or the wait for it, up.
        """
        key = (endpoint.provider_id, endpoint.base_url, endpoint.api_key)
        gate = self._gates.setdefault(key, _Gate(self._rng))
        waited_s = await gate.enter()
        answers = gate.answers
        try:
            yield waited_s
        except ModelCallError as failure:
            if failure.code in _TOO_MUCH:
                gate.refused(None if failure.retry_after_ms is None else failure.retry_after_ms / 1000)
                failure.details["is_crowded"] = gate.answers > answers or gate.inside > 1
            raise
        else:
            gate.answered()
        finally:
            gate.leave()


class _Gate:
    """Invariant: whoever waits is let in in order, as soon as there is room and the pause is over."""

    def __init__(self, rng: Callable[[], float]) -> None:
        self._rng = rng
        self.inside = 0
        #: calls that went well
        self.answers = 0
        #: how many may be inside; without a refusal there is no limit
        self._room = float("inf")
        #: up to here the room grows quickly
        self._went_well = float("inf")
        self._opens_s = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self) -> float:
        """Wait for a place; the seconds that took."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        me: asyncio.Future[None] = loop.create_future()
        self._waiting.append(me)
        self._let_in()
        try:
            await me
        except asyncio.CancelledError:
            if me.done() and not me.cancelled():
                self.leave()
            else:
                self._waiting.remove(me)
            raise
        return loop.time() - start_s

    def leave(self) -> None:
        self.inside -= 1
        self._let_in()

    def refused(self, hint_s: float | None) -> None:
        """The provider has refused a call for its rate."""
        now_s = asyncio.get_running_loop().time()
        pause_s = min(_PAUSE_S if hint_s is None else hint_s, MAX_PAUSE_S) * (1 + _SPREAD * self._rng())
        if now_s >= self._opens_s:
            # calls that were under way when the gate closed tell nothing new
            self._went_well = max(1.0, min(self._room, self.inside) / 2)
        self._room = 1.0
        self._opens_s = max(self._opens_s, now_s + pause_s)

    def answered(self) -> None:
        self.answers += 1
        if asyncio.get_running_loop().time() >= self._opens_s:
            self._room += 1.0 if self._room < self._went_well else 1.0 / self._room

    def _let_in(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = self._opens_s - loop.time()
        while self._waiting and self.inside < int(min(self._room, 1e9)) and left_s <= 0:
            one = self._waiting.popleft()
            if not one.done():
                one.set_result(None)
                self.inside += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and left_s > 0:
            self._timer = loop.call_later(left_s, self._let_in)
