"""What the loop is given and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from mcode_exec.records.frame import LiveFact
from mcode_exec.records.history import HistoryRecord, ImageBlock
from mcode_exec.records.model import Answer, ModelFact, ModelInfo, ModelRequest, ToolSchema
from mcode_exec.records.result import LimitHit, PermissionDenial, ToolFailure
from mcode_exec.records.usage import Price, Usage

if TYPE_CHECKING:
    from mcode_exec.providers.wire import Endpoint
    from mcode_exec.tools.context import ToolContext


class Limits(Struct, frozen=True, kw_only=True):
    """None: no such limit.  Each value with where it came from, for the sentence that names it."""

    max_steps: int | None = None
    max_cost_usd: Decimal | None = None
    max_tokens: int | None = None
    sources: dict[str, str] = {}


class AgentTask(Struct, frozen=True, kw_only=True):
    """One turn's fixed facts."""

    turn_id: str
    agent: str | None
    model: ModelInfo
    endpoint: Endpoint
    system: str
    tools: tuple[ToolSchema, ...]
    effort: str | None
    limits: Limits
    #: monotonic second at which the turn is aborted; None: never
    deadline_s: float | None


class Ports(Protocol):
    """How the loop reaches the outside."""

    async def commit(self, record: HistoryRecord, *, failed: tuple[Usage, ...] = ()) -> None:
        """Make a record permanent; the loop goes on only then."""
        ...

    async def add_failed(self, message_id: str, failed: tuple[Usage, ...]) -> None:
        """Keep what a call cost that gave no answer."""
        ...

    def emit(self, fact: LiveFact) -> None:
        """Show a live fact; never waits."""
        ...

    async def complete(
        self, request: ModelRequest, on_fact: Callable[[ModelFact], None], *, may_be_empty: bool
    ) -> Answer:
        """One model call with its retries."""
        ...

    async def keep_image(self, mime: str, data: bytes) -> ImageBlock:
        """Store an image that a tool read; the block that stands for it."""
        ...

    def tool_context(self, call_id: str) -> ToolContext:
        """What a tool needs to run."""
        ...

    def now_ms(self) -> int: ...

    def progress(self, *, step: int, tool: str | None, phase: str) -> None:
        """What is going on, for a status line."""
        ...


class TurnState:
    """What a turn has come to so far; read by whoever concludes it, on every ending."""

    def __init__(self) -> None:
        self.steps = 0
        self.tool_calls = 0
        self.tool_failures: list[ToolFailure] = []
        self.denials: list[PermissionDenial] = []
        self.retries = 0
        self.usages: list[Usage] = []
        self.cost_usd: Decimal | None = Decimal(0)
        self.usage_incomplete = False
        #: what limits go by: failed attempts whose usage nobody reported count as the answer that followed
        self.spent_tokens = 0
        self.spent_usd = Decimal(0)
        #: an answer came without its usage: no limit can be kept from here on
        self.is_unmetered = False
        self.api_duration_ms = 0
        self.finish_reason: str | None = None
        #: the final answer, once there is one
        self.answer: str | None = None
        #: text of the newest step that said something, committed or still streaming
        self.latest_text: str | None = None
        self.limit: LimitHit | None = None

    @property
    def asks_denied(self) -> list[PermissionDenial]:
        return [denial for denial in self.denials if denial.verdict == "ask"]

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
        for unreported in failed:
            if not unreported.is_complete:
                self._spend(usage, cost_usd)

    def add_failed(self, usages: Sequence[Usage], price: Price | None) -> None:
        """Count attempts that gave no answer; they may have been billed all the same."""
        for usage in usages:
            cost_usd = price.cost_usd(usage) if price else None
            self._add(usage, cost_usd)
            if usage.is_complete:
                self._spend(usage, cost_usd)

    def add_unreported(self) -> None:
        """Count a call that was cut off from our side."""
        self._add(Usage(), None)

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
