"""Frames: what travels on a session's live stream.

Two kinds of payload: live facts, which exist only here (deltas, retries,
notices), and committed ones, which name what has been persisted.  A consumer
that misses live facts loses nothing that counts.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from mcode_exec.records.history import HistoryRecord
from mcode_exec.records.result import CheckInfo, ModelSwitch, PermissionDenial


class BlockDelta(Struct, frozen=True):
    """A piece of a message that is being streamed; void until the message commits."""

    message_id: str
    index: int
    kind: Literal["agent_message", "reasoning", "tool_call"]
    text: str
    tool: str | None = None


class AttemptVoided(Struct, frozen=True):
    """All deltas of this message are void; the call is tried again under another message id."""

    message_id: str
    reason: str


class CallRetrying(Struct, frozen=True):
    attempt: int
    max_retries: int
    delay_ms: int
    code: str
    reason: str


class ModelChanged(Struct, frozen=True):
    """A call had failed for good, and goes to another model."""

    switch: ModelSwitch
    reason: str


class ToolRunning(Struct, frozen=True):
    """A committed tool call has begun to run."""

    message_id: str
    index: int
    call_id: str
    tool: str
    input: dict[str, Any]


class Denied(Struct, frozen=True):
    denial: PermissionDenial


class Said(Struct, frozen=True):
    """A notice for people."""

    code: str
    message: str


class CheckRunning(Struct, frozen=True):
    """The turn's check has begun."""

    number: int
    command: str


class CheckEnded(Struct, frozen=True):
    """A run of the turn's check has ended."""

    command: str
    info: CheckInfo
    #: what it wrote, with how it ended, as the agent is told; None where nobody is
    output: str | None
    #: how often the agent is still told of a failure, this one included
    attempts_left: int


LiveFact = (
    BlockDelta
    | AttemptVoided
    | CallRetrying
    | ModelChanged
    | ToolRunning
    | Denied
    | CheckRunning
    | CheckEnded
    | Said
)


class Frame(Struct, frozen=True, kw_only=True):
    """One entry of the ring."""

    cursor: int
    turn_id: str | None
    kind: Literal["runtime-event", "message-committed", "turn-terminal", "resync-required"]
    live: LiveFact | None = None
    #: the history record a `message-committed` frame stands for
    record: HistoryRecord | None = None
    #: what the ring charges for this frame
    size_bytes: int = 0
