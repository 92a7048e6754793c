"""Stopping a turn from another process: one durable row, which the turn's own process meets.

A turn that has not begun is stopped as well: the place or item that carries its
id goes, and a submission that is on its way is rejected by the row.
Source: turn-system notes, abort.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mcode_exec.abort import AbortReason
from mcode_exec.clock import Clock
from mcode_exec.errors import SessionError
from mcode_exec.ids import new_signal_id
from mcode_exec.records.queue import QueueItem
from mcode_exec.records.signal import TurnSignal
from mcode_exec.records.turn import Receipt
from mcode_exec.store import queue_rows, session_rows, signal_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.delivery import is_live
from mcode_exec.turns.lease import is_held
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.queue import take_out

ABORT_WAIT_S = 5.0  # source: turn-system notes, abort

AbortOutcome = Literal["aborted", "released", "abort-timeout", "not-running", "turn-mismatch"]


class AbortTarget(Struct, frozen=True, kw_only=True):
    """What an abort found."""

    #: set when nothing has to be waited for
    outcome: AbortOutcome | None = None
    #: the turn that was told to stop, or the one that runs instead
    turn_id: str | None = None


async def request_abort(
    store: Store,
    owner: Owner,
    session_id: str,
    clock: Clock,
    *,
    turn_id: str | None = None,
    reason: AbortReason = "user-stop",
) -> AbortTarget:
    """Tell the turn of a session to stop, or only the turn `turn_id`.

    Raises: SessionError for a session that does not exist.
    """

    def transaction() -> AbortTarget:
        if session_rows.find_session(session_id) is None:
            raise SessionError(f"there is no session {session_id}")
        now_ms = clock.now_ms()
        lock = turn_rows.find_lock(session_id)
        running = lock.turn_id if lock is not None and is_held(lock, owner, clock) else None
        if turn_id is not None and turn_id != running:
            return _abort_other(session_id, turn_id, running, owner, clock, reason)
        if running is None:
            return _abort_delivery(session_id, owner, clock, reason)
        _tell(session_id, running, now_ms, reason)
        return AbortTarget(turn_id=running)

    return await store.write(transaction)


def _abort_other(
    session_id: str, turn_id: str, running: str | None, owner: Owner, clock: Clock, reason: AbortReason
) -> AbortTarget:
    """A turn that is named and does not run: it waits, is over, or is nobody's yet."""
    receipt = turn_rows.find_receipt(turn_id)
    if receipt is not None:
        if receipt.session_id != session_id or receipt.settled_ms is not None:
            return AbortTarget(outcome="turn-mismatch" if running else "not-running", turn_id=running)
        return AbortTarget(outcome="released", turn_id=turn_id)
    item = queue_rows.find_by_turn(turn_id)
    if item is not None and item.session_id == session_id:
        return _abort_item(item, owner, clock, reason)
    if running is not None:
        return AbortTarget(outcome="turn-mismatch", turn_id=running)
    if item is not None:
        return AbortTarget(outcome="not-running")  # another session's
    # It may be on its way: whoever submits it meets this row.
    _tell(session_id, turn_id, clock.now_ms(), reason)
    return AbortTarget(outcome="not-running", turn_id=turn_id)


def _abort_item(item: QueueItem, owner: Owner, clock: Clock, reason: AbortReason) -> AbortTarget:
    if item.state == "claimed" and is_live(item, owner, clock):
        _tell(item.session_id, item.turn_id, clock.now_ms(), reason)
        return AbortTarget(turn_id=item.turn_id)
    take_out(item, "cancelled", clock.now_ms())
    return AbortTarget(outcome="aborted", turn_id=item.turn_id)


def _abort_delivery(session_id: str, owner: Owner, clock: Clock, reason: AbortReason) -> AbortTarget:
    """No turn runs; one that is being delivered at this moment is stopped before it begins."""
    item = queue_rows.find_claimed(session_id)
    if item is None or not is_live(item, owner, clock):
        return AbortTarget(outcome="not-running")
    _tell(session_id, item.turn_id, clock.now_ms(), reason)
    return AbortTarget(turn_id=item.turn_id)


def _tell(session_id: str, turn_id: str, now_ms: int, reason: AbortReason) -> None:
    if signal_rows.pending(turn_id, "abort"):
        return
    signal_rows.insert_signal(
        TurnSignal(
            id=new_signal_id(),
            session_id=session_id,
            turn_id=turn_id,
            kind="abort",
            producer="mcode",
            idempotency_key=None,
            is_machine=False,
            text="",
            message_id=None,
            state="pending",
            created_ms=now_ms,
            reason=reason,
        )
    )


async def abort_outcome(store: Store, session_id: str, turn_id: str) -> AbortOutcome | None:
    """What an abort has come to by now; None while the turn still has the session."""

    def transaction() -> AbortOutcome | None:
        receipt: Receipt | None = turn_rows.find_receipt(turn_id)
        if receipt is None:
            item = queue_rows.find_by_turn(turn_id)
            return None if item is not None and item.state == "claimed" else "aborted"
        if receipt.settled_ms is not None:
            return "aborted" if receipt.outcome == "aborted" else "released"
        lock = turn_rows.find_lock(session_id)
        return "released" if lock is None or lock.turn_id != turn_id else None

    return await store.read(transaction)
