"""The priority fence: who comes later does not pass an earlier item that somebody stands behind.

Part of the admission transaction.  A waiter stands behind its own place, a
drainer behind every item of its sessions, and a waiter behind what is ahead of
it, which it dispatches itself.  Items that no live process drains, and paused
ones, hold nobody up; a dead waiter loses its place here.
Source: turn-system notes, priority fence; docs/contract.md §5.
"""

from __future__ import annotations

from msgspec import Struct

from mcode_exec.clock import Clock
from mcode_exec.records.queue import QueueItem
from mcode_exec.records.turn import PASSING, TurnRequest
from mcode_exec.store import queue_rows, queue_state_rows
from mcode_exec.turns.claims import is_delivering
from mcode_exec.turns.delivery import is_drained
from mcode_exec.turns.owner import Owner


class Passage(Struct, frozen=True, kw_only=True):
    """What the fence says of a submission."""

    is_blocked: bool = False
    #: items that it passes over, because nobody drains them or they are paused
    passed: int = 0
    is_paused: bool = False


_FREE = Passage()
_BLOCKED = Passage(is_blocked=True)


def passage(
    request: TurnRequest, item: QueueItem | None, owner: Owner, clock: Clock, sessions_dir: str
) -> Passage:
    """Whether an earlier candidate stands ahead; inside the admission transaction.

    `item` is the one that the request delivers, or the place that it waits in.
    """
    if not queue_rows.has_items(request.session_id):
        return _FREE
    waits = item is not None and item.waiter is not None
    if waits and is_delivering(request.session_id, owner, clock, sessions_dir):
        return _BLOCKED  # another item is being delivered at this moment
    if request.priority in PASSING:
        return _FREE
    place = None if item is None else item.position
    if _has_live_waiter(request.session_id, place, owner):
        return _BLOCKED
    if item is not None and item.waiter is None:
        return _FREE  # it is the queue's own turn
    if not queue_rows.has_delivered_before(request.session_id, place, clock.now_ms()):
        return _FREE
    is_paused = queue_state_rows.find_pause(request.session_id) is not None
    stands_behind = item is not None or is_drained(request.session_id, owner)
    if stands_behind and not is_paused:
        return _BLOCKED
    passed = queue_rows.count_delivered(request.session_id) - _is_queued(request)
    return Passage(passed=passed, is_paused=is_paused)


def _is_queued(request: TurnRequest) -> bool:
    """Whether the same submission waits in the queue as well: this turn answers it, and passes nobody by that."""
    if request.request_id is None:
        return False
    item = queue_rows.find_by_dedupe_key(request.session_id, request.request_id)
    return item is not None and item.waiter is None and item.digest == request.digest


def _has_live_waiter(session_id: str, before: int | None, owner: Owner) -> bool:
    for item_id, waiter in queue_rows.waiters(session_id, before):
        if owner.is_alive(waiter):
            return True
        queue_rows.delete_item(item_id)
    return False
