"""Display messages: what people and exports want to see of a conversation.

A display message is a projection of canonical history records (see
records/projection.py) and can always be made anew from them.  Each part keeps
the index of the block it came from, so that item ids are the same live and on
resync.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from mcode_exec.records.usage import Usage


class TextPart(Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="text", omit_defaults=True):
    index: int
    text: str
    #: made by mcode, not by a person or the model
    synthetic: bool = False


class ReasoningPart(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="reasoning", omit_defaults=True
):
    index: int
    text: str


class FilePart(Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="file", omit_defaults=True):
    index: int
    digest: str
    mime: str
    filename: str | None = None


class ToolPending(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="status", tag="pending", omit_defaults=True
):
    input: dict[str, Any]
    #: argument text that was no JSON object
    raw: str | None = None


class ToolCompleted(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="status", tag="completed", omit_defaults=True
):
    input: dict[str, Any]
    output: str
    title: str = ""
    metadata: dict[str, Any] = {}
    duration_ms: int | None = None


class ToolError(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="status", tag="error", omit_defaults=True
):
    """Failed, denied or interrupted; `kind` tells which."""

    input: dict[str, Any]
    error: str
    kind: Literal["error", "denied", "interrupted"] = "error"
    title: str = ""
    metadata: dict[str, Any] = {}
    duration_ms: int | None = None


ToolState = ToolPending | ToolCompleted | ToolError


class ToolPart(Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="tool", omit_defaults=True):
    index: int
    call_id: str
    tool: str
    state: ToolState


class StepStartPart(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="step-start", omit_defaults=True
):
    step: int


class StepFinishPart(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="step-finish", omit_defaults=True
):
    reason: str
    usage: Usage | None = None
    cost_usd: str | None = None


Part = TextPart | ReasoningPart | FilePart | ToolPart | StepStartPart | StepFinishPart


class DisplayMessage(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    id: str
    session_id: str
    turn_id: str
    role: Literal["user", "assistant", "summary"]
    created_ms: int
    parts: tuple[Part, ...]
    completed_ms: int | None = None
    agent: str | None = None
    provider_id: str | None = None
    model_id: str | None = None
    variant: str | None = None
    parent_id: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    cost_usd: str | None = None
    #: who said this to a turn that was running, if somebody did
    steered_by: str | None = None
    #: true for the message that stands for compacted history
    summary: bool = False
