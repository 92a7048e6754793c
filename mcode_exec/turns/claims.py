"""Claims: the 30 s right to deliver one item; one per session, bound to the item's turn id.

A claim whose owner is dead, or whose time is up, is in nobody's way: whoever
wants to deliver next gives the item back first (turns.delivery).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from mcode_exec.clock import Clock
from mcode_exec.records.queue import CLAIM_S, QueueItem
from mcode_exec.sessions.unfinished import Unfinished
from mcode_exec.store import queue_rows, queue_state_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.delivery import give_back, is_live, requeue
from mcode_exec.turns.lease import is_held
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.settlement import settle_as_dead


async def claim_next(
    store: Store,
    owner: Owner,
    session_id: str,
    clock: Clock,
    *,
    before: int | None = None,
    rests: Callable[[QueueItem], bool] | None = None,
) -> QueueItem | None:
    """Claim the first item of a session, up to position `before`; None where there is none to take now.

    Nothing is taken from a paused queue, while another claim is live, or past somebody who stands in
    line himself, or past an item that the caller leaves alone (`rests`).  What has expired goes.
    """
    token = _token()

    def transaction() -> QueueItem | None:
        if queue_state_rows.find_pause(session_id) is not None:
            return None
        if is_delivering(session_id, owner, clock, store.sessions_dir):
            return None
        item = _first(session_id, clock.now_ms())
        if item is None or (before is not None and item.position >= before):
            return None
        if rests is not None and rests(item):
            return None
        if any(owner.is_alive(waiter) for _, waiter in queue_rows.waiters(session_id, item.position)):
            return None
        return _claim(item, owner, token, clock)

    return await store.write(transaction)


async def claim_item(store: Store, owner: Owner, item_id: str, clock: Clock) -> QueueItem | None:
    """Claim one item by name, from a paused queue too; None if it is gone or something is being delivered."""
    token = _token()

    def transaction() -> QueueItem | None:
        item = queue_rows.find_item(item_id)
        if item is None or item.waiter is not None:
            return None
        if is_delivering(item.session_id, owner, clock, store.sessions_dir):
            return None
        item = queue_rows.find_item(item_id)  # its own claim may just have been given back
        if item is None:
            return None
        if item.expires_ms <= clock.now_ms():
            queue_rows.delete_item(item_id)
            return None
        return _claim(item, owner, token, clock)

    return await store.write(transaction)


async def release(store: Store, item: QueueItem, *, wakes: bool = False) -> bool:
    """Give a claim back: the item is queued again, under a new turn id; False if the claim was not ours any more.

    `wakes`: others who drain may be able to run what we were not.
    """

    def transaction() -> bool:
        now = queue_rows.find_item(item.id)
        if now is None or now.claim_token != item.claim_token:
            return False
        requeue(now)
        if wakes:
            queue_state_rows.wake(now.session_id)
        return True

    return await store.write(transaction)


async def drop(store: Store, item: QueueItem) -> bool:
    """Take an item away that can never run; False if the claim was not ours any more."""

    def transaction() -> bool:
        now = queue_rows.find_item(item.id)
        if now is None or now.claim_token != item.claim_token:
            return False
        queue_state_rows.wake(now.session_id)
        return queue_rows.delete_item(item.id)

    return await store.write(transaction)


def is_delivering(session_id: str, owner: Owner, clock: Clock, sessions_dir: str) -> bool:
    """Whether an item of a session is being delivered; a delivery that is over ends here.

    Inside a write transaction.
    """
    item = queue_rows.find_claimed(session_id)
    if item is None:
        return False
    lock = turn_rows.find_lock(session_id)
    if lock is not None and lock.turn_id == item.turn_id:
        if is_held(lock, owner, clock):
            return True
        settle_as_dead(lock, clock.now_ms(), sessions_dir)
        turn_rows.delete_lock(session_id, lock.token)
        return False
    if is_live(item, owner, clock):
        return True
    give_back(item, Unfinished(sessions_dir, session_id))
    return False


def _first(session_id: str, now_ms: int) -> QueueItem | None:
    while (item := queue_rows.first_queued(session_id)) is not None and item.expires_ms <= now_ms:
        queue_rows.delete_item(item.id)
    return item


def _claim(item: QueueItem, owner: Owner, token: str, clock: Clock) -> QueueItem | None:
    claim_ms = int(CLAIM_S * 1000)
    is_ours = queue_rows.claim_item(
        item.id,
        claim_owner=owner.token,
        claim_token=token,
        claim_boot_id=owner.boot_id,
        claim_expires_ms=clock.now_ms() + claim_ms,
        claim_expires_boot_ms=clock.boot_ms() + claim_ms,
    )
    return queue_rows.find_item(item.id) if is_ours else None


def _token() -> str:
    return "claim_" + os.urandom(16).hex()
