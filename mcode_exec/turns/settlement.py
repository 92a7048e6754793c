"""Settlement: the one terminal fact of a turn, written with its result, on every path.

The table of docs/contract.md §5 as code.  A turn that has lost its lease leaves
session and lock to the taker and only makes sure that its receipt has an end.
"""

from __future__ import annotations

from typing import Any

from mcode_exec.clock import Clock
from mcode_exec.errors import McodeError
from mcode_exec.records.turn import Ending
from mcode_exec.store import session_rows, turn_rows
from mcode_exec.store.database import Patience, Store
from mcode_exec.store.turn_rows import Lock

PROCESS_RESTART = "process-restart"
#: abort reasons of a turn whose session is another's, or nobody's
LEASE_REASONS = ("lease-lost", "lease-renewal-failed")
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
) -> bool:
    """Write the outcome, release the session; False if the lease was lost before.

    An ending other than a lost lease is written only under the lease: on False
    nothing was, and the caller settles again with an ending that says so.
    The terminal write is tried twice (source: turn-system notes).
    Raises: StoreFailedError, StoreBusyError when both failed.
    """

    def transaction() -> bool:
        return _settle(session_id, turn_id, lease_token, ending, result, clock.now_ms())

    try:
        return await store.write(transaction, patience)
    except McodeError:
        return await store.write(transaction, patience)


def _settle(
    session_id: str, turn_id: str, lease_token: str, ending: Ending, result: bytes, now_ms: int
) -> bool:
    code = ending.error.code if isinstance(ending.error, McodeError) else None
    if ending.error is not None and code is None:
        code = "INTERNAL"
    is_ours = turn_rows.holds_lock(session_id, lease_token)
    if not is_ours and ending.abort_reason not in LEASE_REASONS:
        # The first try may have been written although its answer was an error.
        receipt = turn_rows.find_receipt(turn_id)
        return receipt is not None and receipt.result == result
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
    if is_ours:
        turn_rows.delete_lock(session_id, lease_token)
    return is_ours


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


def settle_as_dead(lock: Lock, now_ms: int) -> None:
    """End the turn of a dead or expired owner; inside a write transaction.

    The lock row stays: the caller replaces or deletes it.
    """
    if lock.turn_id is None:
        return  # it was no turn: what the session says of its last one stays true
    turn_rows.settle_receipt(
        lock.turn_id,
        settled_ms=now_ms,
        outcome="failed",
        reason=PROCESS_RESTART,
        code=None,
        result=None,
    )
    session_rows.update_session(
        lock.session_id,
        status="interrupted",
        error_message=_INTERRUPTED_MESSAGE,
        error_source=PROCESS_RESTART,
        updated_ms=now_ms,
    )


def interrupt_session(session_id: str, now_ms: int) -> None:
    """A session that says `started` although nobody holds it; inside a write transaction."""
    session_rows.update_session(
        session_id,
        status="interrupted",
        error_message=_INTERRUPTED_MESSAGE,
        error_source=PROCESS_RESTART,
        updated_ms=now_ms,
    )
