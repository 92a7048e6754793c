"""Admission: the one transaction that accepts or rejects a submission.

Checks run in the order of docs/contract.md §5 and the first rejection wins:
session exists and may run, being deleted, duplicate (an answered request, or one
whose words a running turn was given; an item of it goes), active lock, priority
fence, policies.  On acceptance lock row, sequence number, receipt and the
session's new status are all present or all absent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from mcode_exec.clock import Clock
from mcode_exec.records.queue import QueueItem
from mcode_exec.records.session import Session
from mcode_exec.records.turn import (
    SOURCES,
    Accepted,
    Admission,
    HandedOver,
    LockKind,
    Rejected,
    RejectionReason,
    Replayed,
    TurnRequest,
)
from mcode_exec.store import (
    operation_rows,
    queue_rows,
    queue_state_rows,
    session_rows,
    signal_rows,
    turn_rows,
)
from mcode_exec.store.database import Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.fence import Passage, passage
from mcode_exec.turns.lease import LEASE_S, is_held
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.queue import take_out
from mcode_exec.turns.requests import queue_scope, scopes_of
from mcode_exec.turns.settlement import settle_as_dead
from mcode_exec.turns.steering import find_handed_over

REJECTED_BY: dict[LockKind, RejectionReason] = {
    "turn": "active-turn",
    "compaction": "compaction-active",
    "maintenance": "session-mutating",
    "deletion": "deleting",
}


_GIVE_UP_S = 1.0  # seconds that a cancelled admission takes at most to leave nothing behind

#: says inside the transaction why a submission may not run now, or None
Policy = Callable[[TurnRequest], str | None]


async def admit(
    store: Store,
    owner: Owner,
    request: TurnRequest,
    clock: Clock,
    *,
    lease_s: float = LEASE_S,
    policies: Sequence[Policy] = (),
) -> Admission:
    """Accept or reject a submission.  A rejection is returned, never raised.

    Of several policies the first that rejects wins.
    Raises: StoreBusyError after 10 s of contention; StoreFailedError.
    Cancellation: what was accepted all the same is given up again, as if this process had died.
    Source: turn-system notes, admission.
    """
    token = "lease_" + os.urandom(16).hex()
    try:
        return await store.write(
            lambda: _admit(owner, request, clock, token, lease_s, policies, store.sessions_dir)
        )
    except asyncio.CancelledError:
        # A process that goes on (one that drains) must not hold a session for a turn that it never runs.
        undoing = asyncio.ensure_future(store.write(lambda: _give_up(request, clock, token, store)))
        undoing.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # recovery's to finish then
        await asyncio.wait([undoing], timeout=_GIVE_UP_S)
        raise


def _give_up(request: TurnRequest, clock: Clock, token: str, store: Store) -> None:
    lock = turn_rows.find_lock(request.session_id)
    if lock is not None and lock.token == token:
        settle_as_dead(lock, clock.now_ms(), store.sessions_dir)
        turn_rows.delete_lock(lock.session_id, token)


def _admit(
    owner: Owner,
    request: TurnRequest,
    clock: Clock,
    token: str,
    lease_s: float,
    policies: Sequence[Policy],
    sessions_dir: str,
) -> Admission:
    if request.source not in SOURCES:
        return Rejected(reason="invalid-input")
    session = session_rows.find_session(request.session_id)
    if session is None or session.runtime != "pi-agent":
        return Rejected(reason="invalid-session")
    lock = turn_rows.find_lock(session.id)
    is_locked = lock is not None and is_held(lock, owner, clock, lease_s)
    if session.deleting_by is not None:
        # Sealed, whoever began it: a deletion that was cut short is finished, not undone.
        return Rejected(reason="deleting", holder=None if lock is None else lock.holder())
    item = None if request.item_id is None else queue_rows.find_item(request.item_id)
    is_ours = item is not None and _is_ours(item, request, owner)
    answered, attempt = _duplicate(request, lock, owner, lambda held: is_held(held, owner, clock, lease_s))
    if answered is None:
        answered = _handed_over(request)
    if answered is not None:
        if item is not None and is_ours and (turn_id := _said_in(answered, request)) is not None:
            take_out(item, "merged", clock.now_ms(), turn_id)
        return answered
    if signal_rows.pending(request.turn_id, "abort"):
        # It was stopped before it could begin, and its item with it.
        if item is not None and is_ours:
            take_out(item, "cancelled", clock.now_ms())
        return Rejected(reason="aborted")
    if request.item_id is not None and not is_ours:
        return Rejected(reason="item-gone")
    if lock is not None and is_locked:
        return Rejected(reason=REJECTED_BY[lock.kind], holder=lock.holder())
    if operation_rows.is_held_up(session.id) and not operation_rows.is_held_for(session.id, request.turn_id):
        # A rewind is held for another turn; or whoever was at it is dead, and recovery brings it to its end first.
        return Rejected(reason="session-mutating")
    passed = passage(request, item, owner, clock, sessions_dir)
    if passed.is_blocked:
        return Rejected(reason="priority-blocked")
    for policy in policies:
        detail = policy(request)
        if detail is not None:
            return Rejected(reason="policy", detail=detail)
    if lock is not None:
        settle_as_dead(lock, clock.now_ms(), sessions_dir)
        turn_rows.delete_lock(session.id, lock.token)
    return _accept(session, owner, request, clock, token, lease_s, lock, attempt, item, passed)


def _is_ours(item: QueueItem, request: TurnRequest, owner: Owner) -> bool:
    """Whether a request may run an item: under its claim, or as the process that stands in line itself."""
    if item.turn_id != request.turn_id or item.session_id != request.session_id:
        return False
    if item.waiter is not None:
        return item.waiter == owner.token
    return item.state == "claimed" and item.claim_token == request.claim_token


def _duplicate(
    request: TurnRequest, lock: Lock | None, owner: Owner, goes_on: Callable[[Lock], bool]
) -> tuple[Admission | None, int]:
    """What an earlier submission of the same turn or request id answers, else (None, attempt number)."""
    same_turn = turn_rows.find_receipt(request.turn_id)
    if same_turn is not None:
        if same_turn.digest != request.digest:
            return Rejected(reason="ingress-conflict", receipt=same_turn), 0
        if same_turn.settled_ms is not None:
            return Replayed(receipt=same_turn), 0
        if lock is not None and lock.turn_id == request.turn_id:
            if lock.owner != owner.token:
                # A claim of ours had run out, and the item is another's now, under the turn id it had.
                return Rejected(reason="active-turn", holder=lock.holder()), 0
            # Our own admission, asked again after its answer was lost.
            return Accepted(receipt=same_turn, lease_token=lock.token), 0
        # Its lease is gone without a settlement: a turn id is never run twice.
        return Rejected(reason="ingress-conflict", receipt=same_turn), 0
    if request.request_id is None or request.request_scope is None:
        return None, 1
    earlier = turn_rows.find_request(request.request_scope, request.request_id)
    if earlier is None:
        return None, 1
    if earlier.digest != request.digest:
        return Rejected(reason="ingress-conflict", receipt=earlier), 0
    if earlier.outcome == "completed":
        return Replayed(receipt=earlier), 0
    if earlier.settled_ms is None:
        # Without a session selector the earlier attempt may be in another session than this one.
        holding = turn_rows.find_lock(earlier.session_id)
        if holding is not None and holding.turn_id == earlier.turn_id and goes_on(holding):
            return Rejected(reason="request-running", receipt=earlier, holder=holding.holder()), 0
    return None, earlier.attempt + 1


def _handed_over(request: TurnRequest) -> Admission | None:
    """What answers a request whose words a running turn was given under the same id."""
    if request.source != "api" or request.request_id is None or request.words is None:
        return None
    signal = find_handed_over(request.session_id, request.request_id)
    if signal is None or (signal.state == "requeued" and signal.item_id == request.item_id):
        return None  # an item that these words have become, and that now runs
    return HandedOver(signal=signal) if signal.text == request.words else Rejected(reason="ingress-conflict")


def _said_in(answered: Admission, request: TurnRequest) -> str | None:
    """The turn, not the request's own, that had the words: whoever stands in line with them need not."""
    if isinstance(answered, HandedOver):
        return answered.signal.turn_id
    if isinstance(answered, Replayed) and answered.receipt.turn_id != request.turn_id:
        return answered.receipt.turn_id
    return None


