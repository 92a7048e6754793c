"""Canonical history: the exact sequence that is replayed to a model.

One `HistoryRecord` is one line of `messages.jsonl`.  The first line of a
generation is its `GenerationHeader`.  A record carries, beside the message,
what a display row and a usage row need (`StepMeta`), so that rows are always a
projection of history and can be made anew after a crash between the two.

A history of 20,000 records is made of 100,000 of these objects, none of which
can be part of a cycle: the garbage collector, which would walk them again and
again while they are read, does not look at them (`gc=False`).
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from mcode_exec.records.usage import Usage

Role = Literal["user", "assistant", "tool", "summary"]

#: content of the result that repair gives a call whose process stopped
INTERRUPTED = "interrupted: the process stopped while this ran; its effects may remain"
#: calls of one message run in order, and only reading ones side by side: what stands behind an unfinished
#: call has not been started, or could change nothing
NOT_STARTED = "not run: the process stopped while an earlier call ran; this one has changed nothing"


class TextBlock(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="text", omit_defaults=True
):
    text: str
    #: made by mcode, not by a person or the model (an attached note, a reminder)
    synthetic: bool = False


class ThinkingBlock(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="thinking", omit_defaults=True
):
    """Reasoning, kept as that provider needs it sent back."""

    text: str
    #: Anthropic's signature, or the item id of a Responses reasoning item
    signature: str | None = None
    #: redacted or encrypted reasoning, opaque
    encrypted: str | None = None
    #: how it came: `think-tag`, `reasoning_content`, `reasoning_details`, `thinking`, `responses`
    form: str | None = None
    #: provider id that can read it; others do not get it
    provider_id: str | None = None


class ToolCallBlock(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="tool_call", omit_defaults=True
):
    #: unique within the session, made by ids.new_call_id
    id: str
    name: str
    arguments: dict[str, Any]
    #: the argument text as it came, when it was no JSON object (`arguments` is {} then) or held characters
    #: that no text can hold (`arguments` has U+FFFD in their place then); such a call is not run
    broken_arguments: str | None = None


class ToolResultBlock(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="tool_result", omit_defaults=True
):
    call_id: str
    name: str
    content: str
    is_error: bool = False
    #: `completed` | `error` | `denied` | `interrupted`
    status: str = "completed"
    duration_ms: int | None = None
    #: facts for people: title, exit code, path of the whole output, …
    metadata: dict[str, Any] = {}


class ImageBlock(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="image", omit_defaults=True
):
    """An image by digest; `data` (base64) is filled only on the way to a provider."""

    digest: str
    mime: str
    filename: str | None = None
    data: str | None = None


class FileBlock(
    Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="file", omit_defaults=True
):
    digest: str
    mime: str
    filename: str | None = None
    data: str | None = None


Block = TextBlock | ThinkingBlock | ToolCallBlock | ToolResultBlock | ImageBlock | FileBlock


class Message(Struct, frozen=True, gc=False, kw_only=True):
    role: Role
    content: tuple[Block, ...]


class StepMeta(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What is true of an assistant message beside its content."""

    provider_id: str | None = None
    model_id: str | None = None
    variant: str | None = None
    agent: str | None = None
    step: int | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    #: decimal digits, USD; None when a price or the usage is unknown
    cost_usd: str | None = None
    duration_ms: int | None = None
    request_id: str | None = None


class HistoryRecord(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    id: str
    turn_id: str
    at_ms: int
    message: Message
    meta: StepMeta | None = None
    #: on a turn's first record: digest of its system prompt and tool schemas
    prefix: str | None = None
    #: why mcode itself appended this record, if it did: `interrupted`, `fork`
    repair: str | None = None
    #: who said this to a turn that was running, if somebody did
    steered_by: str | None = None
    #: id of the record of another session that this one is a copy of: what it cost was counted there
    copied_from: str | None = None


class GenerationHeader(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """First line of `messages.jsonl`."""

    generation: int
    session_id: str
    at_ms: int
    #: snapshot file it came from and why; None for the first generation
    snapshot: str | None = None
    reason: str | None = None
    #: after a rewind: how many of its records came along
    kept: int | None = None
    #: after a rewind behind a compaction: snapshot file of the generation that these came from; None: `snapshot`
    behind: str | None = None
    #: after a rewind: turns whose changes of files it took back; None: not known
    files: tuple[str, ...] | None = None
