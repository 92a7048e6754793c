"""Rows about a session's queue beside its items: pauses, who drains it, wakes, what became of places."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mcode_exec.records.queue import Pause, Removal
from mcode_exec.store.statement import Statement
from mcode_exec.store.tables import (
    QueueDrainers,
    QueueItems,
    QueuePauses,
    QueueRemovals,
    QueueWakes,
    dicts,
    tuples,
)

#: in `queue_drainers`: the items of every session
EVERY_SESSION = "*"

# pauses


_FIND_PAUSE = Statement(
    lambda session_id: QueuePauses.select().where(QueuePauses.session_id == session_id), str
)


def find_pause(session_id: str) -> Pause | None:
    row = _FIND_PAUSE.first(session_id)
    return None if row is None else msgspec.convert(row, Pause)


def put_pause(pause: Pause) -> None:
    QueuePauses.replace(
        session_id=pause.session_id, reason=pause.reason, turn_id=pause.turn_id, at_ms=pause.at_ms
    ).execute()


def delete_pause(session_id: str) -> bool:
    return bool(QueuePauses.delete().where(QueuePauses.session_id == session_id).execute())


# those who stand behind the items


def put_drainer(session_id: str, owner: str, since_ms: int) -> None:
    QueueDrainers.replace(session_id=session_id, owner=owner, since_ms=since_ms).execute()


def delete_drainer(session_id: str, owner: str) -> bool:
    query = QueueDrainers.delete().where(
        (QueueDrainers.session_id == session_id) & (QueueDrainers.owner == owner)
    )
    return bool(query.execute())


def drainers(session_id: str) -> list[str]:
    """Owner tokens of those who drain a session, dead ones among them."""
    query = QueueDrainers.select(QueueDrainers.owner).where(
        QueueDrainers.session_id.in_((session_id, EVERY_SESSION))
    )
    return [owner for (owner,) in tuples(query)]


def all_drainers(after: tuple[str, str], limit: int) -> list[tuple[str, str, int]]:
    """(session id or `*`, owner, since), those behind `after`."""
    session_id, owner = after
    query = (
        QueueDrainers.select(QueueDrainers.session_id, QueueDrainers.owner, QueueDrainers.since_ms)
        .where(
            (QueueDrainers.session_id >= session_id)
            & ((QueueDrainers.session_id > session_id) | (QueueDrainers.owner > owner))
        )
        .order_by(QueueDrainers.session_id, QueueDrainers.owner)
        .limit(limit)
    )
    return [(one, who, since_ms) for one, who, since_ms in tuples(query)]


# wakes


_WAKE = Statement(
    lambda session_id: QueueWakes.update(counter=QueueWakes.counter + 1).where(
        QueueWakes.session_id == session_id
    ),
    str,
)


def wake(session_id: str) -> None:
    """Tell drainers that there is reason to look, where there ever was an item."""
    _WAKE.count(session_id)


def begin_wakes(session_id: str) -> None:
    """Count from here on; a first item is a reason to look."""
    QueueWakes.insert(session_id=session_id, counter=1).on_conflict(
        conflict_target=(QueueWakes.session_id,), update={QueueWakes.counter: QueueWakes.counter + 1}
    ).execute()


def find_wake(session_id: str) -> int:
    """The counter; 0 where there never was an item."""
    query = QueueWakes.select(QueueWakes.counter).where(QueueWakes.session_id == session_id)
    return next((int(counter) for (counter,) in tuples(query)), 0)


# removals


def put_removal(removal: Removal, waiter: str, at_ms: int) -> None:
    QueueRemovals.replace(
        item_id=removal.item_id,
        waiter=waiter,
        reason=removal.reason,
        turn_id=removal.turn_id,
        at_ms=at_ms,
    ).execute()


def find_removal(item_id: str) -> Removal | None:
    query = QueueRemovals.select(QueueRemovals.item_id, QueueRemovals.reason, QueueRemovals.turn_id).where(
        QueueRemovals.item_id == item_id
    )
    return next((msgspec.convert(row, Removal) for row in dicts(query)), None)


def delete_removal(item_id: str) -> None:
    QueueRemovals.delete().where(QueueRemovals.item_id == item_id).execute()


def old_removals(after: str, limit: int) -> list[tuple[str, str]]:
    """(item id, waiter's owner token), those behind `after`."""
    query = (
        QueueRemovals.select(QueueRemovals.item_id, QueueRemovals.waiter)
        .where(QueueRemovals.item_id > after)
        .order_by(QueueRemovals.item_id)
        .limit(limit)
    )
    return [(item_id, waiter) for item_id, waiter in tuples(query)]


def delete_all(session_id: str) -> None:
    """Everything of the queue of a session that is being deleted."""
    for table in (QueueItems, QueuePauses, QueueDrainers, QueueWakes):
        table.delete().where(table.session_id == session_id).execute()


def needs_recovery() -> bool:
    """Whether there is anything that a dead process may have left: one cheap look."""
    rows = tuples(
        QueueItems.raw(
            "SELECT EXISTS (SELECT 1 FROM queue_items) OR EXISTS (SELECT 1 FROM queue_drainers)"
            " OR EXISTS (SELECT 1 FROM queue_removals)"
        )
    )
    return bool(rows[0][0])


# places


class Waiting(Struct, frozen=True, kw_only=True):
    """Who stands in line, without what it says."""

    id: str
    session_id: str
    position: int
    turn_id: str
    created_ms: int
    waiter: str


_WAITING_FIELDS = [getattr(QueueItems, name) for name in Waiting.__struct_fields__]


def waiting_items(after: tuple[str, int], limit: int) -> list[Waiting]:
    """All who stand in line anywhere, by session and position, those behind `after`."""
    session_id, position = after
    query = (
        QueueItems.select(*_WAITING_FIELDS)
        .where(
            QueueItems.waiter.is_null(False)
            & (QueueItems.session_id >= session_id)
            & ((QueueItems.session_id > session_id) | (QueueItems.position > position))
        )
        .order_by(QueueItems.session_id, QueueItems.position)
        .limit(limit)
    )
    return [Waiting(**row) for row in dicts(query)]
