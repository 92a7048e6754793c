"""What a new process does first: end the turns of owners that are dead, and free what they held.

Their receipts are settled as `process-restart`, their sessions become
`interrupted`, their locks go; claims are given back, places in line and drainers
are forgotten, expired items leave, and what was said to turns that are over or
never came.  What live owners have is not touched, nor is
a session that is being deleted.  Doing it twice, or in two processes at once,
changes nothing.
"""

from __future__ import annotations

from msgspec import Struct

from mcode_exec.clock import Clock
from mcode_exec.records.queue import ITEM_TTL_S
from mcode_exec.sessions.unfinished import Unfinished
from mcode_exec.store import queue_rows, session_rows, signal_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.claims import recover_claims
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.queue import take_out
from mcode_exec.turns.settlement import interrupt, settle_as_dead
from mcode_exec.turns.steering import end_signals

_NEVER_CAME = "no turn of this id was submitted"

BATCH = 1000  # sessions per transaction; source: session-system notes


class Recovered(Struct, frozen=True, kw_only=True):
    """What one recovery has done."""

    #: tokens of the dead owners of locks, for ending their stray processes
    dead_owners: tuple[str, ...] = ()
    #: sessions whose deletion a dead process had begun
    deleting: tuple[str, ...] = ()
    turns: int = 0
    sessions: int = 0
    claims: int = 0
    places: int = 0
    expired: int = 0
    signals: int = 0


class _Left(Struct, frozen=True, kw_only=True):
    """What there is to look at."""

    locks: list[Lock]
    started: list[str]
    has_queue: bool


async def recover(store: Store, owner: Owner, clock: Clock, sessions_dir: str) -> Recovered:
    """Settle what dead owners left, a batch of it (call again until it finds nothing, to be sure of all).

    Raises: StoreBusyError, StoreFailedError.
    """
    left = await store.read(_look)
    dead = [lock for lock in left.locks if not owner.is_alive(lock.owner)]
    locked = {lock.session_id for lock in left.locks}
    orphans = [session_id for session_id in left.started if session_id not in locked]
    if not dead and not orphans and not left.has_queue:
        return Recovered()
    return await store.write(lambda: _settle_all(dead, orphans, left.has_queue, owner, clock, sessions_dir))


def _look() -> _Left:
    return _Left(
        locks=turn_rows.all_locks(BATCH),
        started=session_rows.started_sessions(BATCH),
        has_queue=queue_rows.needs_recovery() or signal_rows.has_pending(),
    )


def _settle_all(
    dead: list[Lock],
    orphans: list[str],
    has_queue: bool,
    owner: Owner,
    clock: Clock,
    sessions_dir: str,
) -> Recovered:
    now_ms = clock.now_ms()
    turns = sessions = 0
    deleting: list[str] = []
    for lock in dead:
        # Only the very lock that was judged: another process may have been quicker.
        if not turn_rows.holds_lock(lock.session_id, lock.token):
            continue
        if lock.kind == "deletion":
            deleting.append(lock.session_id)  # it stays sealed until that is done
            continue
        settle_as_dead(lock, now_ms, sessions_dir)
        turn_rows.delete_lock(lock.session_id, lock.token)
        turns += 1
    for session_id in orphans:
        session = session_rows.find_session(session_id)
        if session is not None and session.status == "started" and turn_rows.find_lock(session_id) is None:
            interrupt(session_id, session.last_turn_id, now_ms, sessions_dir)
            sessions += 1
    claims = places = expired = signals = 0
    if has_queue:
        places = _forget_dead(owner)
        claims = recover_claims(owner, clock, BATCH, sessions_dir)
        for item in queue_rows.expired_items(now_ms, BATCH):
            take_out(item, "expired", now_ms)
            expired += 1
        signals = _forget_unheard(now_ms, sessions_dir)
    return Recovered(
        dead_owners=tuple({lock.owner for lock in dead}),
        deleting=tuple(deleting),
        turns=turns,
        sessions=sessions,
        claims=claims,
        places=places,
        expired=expired,
        signals=signals,
    )


def _forget_unheard(now_ms: int, sessions_dir: str) -> int:
    """End what was said to turns that are over, and to turns that never came; how many."""
    count = 0
    for signal in signal_rows.all_pending(BATCH):
        receipt = turn_rows.find_receipt(signal.turn_id)
        if receipt is not None and receipt.settled_ms is not None:
            end_signals(signal.turn_id, now_ms, Unfinished(sessions_dir, signal.session_id))
            count += 1
            continue
        is_old = signal.created_ms + int(ITEM_TTL_S * 1000) <= now_ms
        if receipt is None and is_old and queue_rows.find_by_turn(signal.turn_id) is None:
            signal_rows.settle_signal(signal.id, "dropped", now_ms, reason=_NEVER_CAME)
            count += 1
    return count


def _forget_dead(owner: Owner) -> int:
    """Places in line and drainers of processes that are gone; how many places."""
    places = 0
    for item_id, waiter in queue_rows.waiting_items(BATCH):
        if not owner.is_alive(waiter):
            queue_rows.delete_item(item_id)
            places += 1
    for session_id, drainer in queue_rows.all_drainers(BATCH):
        if not owner.is_alive(drainer):
            queue_rows.delete_drainer(session_id, drainer)
    for item_id, waiter in queue_rows.old_removals(BATCH):
        if not owner.is_alive(waiter):
            queue_rows.delete_removal(item_id)
    return places
