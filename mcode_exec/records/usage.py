"""Tokens and money of model calls, in disjoint classes whatever the provider's own form.

None means unknown and makes a sum incomplete; it is never read as zero.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from msgspec import Struct

#: what usage is summed by
By = Literal["agent", "session", "model", "day"]


class Usage(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Tokens of one provider answer, or the sum over several.

    `input_tokens` excludes what came from or went to a cache; `output_tokens`
    excludes reasoning where the provider tells it apart.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None

    @property
    def total_tokens(self) -> int | None:
        """Sum of the known classes, so that totals add up as the classes do; None when none is known."""
        classes = (
            self.input_tokens,
            self.output_tokens,
            self.reasoning_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
        )
        known = [tokens for tokens in classes if tokens is not None]
        return sum(known) if known else None

    @property
    def is_complete(self) -> bool:
        return self.input_tokens is not None and self.output_tokens is not None


#: no price of this world is larger; keeps arithmetic exact
MAX_PRICE = 10**12


def is_price(value: Decimal) -> bool:
    """Whether so many USD per million tokens can be a price; other people's data hold -1, NaN and worse."""
    return value.is_finite() and 0 <= value <= MAX_PRICE


class Price(Struct, frozen=True, kw_only=True):
    """USD per million tokens; a class without its own price is charged as input or output."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    #: what a call costs, all of it, whose prompt has more than so many tokens; ascending
    tiers: tuple[tuple[int, Price], ...] = ()

    @property
    def highest_output(self) -> Decimal:
        return max((self.output, *(price.output for _, price in self.tiers)))

    def cost_usd(self, usage: Usage) -> Decimal | None:
        """Σ class × price / 1,000,000; reasoning at the output price; None for incomplete usage."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        prompt = usage.input_tokens + (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
        for above, price in reversed(self.tiers):
            if prompt > above:
                return price.cost_usd(usage)
        cache_read = self.input if self.cache_read is None else self.cache_read
        cache_write = self.input if self.cache_write is None else self.cache_write
        total = (
            usage.input_tokens * self.input
            + (usage.output_tokens + (usage.reasoning_tokens or 0)) * self.output
            + (usage.cache_read_tokens or 0) * cache_read
            + (usage.cache_write_tokens or 0) * cache_write
        )
        return total / 1_000_000
