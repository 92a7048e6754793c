"""The outward events: a closed set, one struct each.  docs/contract.md §4.

A line of `stream-json` is one of these with its envelope fields filled in by
the sink: `sequence` counts from 1 without gaps, `exec.completed` is always the
last line.  Consumers ignore unknown types and fields.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from mcode_exec.records.model import ModelRef
from mcode_exec.records.result import CheckStatus, ErrorInfo, Result, ResultUsage, SandboxInfo

ItemType = Literal["agent_message", "reasoning", "tool_call", "todo_list"]
CallStatus = Literal["pending", "running", "completed", "error", "denied", "interrupted"]


class ItemToolCall(Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    name: str
    input: dict[str, Any]
    status: CallStatus
    output: str | None = None
    error: str | None = None
    duration_ms: int | None = None


class Item(Struct, frozen=True, kw_only=True, rename="camel"):
    """One piece of an answer; its id is message id and block index."""

    id: str
    type: ItemType
    content: str | UnsetType | None = UNSET
    content_delta: str | UnsetType = UNSET
    tool_call: ItemToolCall | UnsetType = UNSET


class Event(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    """The envelope that every line has."""

    schema_version: Literal[1] = 1
    sequence: int = 0
    timestamp_ms: int = 0
    #: None where no run of this process tells it
    run_id: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    #: where this line stands, for `sessions watch --after`; only there
    cursor: str | UnsetType = UNSET


class ExecStarted(Event, frozen=True, kw_only=True, tag="exec.started"):
    """The run has begun; always the first line."""

    mcode_version: str


class SessionStarted(Event, frozen=True, kw_only=True, tag="session.started"):
    """A new session was made."""

    workspace: str
    title: str


class SessionResumed(Event, frozen=True, kw_only=True, tag="session.resumed"):
    """An existing session goes on."""

    workspace: str
    title: str


class SessionForked(Event, frozen=True, kw_only=True, tag="session.forked"):
    """A new session was made that begins with the history of another."""

    workspace: str
    title: str
    #: the other session, and the last message of it that was taken along
    forked_from: str
    forked_at: str


class TurnStarted(Event, frozen=True, kw_only=True, tag="turn.started"):
    """The turn was admitted and its user message committed; None is what `sessions watch` cannot know."""

    model: ModelRef | None
    accepted_sequence: int
    sandbox: SandboxInfo | None
    permission: str | None


class ItemStarted(Event, frozen=True, kw_only=True, tag="item.started"):
    """The first piece of an item, or a tool call that is about to run."""

    item: Item


class ItemUpdated(Event, frozen=True, kw_only=True, tag="item.updated"):
    """More text of an item (`contentDelta`), or a tool call that runs."""

    item: Item


class ItemCompleted(Event, frozen=True, kw_only=True, tag="item.completed"):
    """The item is committed; a tool call completes when its tool has finished."""

    item: Item


class ItemDiscarded(Event, frozen=True, kw_only=True, tag="item.discarded"):
    """Partial output of a model call that is being retried is void."""

    item_id: str
    reason: str


class LlmRetry(Event, frozen=True, kw_only=True, tag="llm.retry"):
    """A model call failed and is tried again after a delay."""

    attempt: int
    max_retries: int
    delay_ms: int
    code: str
    reason: str


class ModelSwitched(
    Event,
    frozen=True,
    kw_only=True,
    tag="model.switched",
    rename={"from_model": "from", "to_model": "to"},
):
    """A call had failed for good, and goes to another model."""

    from_model: ModelRef
    to_model: ModelRef
    step: int
    code: str
    reason: str


class PermissionDenied(Event, frozen=True, kw_only=True, tag="permission.denied"):
    """A tool call was not run."""

    tool: str
    #: what the rule that lets it through must name; not always the tool's own name
    permission: str
    pattern: str
    rule: str | None
    verdict: Literal["ask", "deny"]
    #: why, and how to allow it, in one sentence
    reason: str = ""


class CheckStarted(Event, frozen=True, kw_only=True, tag="check.started"):
    """The model has answered, and the check of the answer runs."""

    #: which run of it this is, from 1
    number: int
    command: str


class CheckCompleted(Event, frozen=True, kw_only=True, tag="check.completed"):
    """The check of an answer has ended."""

    number: int
    command: str
    #: `interrupted`: the turn was stopped while it ran
    status: CheckStatus
    exit_code: int | None
    signal: int | None
    timed_out: bool
    #: what it wrote, cut as outputs of tools are, and how it ended; null where it was interrupted
    output: str | None
    duration_ms: int
    #: how often the agent is still told of a failure, this one included; 0 and `failed`: the turn ends
    attempts_left: int


class TurnQueued(Event, frozen=True, kw_only=True, tag="turn.queued"):
    """The session is busy, and this submission stands in its line."""

    #: its place in the line; 1: the next
    position: int
    item_id: str


class SteerAccepted(Event, frozen=True, kw_only=True, tag="steer.accepted"):
    """Words from outside were taken into the turn."""

    text: str


class Heartbeat(Event, frozen=True, kw_only=True, tag="heartbeat"):
    """Nothing was said for 15 seconds; the run is alive."""

    phase: str


class Notice(Event, frozen=True, kw_only=True, tag="notice"):
    """Something a person should know; never an error."""

    code: str
    message: str
    #: `stream.resync`: how many frames this consumer missed
    missed: int | UnsetType = UNSET


class TurnCompleted(Event, frozen=True, kw_only=True, tag="turn.completed"):
    """The turn was answered and settled."""

    model: ModelRef
    usage: ResultUsage
    duration_ms: int


class TurnFailed(Event, frozen=True, kw_only=True, tag="turn.failed"):
    """The turn ended in any other way and was settled."""

    status: str
    error: ErrorInfo | None
    duration_ms: int


class ExecCompleted(Event, frozen=True, kw_only=True, tag="exec.completed"):
    """Always the last line."""

    result: Result


AnyEvent = (
    ExecStarted
    | SessionStarted
    | SessionResumed
    | SessionForked
    | TurnStarted
    | ItemStarted
    | ItemUpdated
    | ItemCompleted
    | ItemDiscarded
    | LlmRetry
    | ModelSwitched
    | PermissionDenied
    | CheckStarted
    | CheckCompleted
    | TurnQueued
    | SteerAccepted
    | Heartbeat
    | Notice
    | TurnCompleted
    | TurnFailed
    | ExecCompleted
)
