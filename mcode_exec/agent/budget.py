"""A sum that several turns of a process may spend together.

No call starts that would go beyond it as calls went so far: the mean cost of a
call is set aside for each that is under way.  Where nothing is known yet, and
for a call that costs more than the mean, the output is cut to a share of what
is left, as with a limit of one turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal


class Budget:
    """What may be spent, what has been, and how many calls are under way."""

    def __init__(self, max_usd: Decimal, spent_usd: Decimal, source: str) -> None:
        self.max_usd = max_usd
        self.spent_usd = spent_usd
        #: where the sum stands, for the sentence that names it
        self.source = source
        self._counted = 0
        self._counted_usd = Decimal(0)
        self._calls = 0
        self._changed = asyncio.Event()

    @property
    def mean_usd(self) -> Decimal:
        """What a call has cost so far; 0 before the first."""
        return self._counted_usd / self._counted if self._counted else Decimal(0)

    @property
    def is_spent(self) -> bool:
        """Whether no further call may start, those under way aside."""
        return self.spent_usd >= self.max_usd or self.spent_usd + self.mean_usd > self.max_usd

    @property
    def share_usd(self) -> Decimal:
        """What each call under way may still cost."""
        return max(Decimal(0), self.max_usd - self.spent_usd) / max(1, self._calls)

    def spend(self, cost_usd: Decimal) -> None:
        self.spent_usd += cost_usd
        self._counted_usd += cost_usd
        self._counted += 1

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """A place for one call; waits while those under way may use up what is left."""
        while self._calls and self.spent_usd + self.mean_usd * (self._calls + 1) > self.max_usd:
            self._changed.clear()
            await self._changed.wait()
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._changed.set()
