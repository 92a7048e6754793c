"""What the loop is given: a turn's fixed facts, its limits, and the way to everything outside of it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from mcode_exec.records.frame import LiveFact
from mcode_exec.records.history import HistoryRecord, ImageBlock, ToolCallBlock
from mcode_exec.records.invocation import Check
from mcode_exec.records.model import Answer, ModelFact, ModelInfo, ModelRequest, ToolSchema
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.records.usage import Usage

if TYPE_CHECKING:
    from mcode_exec.providers.wire import Endpoint
    from mcode_exec.tools.context import ToolContext


class Limits(Struct, frozen=True, kw_only=True):
    """None: no such limit.  Each value with where it came from, for the sentence that names it."""

    max_steps: int | None = None
    max_cost_usd: Decimal | None = None
    max_tokens: int | None = None
    sources: dict[str, str] = {}


class Callee(Struct, frozen=True, kw_only=True):
    """A model as it is called."""

    model: ModelInfo
    endpoint: Endpoint
    effort: str | None
    #: reads the key anew, where it comes from a file or a command that may give another one by now; blocks
    read_key: Callable[[], str | None] | None = None


class Steer(Struct, frozen=True, kw_only=True):
    """Words for the turn that runs, and the id of the message that they become."""

    message_id: str
    producer: str
    text: str
    #: of no person: the turn may not close before it is taken
    is_machine: bool


class AgentTask(Struct, frozen=True, kw_only=True):
    """One turn's fixed facts."""

    turn_id: str
    agent: str | None
    #: names the session to a provider's prompt cache
    cache_key: str | None = None
    callee: Callee
    #: what is called instead, one after the other, when calls have failed for good though they might have succeeded
    fallbacks: tuple[Callee, ...] = ()
    system: str
    tools: tuple[ToolSchema, ...]
    #: tools that a rule denies as a whole: not offered, and a call of one is denied
    hidden_tools: frozenset[str] = frozenset()
    limits: Limits
    #: what an answer has to stand before it is one
    check: Check | None = None
    #: monotonic second at which the turn is aborted; None: never
    deadline_s: float | None

    @property
    def model(self) -> ModelInfo:
        return self.callee.model


class Ports(Protocol):
    """How the loop reaches the outside."""

    async def commit(self, record: HistoryRecord, *, failed: tuple[Usage, ...] = ()) -> None:
        """Make a record permanent; the loop goes on only then."""
        ...

    def steering(self) -> tuple[Steer, ...]:
        """What had been said to the turn by the newest commit and was not taken yet, oldest first."""
        ...

    async def add_failed(self, message_id: str, failed: tuple[Usage, ...]) -> None:
        """Keep what a call cost that gave no answer."""
        ...

    def use(self, callee: Callee) -> None:
        """From here on `callee` is called, and paid."""
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

    async def run_tool(self, call: ToolCallBlock) -> ToolOutcome:
        """Run one call that may run; what it gave back."""
        ...

    async def run_check(self, check: Check) -> ToolOutcome:
        """Run the turn's check; `metadata` says how it ended, and nothing where it could not be started."""
        ...

    def tool_context(self, call_id: str) -> ToolContext:
        """What a tool needs to run."""
        ...

    def now_ms(self) -> int: ...

    def progress(self, *, step: int, tool: str | None, phase: str) -> None:
        """What is going on, for a status line."""
        ...
