"""Queue items: submissions that wait, and what becomes of them.  docs/contract.md §5."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from msgspec import Struct

from mcode_exec.records.history import Block
from mcode_exec.records.invocation import FlagRule, OnAsk
from mcode_exec.records.permission import Preset
from mcode_exec.records.turn import Source

#: `ran` is in no store: a dedupe key names an item that has begun
ItemState = Literal["queued", "claimed", "ran"]
PauseReason = Literal["user-stop", "turn-final-failure"]
#: why an item is gone although nobody ran it
RemovalReason = Literal["merged", "cancelled", "taken-back", "expired", "cleared", "deleting"]

MAX_ITEMS = 1_000  # of one session
ITEM_TTL_S = 24 * 3600.0  # unless told otherwise
CLAIM_S = 30.0  # source: session-system notes, queue


class QueuePayload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an item runs: the message with its attachments by digest, its own model and limits."""

    content: tuple[Block, ...]
    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    effort: str | None = None
    agent: str | None = None
    tools: tuple[str, ...] | None = None
    permission: Preset | None = None
    rules: tuple[FlagRule, ...] = ()
    on_ask: OnAsk = "fail"
    max_steps: int | None = None
    max_cost_usd: Decimal | None = None
    max_tokens: int | None = None
    timeout_s: float | None = None
    append_system_prompt: str | None = None
    no_project_instructions: bool = False
    title: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    #: what a later submission of the same request is told by, when this one has run
    request_id: str | None = None
    request_scope: str | None = None


class Origin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What words that a turn was given become if it ends without them: the item that they were, or would have been."""

    payload: QueuePayload
    source: Source = "steer"
    digest: str | None = None
    item_id: str | None = None
    dedupe_key: str | None = None
    expires_ms: int | None = None


class QueueItem(Struct, frozen=True, kw_only=True):
    """One waiting submission as it stands in the table."""

    id: str
    session_id: str
    position: int
    state: ItemState
    source: Source
    digest: str
    payload: QueuePayload
    turn_id: str
    created_ms: int
    expires_ms: int
    dedupe_key: str | None = None
    earlier_turns: tuple[str, ...] = ()
    #: owner token of the process that stands in line itself
    waiter: str | None = None
    claim_owner: str | None = None
    claim_token: str | None = None
    claim_boot_id: str | None = None
    claim_expires_ms: int | None = None
    claim_expires_boot_ms: int | None = None


class Pause(Struct, frozen=True, kw_only=True):
    """A session's queue is held."""

    session_id: str
    reason: PauseReason
    turn_id: str | None
    at_ms: int


class Removal(Struct, frozen=True, kw_only=True):
    """What became of an item whose waiter did not run it."""

    item_id: str
    reason: RemovalReason
    #: the turn it was merged into
    turn_id: str | None
