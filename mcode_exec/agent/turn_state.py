"""What a turn has come to: steps, calls, denials, answer, and what all of it used.

Two sums are kept.  The reported one goes into the result: one unknown part
makes it incomplete, and the cost unknown.  What limits go by is never unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from mcode_exec.records.result import CheckInfo, LimitHit, ModelSwitch, PermissionDenial, ToolFailure
from mcode_exec.records.usage import Price, Usage

if TYPE_CHECKING:
    from mcode_exec.agent.budget import Budget


class TurnState:
    """What a turn has come to so far; read by whoever concludes it, on every ending."""

    def __init__(self, budget: Budget | None = None) -> None:
        #: what it spends together with other turns
        self.budget = budget
        self.steps = 0
        self.tool_calls = 0
        self.tool_failures: list[ToolFailure] = []
        self.denials: list[PermissionDenial] = []
        self.retries = 0
        self.switches: list[ModelSwitch] = []
        self.usages: list[Usage] = []
        self.cost_usd: Decimal | None = Decimal(0)
        self.usage_incomplete = False
        #: what limits go by: failed attempts whose usage nobody reported count as the answer that followed
        self.spent_tokens = 0
        self.spent_usd = Decimal(0)
        #: whether such attempts are in it
        self.is_estimate = False
        #: prices of those that no answer has followed yet
        self._unreported: list[Price | None] = []
        #: an answer came without its usage: no limit can be kept from here on
        self.is_unmetered = False
        self.api_duration_ms = 0
        self.finish_reason: str | None = None
        #: the final answer, once there is one
        self.answer: str | None = None
        self._latest: list[str] | None = None
        self.limit: LimitHit | None = None
        #: how the newest run of the check ended
        self.check: CheckInfo | None = None

    @property
    def asks_denied(self) -> list[PermissionDenial]:
        return [denial for denial in self.denials if denial.verdict == "ask"]

    @property
    def latest_text(self) -> str | None:
        """Text of the newest step that said something, committed or still streaming."""
        return None if self._latest is None else "".join(self._latest)

    @latest_text.setter
    def latest_text(self, text: str | None) -> None:
        self._latest = None if text is None else [text]

    def add_latest(self, piece: str) -> None:
        """The text that was set last goes on."""
        assert self._latest is not None
        self._latest.append(piece)

    def total_usage(self) -> Usage:
        """The sum over all answers; a class that nobody reported is None."""

        def total(name: str) -> int | None:
            values = [getattr(usage, name) for usage in self.usages]
            known = [value for value in values if value is not None]
            return sum(known) if known else None

        return Usage(
            input_tokens=total("input_tokens"),
            output_tokens=total("output_tokens"),
            reasoning_tokens=total("reasoning_tokens"),
            cache_read_tokens=total("cache_read_tokens"),
            cache_write_tokens=total("cache_write_tokens"),
        )

    def add_answer(
        self, usage: Usage, cost_usd: Decimal | None, failed: Sequence[Usage], price: Price | None
    ) -> None:
        """Count one answer and the attempts that failed before it."""
        self._add(usage, cost_usd)
        self.is_unmetered = self.is_unmetered or not usage.is_complete
        self._spend(usage, cost_usd)
        self.add_failed(failed, price)
        # they sent what this answer's request sent, whichever model was asked
        for unreported in self._unreported:
            self._spend(usage, unreported.cost_usd(usage) if unreported else None)
            self.is_estimate = True
        self._unreported.clear()

    def add_failed(self, usages: Sequence[Usage], price: Price | None) -> None:
        """Count attempts that gave no answer; they may have been billed all the same."""
        for usage in usages:
            cost_usd = price.cost_usd(usage) if price else None
            self._add(usage, cost_usd)
            if usage.is_complete:
                self._spend(usage, cost_usd)
            else:
                self._unreported.append(price)

    def _add(self, usage: Usage, cost_usd: Decimal | None) -> None:
        """Unknown is not zero: it makes the sum incomplete."""
        self.usages.append(usage)
        if not usage.is_complete:
            self.usage_incomplete = True
        if cost_usd is None:
            self.cost_usd = None
        elif self.cost_usd is not None:
            self.cost_usd += cost_usd

    def _spend(self, usage: Usage, cost_usd: Decimal | None) -> None:
        self.spent_tokens += usage.total_tokens or 0
        self.spent_usd += cost_usd or 0
        if self.budget is not None and cost_usd is not None:
            self.budget.spend(cost_usd)
