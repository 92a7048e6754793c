"""A whole session as one JSON document: what `sessions export` writes and `sessions import` takes back.

History stands in it in its own shape, that of the lines of `messages.jsonl`;
everything else has the camelCase names of all documents.  What can be made
anew from history (display messages, sums) is not in it; docs/sessions.md
describes it for people.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from mcode_exec.records.history import GenerationHeader, HistoryRecord

FORMAT = "mcode.session"
#: 2: history, usage, turns and attachments instead of display messages
FORMAT_VERSION = 2


class ExportedInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a session says of itself; ids and times as they were."""

    id: str
    title: str
    title_is_default: bool = False
    workspace: str
    created_ms: int
    updated_ms: int
    activity_ms: int
    session_kind: str = "conversation"
    status: str = "idle"
    visibility: str = "visible"
    origin: str = "local-runtime"
    agent: str | None = None
    provider_id: str | None = None
    model_id: str | None = None
    variant: str | None = None
    effort: str | None = None
    context_tokens: int | None = None
    parent_id: str | None = None
    forked_from: str | None = None
    forked_at: str | None = None
    purpose: str | None = None
    version: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    error_source: str | None = None
    archived_ms: int | None = None
    labels: dict[str, str] = {}
    last_turn_id: str | None = None


class ExportedTurn(Struct, frozen=True, kw_only=True, rename="camel"):
    """A receipt of a turn that has ended, less what binds it to its store."""

    turn_id: str
    digest: str
    source: str
    attempt: int
    accepted_ms: int
    settled_ms: int
    outcome: str
    reason: str | None = None
    code: str | None = None
    is_dispatched: bool = False
    #: the result object, as the run gave it
    result: Any = None


class ExportedUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one provider answer used, failed attempts included."""

    turn_id: str
    message_id: str
    provider_id: str
    model_id: str
    agent: str | None = None
    kind: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: str | None = None
    at_ms: int


class ExportedSession(Struct, frozen=True, kw_only=True, rename="camel"):
    """A document of format version 2 as it is read back."""

    format: str
    format_version: int
    session: ExportedInfo
    #: first line of the active generation; None: nothing was ever said
    generation: GenerationHeader | None
    history: tuple[HistoryRecord, ...]
    #: display messages that no record of the history makes: those of earlier generations
    messages: tuple[dict[str, Any], ...] = ()
    turns: tuple[ExportedTurn, ...] = ()
    usage: tuple[ExportedUsage, ...] = ()
    #: digest -> system prompt and tool schemas, the JSON text that has this digest
    prefixes: dict[str, str] = {}
    #: digest -> base64; None: the bytes were gone
    attachments: dict[str, str | None] = {}
