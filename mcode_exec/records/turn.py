"""Submissions, admissions, receipts and endings.  docs/contract.md §5."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mcode_exec.abort import AbortReason
from mcode_exec.records.session import Session
from mcode_exec.records.signal import TurnSignal

#: who asks for a turn; anything else is refused as invalid input
Source = Literal["api", "cron", "job", "steer", "retry"]
LockKind = Literal["turn", "compaction", "maintenance", "deletion"]
Outcome = Literal["completed", "waiting", "aborted", "failed"]
SOURCES: frozenset[Source] = frozenset(("api", "cron", "job", "steer", "retry"))
RejectionReason = Literal[
    "invalid-input",
    "invalid-session",
    "deleting",
    "ingress-conflict",
    "aborted",
    "active-turn",
    "compaction-active",
    "session-mutating",
    "request-running",
    "item-gone",
    "priority-blocked",
    "policy",
]
#: how a submission stands to the queue
Priority = Literal[
    "ordinary", "retry-continuation", "turn-continuation", "paused-queue-send", "user-input-resume"
]
#: those that pass what stands ahead; source: turn-system notes, priority fence
PASSING: frozenset[Priority] = frozenset(
    ("retry-continuation", "turn-continuation", "paused-queue-send", "user-input-resume")
)


class TurnRequest(Struct, frozen=True, kw_only=True):
    """A submission: a request to run a turn, before admission."""

    session_id: str
    turn_id: str
    #: digest of prompt, attachments and schema; never the input itself
    digest: str
    source: Source = "api"
    priority: Priority = "ordinary"
    #: the queue item that is delivered, or the place in line; and the claim it is delivered under
    item_id: str | None = None
    claim_token: str | None = None
    #: `--paused-queue clear`: what a paused queue holds goes with acceptance
    clears_paused: bool = False
    #: `--request-id`, and what it is unique in: `session:<id>` or `project:<id>`
    request_id: str | None = None
    request_scope: str | None = None
    #: what it says, where a running turn may have been given it under the same request id
    words: str | None = None
    #: what the session is called from this turn on, None to leave it; labels are added to its own
    title: str | None = None
    #: what it is called by what is said now, if nothing else has given it a title yet
    prompt_title: str | None = None
    labels: dict[str, str] = {}
    #: canonical path the session is rebound to by this turn, or None
    rebind_workspace: str | None = None
    rebind_project_id: str | None = None
    #: it works in its workspace from this turn on, and not in its worktree any more
    leaves_worktree: bool = False


class Holder(Struct, frozen=True, kw_only=True):
    """Who holds a session's lock, for people."""

    kind: LockKind
    turn_id: str | None
    owner: str
    pid: int
    host: str
    acquired_ms: int
    expires_ms: int


class Receipt(Struct, frozen=True, kw_only=True):
    """The durable record that a submission was admitted, and later how it ended."""

    sequence: int
    turn_id: str
    session_id: str
    digest: str
    source: str
    attempt: int
    accepted_ms: int
    request_id: str | None = None
    request_scope: str | None = None
    settled_ms: int | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    code: str | None = None
    #: the encoded result object
    result: bytes | None = None
    #: it ran a queue item
    is_dispatched: bool = False


class Accepted(Struct, frozen=True, kw_only=True):
    receipt: Receipt
    #: signs every later write of this turn
    lease_token: str
    #: the session as it was before; None when the acceptance is only told again
    session: Session | None = None
    #: the lock of a dead or expired owner was taken over
    is_takeover: bool = False
    #: queue items that it passed over, because nobody drains them or they are paused
    passed_items: int = 0
    is_queue_paused: bool = False
    #: items of a paused queue that it took away
    cleared_items: int = 0


class Rejected(Struct, frozen=True, kw_only=True):
    reason: RejectionReason
    holder: Holder | None = None
    #: what a policy said, when reason is `policy`
    detail: str | None = None
    #: turn that holds the same request id, when reason is `request-running`
    receipt: Receipt | None = None


class Replayed(Struct, frozen=True, kw_only=True):
    """The same request was answered before: its stored result stands."""

    receipt: Receipt


class HandedOver(Struct, frozen=True, kw_only=True):
    """The words of the same request were handed to a running turn before: they are not said twice."""

    signal: TurnSignal


Admission = Accepted | Rejected | Replayed | HandedOver


class Ending(Struct, frozen=True, kw_only=True):
    """How a turn ended, before it is written: one per turn."""

    outcome: Outcome
    abort_reason: AbortReason | None = None
    error: BaseException | None = None
