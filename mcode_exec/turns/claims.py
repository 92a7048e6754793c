"""Claims: the 30 s right to deliver one item; one per session, bound to the item's turn id.

The item's row goes with the commit of its prompt (sessions.commit), so that a
process that dies in between loses nothing: a claim whose owner is dead, or
whose time is up, is given back under a new turn id, unless the prompt stands in
history already.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from mcode_exec.clock import Clock
from mcode_exec.ids import new_turn_id
from mcode_exec.records.queue import CLAIM_S, QueueItem
from mcode_exec.store import queue_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.owner import Owner

MAX_EARLIER = 20  # turn ids that a redelivered item remembers


async def claim_next(
    store: Store, owner: Owner, session_id: str, clock: Clock, *, before: int | None = None
) -> QueueItem | None:
    """Claim the first item of a session, up to position `before`; None where there is none to take now.

    Nothing is taken from a paused queue, while another claim is live, or past somebody who stands in
    line himself.  What has expired goes.
    """
    token = _token()

    def transaction() -> QueueItem | None:
        if queue_rows.find_pause(session_id) is not None or _is_delivering(session_id, owner, clock):
            return None
        item = _first(session_id, clock.now_ms())
        if item is None or (before is not None and item.position >= before):
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
        if item is None or item.waiter is not None or _is_delivering(item.session_id, owner, clock):
            return None
        return _claim(item, owner, token, clock)

    return await store.write(transaction)


async def release(store: Store, item: QueueItem) -> bool:
    """Give a claim back: the item is queued again, under a new turn id; False if the claim was not ours any more."""

    def transaction() -> bool:
        now = queue_rows.find_item(item.id)
        if now is None or now.claim_token != item.claim_token:
            return False
        requeue(now)
        return True

    return await store.write(transaction)


async def drop(store: Store, item: QueueItem) -> bool:
    """Take an item away that can never run; False if the claim was not ours any more."""

    def transaction() -> bool:
        now = queue_rows.find_item(item.id)
        if now is None or now.claim_token != item.claim_token:
            return False
        return queue_rows.delete_item(item.id)

    return await store.write(transaction)


def requeue(item: QueueItem) -> None:
    """Back into its place; inside a write transaction.  A turn id is submitted once."""
    was_admitted = turn_rows.find_receipt(item.turn_id) is not None
    queue_rows.update_item(
        item.id,
        state="queued",
        turn_id=new_turn_id() if was_admitted else item.turn_id,
        earlier_turns=(*item.earlier_turns, item.turn_id)[-MAX_EARLIER:]
        if was_admitted
        else item.earlier_turns,
        claim_owner=None,
        claim_token=None,
        claim_boot_id=None,
        claim_expires_ms=None,
        claim_expires_boot_ms=None,
    )


def is_live(item: QueueItem, owner: Owner, clock: Clock) -> bool:
    """Whether a claimed item is being delivered: its claim is good, or its turn holds the session."""
    lock = turn_rows.find_lock(item.session_id)
    if lock is not None and lock.turn_id == item.turn_id:
        return True  # how long the turn may take to write its prompt is the lease's word
    if item.claim_owner is None or not owner.is_alive(item.claim_owner):
        return False
    if item.claim_boot_id == owner.boot_id:
        return (item.claim_expires_boot_ms or 0) > clock.boot_ms()
    return clock.now_ms() < (item.claim_expires_ms or 0) <= clock.now_ms() + int(CLAIM_S * 1000)


def recover_claims(owner: Owner, clock: Clock, limit: int, is_in_history: Callable[[QueueItem], bool]) -> int:
    """Give back the claims of the dead and of those whose time is up; inside a write transaction.

    An item whose prompt stands in history was delivered: it goes.
    """
    count = 0
    for item in queue_rows.claimed_items(limit):
        if is_live(item, owner, clock):
            continue
        count += 1
        was_admitted = turn_rows.find_receipt(item.turn_id) is not None
        has_left = item.waiter is not None and not owner.is_alive(item.waiter)
        if has_left or (was_admitted and is_in_history(item)):
            queue_rows.delete_item(item.id)
        else:
            requeue(item)
            queue_rows.wake(item.session_id)
    return count


def _is_delivering(session_id: str, owner: Owner, clock: Clock) -> bool:
    claimed = queue_rows.find_claimed(session_id)
    return claimed is not None and is_live(claimed, owner, clock)


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
