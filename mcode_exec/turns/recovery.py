"""What a new process does first: end the turns of owners that are dead, and free what they held.

Their receipts are settled as `process-restart`, their sessions become
`interrupted`, their locks go; claims are given back, places in line and drainers
are forgotten, expired items leave, and what was said to turns that are over or
never came.  What live owners have is not touched, nor is
a session that is being deleted.  Doing it twice, or in two processes at once,
changes nothing.  A batch is looked at by key, so that what lives hides nothing dead:
a start looks at the first one, `mcode recover` and who runs long at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from mcode_exec.clock import Clock
from mcode_exec.records.queue import ITEM_TTL_S, QueueItem
from mcode_exec.records.signal import TurnSignal
from mcode_exec.sessions.unfinished import Unfinished
from mcode_exec.store import (
    deletion_rows,
    operation_rows,
    queue_rows,
    queue_state_rows,
    session_rows,
    signal_rows,
    turn_rows,
)
from mcode_exec.store.database import Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.delivery import give_back, is_live
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.queue import take_out
from mcode_exec.turns.settlement import interrupt, settle_as_dead
from mcode_exec.turns.steering import end_signals

_NEVER_CAME = "no turn of this id was submitted"

BATCH = 1000  # sessions per transaction; source: session-system notes


class Place(Struct, frozen=True, kw_only=True):
    """Where a batch begins: the key of each table up to which everything has been looked at."""

    lock: str = ""
    claim: str = ""
    waiter: tuple[str, int] = ("", 0)
    drainer: tuple[str, str] = ("", "")
    removal: str = ""
    signal: int = 0
    deletion: str = ""
    operation: str = ""


FIRST = Place()


class Recovered(Struct, frozen=True, kw_only=True):
    """What one recovery has done."""

    #: tokens of the dead owners of locks, for ending their stray processes
    dead_owners: tuple[str, ...] = ()
    #: sessions whose deletion a dead process had begun
    deleting: tuple[str, ...] = ()
    #: sessions that a dead process had begun to make
    making: tuple[str, ...] = ()
    turns: int = 0
    sessions: int = 0
    claims: int = 0
    places: int = 0
    expired: int = 0
    signals: int = 0
    #: where to go on; None: everything has been looked at
    then: Place | None = None


class _Left(Struct, frozen=True, kw_only=True):
    """What of a batch nobody alive has any more."""

    locks: list[Lock]
    #: sessions that say `started` although nobody holds them
    orphans: list[str]
    claims: list[QueueItem]
    #: ids of items whose waiter is gone
    places: list[str]
    #: (session id, owner)
    drainers: list[tuple[str, str]]
    removals: list[str]
    expired: list[QueueItem]
    signals: list[TurnSignal]
    #: words that somebody still waits with, as it seems: an item that leaves in this recovery takes its own along
    heard: list[TurnSignal]
    #: sessions whose deleter is gone
    deleting: list[str]
    #: sessions whose maker is gone
    making: list[str]
    then: Place | None

    @property
    def is_nothing(self) -> bool:
        found = (self.locks, self.orphans, self.claims, self.places, self.drainers, self.removals)
        return not any((*found, self.expired, self.signals, self.deleting, self.making))


async def recover(
    store: Store, owner: Owner, clock: Clock, sessions_dir: str, place: Place = FIRST
) -> Recovered:
    """Settle what dead owners left, a batch of it from `place` on.

    Raises: StoreBusyError, StoreFailedError.
    """
    left = await store.read(lambda: _look(owner, clock, place))
    if left.is_nothing:
        return Recovered(then=left.then)
    return await store.write(lambda: _settle_all(left, owner, clock, sessions_dir))


def _look(owner: Owner, clock: Clock, place: Place) -> _Left:
    believed: dict[str, bool] = {}

    def is_dead(token: str) -> bool:
        if token not in believed:
            believed[token] = owner.is_alive(token)
        return not believed[token]

    now_ms = clock.now_ms()
    locks = turn_rows.page_locks(place.lock, BATCH)
    orphans = session_rows.unheld_started(BATCH)
    has_queue = queue_state_rows.needs_recovery()
    claims = queue_rows.claimed_items(place.claim, BATCH) if has_queue else []
    waiters = queue_state_rows.waiting_items(place.waiter, BATCH) if has_queue else []
    drainers = queue_state_rows.all_drainers(place.drainer, BATCH) if has_queue else []
    removals = queue_state_rows.old_removals(place.removal, BATCH) if has_queue else []
    expired = queue_rows.expired_items(now_ms, BATCH) if has_queue else []
    signals = signal_rows.page_pending(place.signal, BATCH)
    deleters = deletion_rows.page_deleters(place.deletion, BATCH)
    makers = operation_rows.page_owners(place.operation, BATCH)
    pages: tuple[Sequence[Any], ...] = (
        locks, orphans, claims, waiters, drainers, removals, expired, signals, deleters, makers,
    )  # fmt: skip
    then = None
    if any(len(page) == BATCH for page in pages):
        then = Place(
            lock=_last(locks, place.lock, lambda lock: lock.session_id),
            claim=_last(claims, place.claim, lambda item: item.session_id),
            waiter=_last(waiters, place.waiter, lambda one: (one.session_id, one.position)),
            drainer=_last(drainers, place.drainer, lambda row: row[:2]),
            removal=_last(removals, place.removal, lambda row: row[0]),
            signal=_last(signals, place.signal, lambda row: row[0]),
            deletion=_last(deleters, place.deletion, lambda row: row[0]),
            operation=_last(makers, place.operation, lambda row: row[0]),
        )
    unheard = [signal for _, signal in signals if _is_unheard(signal, now_ms)]
    known = {signal.id for signal in unheard}
    return _Left(
        locks=[lock for lock in locks if is_dead(lock.owner)],
        orphans=orphans,
        claims=[item for item in claims if not is_live(item, owner, clock)],
        places=[one.id for one in waiters if is_dead(one.waiter)],
        drainers=[(session_id, drainer) for session_id, drainer, _ in drainers if is_dead(drainer)],
        removals=[item_id for item_id, waiter in removals if is_dead(waiter)],
        expired=expired,
        signals=unheard,
        heard=[signal for _, signal in signals if signal.id not in known],
        deleting=[one for one, deleter in deleters if is_dead(deleter)],
        making=[one for one, maker in makers if is_dead(maker)],
        then=then,
    )


def _last(page: Sequence[Any], before: Any, key: Callable[[Any], Any]) -> Any:
    return key(page[-1]) if page else before


def _settle_all(left: _Left, owner: Owner, clock: Clock, sessions_dir: str) -> Recovered:
    """Everything was judged before: only what is still as it was then is ended."""
    now_ms = clock.now_ms()
    turns = _end_turns(left.locks, now_ms, sessions_dir)
    sessions = 0
    for session_id in left.orphans:
        session = session_rows.find_session(session_id)
        if session is not None and session.status == "started" and turn_rows.find_lock(session_id) is None:
            interrupt(session_id, session.last_turn_id, now_ms, sessions_dir)
            sessions += 1
    places = sum(queue_rows.delete_item(item_id) for item_id in left.places)
    for session_id, drainer in left.drainers:
        queue_state_rows.delete_drainer(session_id, drainer)
    for item_id in left.removals:
        queue_state_rows.delete_removal(item_id)
    claims = sum(_give_back(item, owner, clock, sessions_dir) for item in left.claims)
    for item in left.expired:
        take_out(item, "expired", now_ms)
    return Recovered(
        dead_owners=tuple({lock.owner for lock in left.locks}),
        deleting=tuple(left.deleting),
        making=tuple(left.making),
        turns=turns,
        sessions=sessions,
        claims=claims,
        places=places,
        expired=len(left.expired),
        signals=sum(_forget(signal, now_ms, sessions_dir) for signal in (*left.signals, *left.heard)),
        then=left.then,
    )


def _end_turns(dead: list[Lock], now_ms: int, sessions_dir: str) -> int:
    turns = 0
    for lock in dead:
        # Only the very lock that was judged: another process may have been quicker.  What a deletion holds
        # stays held until that is finished.
        if lock.kind == "deletion" or not turn_rows.holds_lock(lock.session_id, lock.token):
            continue
        settle_as_dead(lock, now_ms, sessions_dir)
        turn_rows.delete_lock(lock.session_id, lock.token)
        turns += 1
    return turns


def _give_back(judged: QueueItem, owner: Owner, clock: Clock, sessions_dir: str) -> bool:
    item = queue_rows.find_item(judged.id)
    if item is None or item.claim_token != judged.claim_token or is_live(item, owner, clock):
        return False
    if give_back(item, Unfinished(sessions_dir, item.session_id)):
        queue_state_rows.wake(item.session_id)
    return True


def _is_unheard(signal: TurnSignal, now_ms: int) -> bool:
    """Whether a signal was said to a turn that is over, or never came."""
    receipt = turn_rows.find_receipt(signal.turn_id)
    if receipt is not None:
        return receipt.settled_ms is not None
    is_old = signal.created_ms + int(ITEM_TTL_S * 1000) <= now_ms
    return is_old and queue_rows.find_by_turn(signal.turn_id) is None


def _forget(signal: TurnSignal, now_ms: int, sessions_dir: str) -> bool:
    if not _is_unheard(signal, now_ms):
        return False
    if turn_rows.find_receipt(signal.turn_id) is None:
        return signal_rows.settle_signal(signal.id, "dropped", now_ms, reason=_NEVER_CAME)
    end_signals(signal.turn_id, now_ms, Unfinished(sessions_dir, signal.session_id))
    return True
