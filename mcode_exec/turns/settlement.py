"""Settlement: the one terminal fact of a turn, written with its result, on every path.

The table of docs/contract.md §5 as code.  A turn that has lost its lease leaves
session and lock to the taker and only makes sure that its receipt has an end.
The same transaction closes the turn to what others say to it: machine steering
that waits keeps an answered turn open, a person's becomes a queue item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from mcode_exec.clock import Clock
from mcode_exec.errors import McodeError
from mcode_exec.records.queue import PauseReason
from mcode_exec.records.signal import TurnSignal
from mcode_exec.records.turn import Ending
from mcode_exec.sessions.unfinished import Unfinished
from mcode_exec.store import queue_rows, queue_state_rows, session_rows, turn_rows
from mcode_exec.store.database import Patience, Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.delivery import give_back
from mcode_exec.turns.queue import pause_if_any, take_out
from mcode_exec.turns.steering import end_signals, holds_close

PROCESS_RESTART = "process-restart"
#: abort reasons of a turn whose session is another's, or nobody's
LEASE_REASONS = ("lease-lost", "lease-renewal-failed")
#: `lost`: the lease is another's, nothing was written; `steered`: words came that the turn must take first
Settled = Literal["settled", "lost", "steered"]

_INTERRUPTED_MESSAGE = "the process that ran this turn stopped before it could settle it"


async def settle(
    store: Store,
    *,
    session_id: str,
    turn_id: str,
    lease_token: str,
    ending: Ending,
    result: bytes,
    clock: Clock,
    patience: Patience | None = None,
    is_in_history: Callable[[str], bool] | None = None,
    left: list[TurnSignal] | None = None,
) -> Settled:
    """Write the outcome, release the session.

    `left`: gets the steers that the turn did not take.

    `is_in_history`: what the turn knows to be there, else the file is asked for what rows leave open.

    An ending other than a lost lease is written only under the lease: on `lost`
    nothing was, and the caller settles again with an ending that says so.
    The terminal write is tried twice (source: turn-system notes).
    Raises: StoreFailedError, StoreBusyError when both failed.
    """

    def transaction() -> Settled:
        known = is_in_history or Unfinished(store.sessions_dir, session_id)
        untaken: list[TurnSignal] = []
        settled = _settle(session_id, turn_id, lease_token, ending, result, clock.now_ms(), known, untaken)
        if left is not None:
            left[:] = untaken
        return settled

    try:
        return await store.write(transaction, patience)
    except McodeError:
        return await store.write(transaction, patience)


def _settle(
    session_id: str,
    turn_id: str,
    lease_token: str,
    ending: Ending,
    result: bytes,
    now_ms: int,
    is_in_history: Callable[[str], bool],
    left: list[TurnSignal],
) -> Settled:
    code = ending.error.code if isinstance(ending.error, McodeError) else None
    if ending.error is not None and code is None:
        code = "INTERNAL"
    is_ours = turn_rows.holds_lock(session_id, lease_token)
    if not is_ours and ending.abort_reason not in LEASE_REASONS:
        # The first try may have been written although its answer was an error.
        receipt = turn_rows.find_receipt(turn_id)
        return "settled" if receipt is not None and receipt.result == result else "lost"
    if is_ours and ending.outcome == "completed" and holds_close(turn_id):
        return "steered"
    is_first = turn_rows.settle_receipt(
        turn_id,
        settled_ms=now_ms,
        outcome=ending.outcome,
        reason=ending.abort_reason,
        code=code,
        result=result,
    )
    # Whoever took the session over has said what became of it, and may be gone again by now.
    if is_ours or (is_first and _is_newest(session_id, turn_id)):
        session_rows.update_session(session_id, **_session_changes(ending, code, now_ms))
    if not is_ours:
        return "lost"
    turn_rows.delete_lock(session_id, lease_token)
    left += end_signals(turn_id, now_ms, is_in_history)
    _settle_queue(session_id, turn_id, ending, now_ms, is_in_history)
    return "settled"


#: abort reasons by which somebody meant the session to stop
_STOPPED = ("signal", "user-stop")


def _settle_queue(
    session_id: str, turn_id: str, ending: Ending, now_ms: int, is_in_history: Callable[[str], bool]
) -> None:
    """Wake or hold the queue, as the contract's table has it."""
    item = queue_rows.find_by_turn(turn_id)
    if item is not None:
        # The turn ended before its prompt's row was written.
        if ending.outcome == "aborted":
            give_back(item, is_in_history)
        else:
            queue_rows.delete_item(item.id)
    if ending.outcome == "completed":
        _take_answered(session_id, turn_id, now_ms)
        queue_state_rows.wake(session_id)
        return
    reason: PauseReason | None = None
    if ending.outcome == "aborted" and ending.abort_reason in _STOPPED:
        reason = "user-stop"
    elif ending.outcome == "failed" and ending.abort_reason is None:
        receipt = turn_rows.find_receipt(turn_id)
        if receipt is not None and not receipt.is_dispatched:
            reason = "turn-final-failure"
    if reason is not None:
        pause_if_any(session_id, reason, turn_id, now_ms)


