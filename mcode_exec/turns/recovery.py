"""What a new process does first: end the turns of owners that are dead.

Their receipts are settled as `process-restart`, their sessions become
`interrupted`, their locks go.  Sessions of live owners are not touched.
"""

from __future__ import annotations

from mcode_exec.clock import Clock
from mcode_exec.store import session_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.settlement import interrupt_session, settle_as_dead

BATCH = 1000  # sessions per transaction; source: session-system notes


async def recover(store: Store, owner: Owner, clock: Clock) -> tuple[str, ...]:
    """Settle what dead owners left; the tokens of those owners (for ending their stray processes).

    Raises: StoreBusyError, StoreFailedError.
    """
    locks, started = await store.read(
        lambda: (turn_rows.all_locks(BATCH), session_rows.started_sessions(BATCH))
    )
    dead = [lock for lock in locks if not owner.is_alive(lock.owner)]
    locked = {lock.session_id for lock in locks}
    orphans = [session_id for session_id in started if session_id not in locked]
    if dead or orphans:
        now_ms = clock.now_ms()
        await store.write(lambda: _settle_all(dead, orphans, now_ms))
    return tuple({lock.owner for lock in dead})


def _settle_all(dead: list[Lock], orphans: list[str], now_ms: int) -> None:
    for lock in dead:
        # Only the very lock that was judged: another process may have been quicker.
        if turn_rows.holds_lock(lock.session_id, lock.token):
            settle_as_dead(lock, now_ms)
            turn_rows.delete_lock(lock.session_id, lock.token)
    for session_id in orphans:
        session = session_rows.find_session(session_id)
        if session is not None and session.status == "started" and turn_rows.find_lock(session_id) is None:
            interrupt_session(session_id, now_ms)
