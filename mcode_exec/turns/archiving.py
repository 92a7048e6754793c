"""Archiving: putting a session away, out of lists and of `--continue`, with all that it has.

Only what is at rest is put away: not while something runs in it, nor while items
wait in its queue, which would take it out again.
"""

from __future__ import annotations

from mcode_exec.clock import Clock
from mcode_exec.errors import BusyError
from mcode_exec.records.session import Session
from mcode_exec.sessions.keeping import get_kept
from mcode_exec.store import queue_rows, session_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.lease import is_held
from mcode_exec.turns.owner import Owner


def unrest(session: Session, owner: Owner, clock: Clock) -> BusyError | None:
    """Why a session is not at rest: what runs or waits in it; inside a transaction."""
    lock = turn_rows.find_lock(session.id)
    if lock is not None and is_held(lock, owner, clock):
        what = "a turn runs" if lock.kind == "turn" else "something is at work"
        return BusyError(f"{what} in session {session.id} (process {lock.pid} on {lock.host})")
    if queue_rows.has_items(session.id):
        return BusyError(
            f"items wait in the queue of session {session.id}; `mcode queue list {session.id}` shows them",
            code="session_has_queued_messages",
        )
    return None


async def archive(store: Store, owner: Owner, session_id: str, clock: Clock) -> bool:
    """Put a session away; False if it was.  Raises: SessionError; BusyError while it is not at rest."""

    def transaction() -> bool:
        session = get_kept(session_id)
        if session.archived_ms is not None:
            return False
        busy = unrest(session, owner, clock)
        if busy is not None:
            raise busy
        now_ms = clock.now_ms()
        return session_rows.update_session(session_id, archived_ms=now_ms, updated_ms=now_ms)

    return await store.write(transaction)


async def unarchive(store: Store, session_id: str, clock: Clock) -> bool:
    """Take a session out again; False if it was not put away.  Raises: SessionError."""

    def transaction() -> bool:
        if get_kept(session_id).archived_ms is None:
            return False
        return session_rows.update_session(session_id, archived_ms=None, updated_ms=clock.now_ms())

    return await store.write(transaction)