def _take_answered(session_id: str, turn_id: str, now_ms: int) -> None:
    """Take out the item that waits with a request which this turn has answered."""
    if not queue_rows.has_items(session_id):
        return
    receipt = turn_rows.find_receipt(turn_id)
    if receipt is None or receipt.request_id is None:
        return
    item = queue_rows.find_by_dedupe_key(session_id, receipt.request_id)
    if item is None or item.state != "queued" or item.payload.request_id != receipt.request_id:
        return
    if item.digest == receipt.digest:
        take_out(item, "merged", now_ms, turn_id)


def _is_newest(session_id: str, turn_id: str) -> bool:
    session = session_rows.find_session(session_id)
    return session is not None and session.last_turn_id == turn_id and turn_rows.find_lock(session_id) is None


def _session_changes(ending: Ending, code: str | None, now_ms: int) -> dict[str, Any]:
    changes: dict[str, Any] = {"activity_ms": now_ms, "updated_ms": now_ms}
    if ending.outcome in ("completed", "waiting"):
        return {**changes, "status": "idle"}
    if ending.outcome == "aborted":
        return {**changes, "status": "aborted"}
    error = ending.error
    source = "turn"
    if isinstance(error, McodeError):
        source = str(error.details.get("source", error.category))
    return {
        **changes,
        "status": "error",
        "error_code": code,
        "error_message": str(error) if error is not None else None,
        "error_source": source,
    }


def settle_as_dead(lock: Lock, now_ms: int, sessions_dir: str) -> None:
    """End the turn of a dead or expired owner; inside a write transaction.

    The lock row stays: the caller replaces or deletes it.  What the turn had written into history is
    not said again, although its rows may be missing.
    """
    if lock.turn_id is None:
        return  # it was no turn: what the session says of its last one stays true
    interrupt(lock.session_id, lock.turn_id, now_ms, sessions_dir)


def interrupt(session_id: str, turn_id: str | None, now_ms: int, sessions_dir: str) -> None:
    """End a turn that nobody runs any more, and say so of its session; inside a write transaction."""
    if turn_id is not None:
        turn_rows.settle_receipt(
            turn_id, settled_ms=now_ms, outcome="failed", reason=PROCESS_RESTART, code=None, result=None
        )
        is_in_history = Unfinished(sessions_dir, session_id)
        end_signals(turn_id, now_ms, is_in_history)
        item = queue_rows.find_by_turn(turn_id)
        if item is not None and give_back(item, is_in_history):
            queue_state_rows.wake(session_id)
    session_rows.update_session(
        session_id,
        status="interrupted",
        error_message=_INTERRUPTED_MESSAGE,
        error_source=PROCESS_RESTART,
        updated_ms=now_ms,
    )