def _accept(
    session: Session,
    owner: Owner,
    request: TurnRequest,
    clock: Clock,
    token: str,
    lease_s: float,
    lock: Lock | None,
    attempt: int,
    item: QueueItem | None,
    passed: Passage,
) -> Accepted:
    now_ms, lease_ms = clock.now_ms(), int(lease_s * 1000)
    wanted = Lock(
        session_id=request.session_id,
        kind="turn",
        owner=owner.token,
        token=token,
        turn_id=request.turn_id,
        acquired_ms=now_ms,
        expires_ms=now_ms + lease_ms,
        boot_id=owner.boot_id,
        expires_boot_ms=clock.boot_ms() + lease_ms,
        pid=owner.pid,
        host=owner.host,
    )
    turn_rows.insert_lock(wanted)
    if operation_rows.is_held_for(request.session_id, request.turn_id):
        operation_rows.delete_operation(request.session_id)  # the rewind that it was held for is final
    receipt = turn_rows.insert_receipt(
        turn_id=request.turn_id,
        session_id=request.session_id,
        digest=request.digest,
        source=request.source,
        request_scope=request.request_scope,
        request_id=request.request_id,
        found_in=scopes_of(request, session),
        attempt=attempt,
        accepted_ms=now_ms,
        is_dispatched=item is not None and item.waiter is None,
    )
    if item is not None and item.dedupe_key is not None and item.dedupe_key != request.request_id:
        turn_rows.bind_request(queue_scope(session.id), item.dedupe_key, session.id, request.turn_id)
    if item is not None and item.waiter is not None:
        # The place is this turn's now, and nobody takes it away; the row goes with the prompt's commit.
        queue_rows.claim_item(item.id, claim_owner=owner.token)
    cleared = 0
    if request.clears_paused and passed.is_paused:
        cleared = queue_rows.delete_delivered(session.id)
        queue_state_rows.delete_pause(session.id)
    changes = _session_changes(session, request, now_ms)
    session_rows.update_session(request.session_id, **changes)
    return Accepted(
        receipt=receipt,
        lease_token=token,
        session=session,
        is_takeover=lock is not None,
        passed_items=0 if cleared else passed.passed,
        is_queue_paused=passed.is_paused,
        cleared_items=cleared,
    )


