"""Sessions and projects as records.  Fields and values: docs/design.md, Data."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Runtime = Literal["pi-agent", "opencode"]
SessionType = Literal["root", "branch"]
SessionKind = Literal["conversation", "task", "peek", "channel", "cron", "unknown"]
SessionStatus = Literal["idle", "started", "error", "aborted", "interrupted"]
Visibility = Literal["visible", "hidden"]


class Project(Struct, frozen=True, kw_only=True):
    """What sessions are grouped by: a git repository wherever it is checked out, else a directory."""

    id: str
    kind: Literal["git", "origin", "workspace"]
    #: root commit, origin URL or canonical path
    identity: str
    created_ms: int


class RunLocation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a session really works when that is not its workspace: a git worktree."""

    #: root of the worktree
    path: str
    branch: str | None = None
    #: what of it stands for the workspace, where that is not the root of its repository; relative to `path`
    below: str | None = None

    @property
    def directory(self) -> str:
        """The directory that turns run in."""
        return self.path if self.below is None else f"{self.path}/{self.below}"


#: `purpose` of a side conversation
BTW = "peek_btw_session"


class ChangeSummary(Struct, frozen=True, kw_only=True):
    """What a session's turns changed in files."""

    additions: int
    deletions: int
    files: int


class Session(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One conversation bound to a workspace."""

    id: str
    project_id: str
    #: canonical path of the directory the session works in
    workspace: str
    created_ms: int
    updated_ms: int
    #: newest acceptance or settlement of a turn; what `--continue` and lists order by
    activity_ms: int
    #: directory of canonical history, relative to `<data>/sessions`; allotted once
    history_relative_dir: str
    title: str
    title_is_default: bool = False
    runtime: Runtime = "pi-agent"
    session_type: SessionType = "branch"
    session_kind: SessionKind = "conversation"
    status: SessionStatus = "idle"
    visibility: Visibility = "visible"
    origin: str = "local-runtime"
    session_key: str | None = None
    agent: str | None = None
    provider_id: str | None = None
    model_id: str | None = None
    variant: str | None = None
    effort: str | None = None
    context_tokens: int | None = None
    parent_id: str | None = None
    run_location: RunLocation | None = None
    #: session this one is a fork of, and the last message it took along
    forked_from: str | None = None
    forked_at: str | None = None
    #: what an internal session was made for
    purpose: str | None = None
    #: session whose prompt cache at the provider this one goes on with, None for its own
    cache_key: str | None = None
    summary: ChangeSummary | None = None
    #: message that was rewound to, while that can be undone
    revert: str | None = None
    version: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    error_source: str | None = None
    archived_ms: int | None = None
    #: since when a compaction runs
    compacting_ms: int | None = None
    labels: dict[str, str] = {}
    #: {"preset": …, "rules": [["deny", "edit:*.lock"], …]} given when the session was made; `inherited`: the same
    #: of each session above it, with its `agent`
    permission: dict[str, Any] = {}
    #: bytes of `messages.jsonl` whose records have their rows; what lies beyond is finished on open
    history_bytes: int = 0
    last_turn_id: str | None = None
    #: owner token of the process that deletes it; no turn is admitted any more
    deleting_by: str | None = None
    #: made without a turn on purpose, by `sessions create`
    is_made_ahead: bool = False
    #: workspace before `projects relocate`, until a turn has told the model
    relocated_from: str | None = None

    @property
    def shown_status(self) -> str:
        """Its status for people and programs; one that is being deleted has no other any more."""
        return self.status if self.deleting_by is None else "deleting"


class Seal(Struct, frozen=True, kw_only=True):
    """That a session is being deleted."""

    session_id: str
    #: owner token of the process that is at it, or the word for none
    deleter: str
    #: of who began it; None where an earlier mcode did
    pid: int | None
    host: str | None
    since_ms: int | None
    #: why the last try could not end it
    reason: str | None
