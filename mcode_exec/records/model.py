"""One model call: what is asked, what streams back, what counts in the end.

`providers/` turns any wire format into these; `agent/` knows no other form.
A delta's `index` is the position its block will have in `Answer.content`.
Nothing but the `Answer` counts: deltas of a call that breaks are void.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct

from mcode_exec.records.history import Block, Message
from mcode_exec.records.usage import Price, Usage

WireFormat = Literal["anthropic-messages", "openai-completions", "openai-responses"]
FinishReason = Literal["stop", "tool_calls", "length", "refusal", "unknown"]


class ModelRef(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """`provider/model[#variant]`."""

    provider_id: str
    model_id: str
    variant: str | None = None

    def __str__(self) -> str:
        variant = f"#{self.variant}" if self.variant else ""
        return f"{self.provider_id}/{self.model_id}{variant}"


class ModelInfo(Struct, frozen=True, kw_only=True):
    """Limits and prices of a model, and where they come from."""

    ref: ModelRef
    #: context window and largest output, tokens
    context_tokens: int
    output_tokens: int
    price: Price | None
    #: who had the last word: `config` | `override` | `refreshed` | `catalogue` | `default` | `built-in`
    source: str
    takes_tools: bool = True
    takes_images: bool = False
    reasons: bool = False


class ToolSchema(Struct, frozen=True, kw_only=True):
    """A tool as the model is told of it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """Everything one call sends.  Messages are valid: calls and results are paired."""

    model: ModelInfo
    system: str
    tools: tuple[ToolSchema, ...]
    messages: tuple[Message, ...]
    #: at most this many output tokens, below the model's own limit; None: the model's
    max_output_tokens: int | None = None
    effort: str | None = None
    temperature: float | None = None
    #: the same for all requests of a session: where a provider wants it, they meet the same prompt cache
    cache_key: str | None = None


# gc=False: thousands of these live at once, and none holds anything that could hold it
class TextDelta(Struct, frozen=True, gc=False):
    index: int
    text: str


class ThinkingDelta(Struct, frozen=True, gc=False):
    index: int
    text: str


class ToolCallDelta(Struct, frozen=True, gc=False):
    """A piece of a call's argument text; the first piece of a call may be empty."""

    index: int
    name: str
    arguments: str


class AttemptDiscarded(Struct, frozen=True):
    """All deltas of the attempt so far are void; the next attempt starts from nothing."""

    reason: str


class RetryScheduled(Struct, frozen=True):
    """Another attempt starts in `delay_ms`."""

    attempt: int
    max_retries: int
    delay_ms: int
    code: str
    reason: str


class CallCutOff(Struct, frozen=True):
    """The call was cancelled; what its attempts so far may be billed for, empty if none of them is."""

    usage: tuple[Usage, ...]


class EffortLeftOut(Struct, frozen=True):
    """The effort that was wanted is not asked for in this call."""

    reason: str


ModelFact = (
    TextDelta | ThinkingDelta | ToolCallDelta | AttemptDiscarded | RetryScheduled | CallCutOff | EffortLeftOut
)


class Answer(Struct, frozen=True, kw_only=True):
    """The terminal fact of a successful call."""

    content: tuple[Block, ...]
    finish_reason: FinishReason
    usage: Usage
    #: usage that the provider billed for failed attempts of this call
    failed_usage: tuple[Usage, ...] = ()
    request_id: str | None = None
    #: wall time of the call, retries and their waits included
    duration_ms: int = 0
    #: retries that were made
    retries: int = 0


class Spent(Struct, frozen=True, kw_only=True):
    """Running sums of a turn, for limits and the result."""

    usage: Usage
    cost_usd: Decimal | None
    is_incomplete: bool = False
