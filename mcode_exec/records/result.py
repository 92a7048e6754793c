"""The result object: one truthful account of a run.  docs/contract.md §4."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from mcode_exec.errors import McodeError
from mcode_exec.records.model import ModelRef
from mcode_exec.records.tool import LeftoverProcess

SCHEMA_VERSION = 1

Status = Literal[
    "succeeded",
    "failed",
    "timeout",
    "cancelled",
    "limit_exceeded",
    "interaction_required",
    "queued",
    "steered",
]


class ErrorInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What went wrong, for programs."""

    category: Literal[
        "invocation", "config", "admission", "provider", "tool", "runtime", "storage", "internal"
    ]
    code: str
    message: str
    retryable: bool
    number: int | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET
    http_status: int | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


def error_info(error: McodeError) -> ErrorInfo:
    """`error` as the result's error object, with what only some errors know."""
    facts: dict[str, Any] = {
        name: value
        for name in ("number", "retry_after_ms", "http_status", "request_id")
        if (value := getattr(error, name, None)) is not None
    }
    category: Any = error.category
    return ErrorInfo(
        category=category, code=error.code, message=error.message, retryable=error.retryable, **facts
    )


class ResultUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """Tokens of this run in disjoint classes, all calls included; null is unknown."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    total_tokens: int | None = None


class PermissionDenial(Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool call that was not allowed to run."""

    tool: str
    permission: str
    pattern: str
    rule: str | None
    verdict: Literal["ask", "deny"]
    reason: str = ""


class ToolFailure(Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool call that ended in an error (denials are not counted here)."""

    tool: str
    call_id: str
    message: str


class LimitHit(Struct, frozen=True, kw_only=True, rename="camel"):
    """The limit that ended the run, and where its value came from."""

    name: Literal["steps", "cost", "tokens", "timeout"]
    value: str
    source: str


class SandboxInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    mechanism: str
    policy: str


class WorktreeInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """A git worktree that was made for a session."""

    path: str
    branch: str | None


class ModelSwitch(Struct, frozen=True, kw_only=True, rename={"from_model": "from", "to_model": "to"}):
    """A call went to another model, and so did the rest of the turn."""

    from_model: ModelRef
    to_model: ModelRef
    #: step whose call had failed, from 1
    step: int
    code: str


class FileChanges(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which files of its workspace the turn changed."""

    #: null: not known
    files: int | None
    #: lines of text files; null where they are not known of one
    additions: int | None
    deletions: int | None
    #: relative to the workspace, in their order, the first 1,000
    paths: tuple[str, ...] = ()
    #: another turn worked in the workspace meanwhile, and may have made some of it
    shared: bool = False
    #: `some`: files may have changed that are not among them; `all`: nothing is known
    gap: Literal["none", "some", "all"] = "none"
    #: what is not known, and why
    reason: str | None = None


CheckStatus = Literal["passed", "failed", "interrupted"]


class CheckInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """How the newest run of the turn's check ended."""

    #: `interrupted`: the turn was stopped while it ran
    status: CheckStatus
    #: how often it was run
    runs: int
    #: null: a signal ended it, it was never started, or nobody knows
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    duration_ms: int = 0


class QueuePlace(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a submission waits."""

    item_id: str
    #: its place in the line; 1: the next
    position: int


class Result(Struct, frozen=True, kw_only=True, rename="camel"):
    """What `json`, `--result` and `exec.completed` carry, for every ending."""

    schema_version: Literal[1] = 1
    type: Literal["exec.result"] = "exec.result"
    run_id: str
    session_id: str | None = None
    turn_id: str | None = None
    status: Status
    exit_code: int
    replayed: bool = False
    attempt: int = 1
    #: the answer: on success, and on exit 5 by asks
    output: Any = None
    #: whatever answer existed on any other ending
    partial_output: str | None = None
    finish_reason: str | None = None
    error: ErrorInfo | None = None
    retryable: bool = False
    #: the last one that was called
    model: ModelRef | None = None
    model_switches: tuple[ModelSwitch, ...] = ()
    usage: ResultUsage = ResultUsage()
    usage_incomplete: bool = False
    #: a decimal number, or null when a price is unknown
    cost_usd: Decimal | None = None
    steps: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    tool_failures: tuple[ToolFailure, ...] = ()
    retries: int = 0
    compactions: int | None = None
    subagents: int | None = None
    permission_denials: tuple[PermissionDenial, ...] = ()
    file_changes: FileChanges | None = None
    #: null: none was asked for, or the turn ended before it
    check: CheckInfo | None = None
    #: where the session works, if that is a worktree of its own
    worktree: WorktreeInfo | None = None
    sandbox: SandboxInfo | None = None
    leftover_processes: tuple[LeftoverProcess, ...] = ()
    #: with status `queued`
    queue: QueuePlace | None = None
    limit: LimitHit | None = None
    duration_ms: int = 0
    api_duration_ms: int = 0
