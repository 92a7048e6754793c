"""Who delivers a queue item, and what becomes of one whose delivery is over.

An item's row goes with the commit of its prompt (sessions.commit).  A delivery
that ended before that gives the item back, under a new turn id, unless the
prompt stands in history although its row is still to come.
"""

from __future__ import annotations

from collections.abc import Callable

from mcode_exec.clock import Clock
from mcode_exec.ids import new_turn_id, user_message_id
from mcode_exec.records.queue import CLAIM_S, QueueItem
from mcode_exec.store import queue_rows, queue_state_rows, turn_rows
from mcode_exec.turns.owner import Owner

MAX_EARLIER = 20  # turn ids that a redelivered item remembers


def is_drained(session_id: str, owner: Owner) -> bool:
    """Whether a live process stands behind the session's items; inside a transaction."""
    return any(owner.is_alive(drainer) for drainer in queue_state_rows.drainers(session_id))


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


def prompt_id(item: QueueItem) -> str:
    """The message that an item becomes."""
    return user_message_id(item.session_id, "turn:" + item.turn_id)


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


def give_back(item: QueueItem, is_in_history: Callable[[str], bool]) -> bool:
    """End the delivery of an item; inside a write transaction.  False if the item went.

    One whose prompt stands in history was delivered, and goes; so does a place whose turn was admitted.
    """
    was_admitted = turn_rows.find_receipt(item.turn_id) is not None
    if was_admitted and (item.waiter is not None or is_in_history(prompt_id(item))):
        queue_rows.delete_item(item.id)
        return False
    requeue(item)
    return True
