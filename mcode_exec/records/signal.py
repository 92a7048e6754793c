"""What one process says to a turn that runs in another: steers and aborts.  docs/contract.md §5."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

SignalKind = Literal["steer", "abort"]
SignalState = Literal["pending", "consumed", "requeued", "dropped"]

#: whose words a queued item's are; source: turn-system notes, steering
QUEUE_PRODUCER = "queue-immediate-send"


class TurnSignal(Struct, frozen=True, kw_only=True):
    """A signal as it stands in the table: one durable row."""

    id: str
    session_id: str
    turn_id: str
    kind: SignalKind
    #: who sent it; with the key, what it is told from others by
    producer: str
    idempotency_key: str | None
    #: no person's words: holds the turn's close, and is never queued
    is_machine: bool
    text: str
    #: the user message that it becomes when it is taken
    message_id: str | None
    state: SignalState
    created_ms: int
    #: for an abort: the abort reason; for a dropped steer: why
    reason: str | None = None
    #: the queue item that it became
    item_id: str | None = None
    settled_ms: int | None = None
    #: encoded Origin
    origin: bytes | None = None