def _session_changes(session: Session, request: TurnRequest, now_ms: int) -> dict[str, object]:
    """What acceptance changes of the session's record."""
    changes: dict[str, object] = {
        "status": "started",
        "error_code": None,
        "error_message": None,
        "error_source": None,
        "archived_ms": None,
        "activity_ms": now_ms,
        "updated_ms": now_ms,
        "last_turn_id": request.turn_id,
    }
    if request.title is not None:
        changes |= {"title": request.title, "title_is_default": 0}
    elif request.prompt_title is not None and session.title_is_default:
        changes |= {"title": request.prompt_title, "title_is_default": 0}
    if session.relocated_from is not None:
        changes["relocated_from"] = None
    if request.labels:
        changes["labels"] = {**session.labels, **request.labels}
    if request.rebind_workspace is not None:
        changes["workspace"] = request.rebind_workspace
    if session.revert is not None:
        changes["revert"] = None  # something new stands where the way back began
    if request.leaves_worktree:
        changes["run_location"] = None
    if request.rebind_project_id is not None and request.rebind_project_id != session.project_id:
        changes["project_id"] = request.rebind_project_id
        key = session.session_key
        if key is not None and session_rows.find_by_key(request.rebind_project_id, key) is not None:
            # The key means another session there, and that one keeps it.
            changes["session_key"] = None
    return changes
