"""Rows of `queue_items`: waiting submissions, in the order of their lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from peewee import fn

from mcode_exec.records.queue import QueueItem, QueuePayload
from mcode_exec.store.statement import Statement, Updates
from mcode_exec.store.tables import (
    QueueItems,
    dicts,
    tuples,
)

_encode = msgspec.json.Encoder(decimal_format="string").encode
_decode = msgspec.json.Decoder(QueuePayload).decode
_FIELDS = [getattr(QueueItems, name) for name in QueueItem.__struct_fields__]


def encode_payload(payload: QueuePayload) -> bytes:
    return _encode(payload)


def _item(row: dict[str, Any]) -> QueueItem:
    row["payload"] = _decode(row["payload"])
    row["earlier_turns"] = tuple(msgspec.json.decode(row["earlier_turns"], type=list[str]))
    return QueueItem(**row)


def _one(condition: Callable[[Any], Any]) -> Statement:
    """The first item of the line for which something holds."""
    return Statement(
        lambda value: (
            QueueItems.select(*_FIELDS).where(condition(value)).order_by(QueueItems.position).limit(1)
        ),
        str,
    )


def _found(statement: Statement, value: str) -> QueueItem | None:
    row = statement.first(value)
    return None if row is None else _item(row)


def _first(query: Any) -> QueueItem | None:
    rows = dicts(query.limit(1))
    return _item(rows[0]) if rows else None


# items


def insert_item(item: QueueItem) -> QueueItem:
    """Append an item to its session's line: its position is its row's number, whatever `item` says."""
    values = {name: getattr(item, name) for name in QueueItem.__struct_fields__}
    values["payload"] = _encode(item.payload)
    values["earlier_turns"] = msgspec.json.encode(item.earlier_turns).decode()
    row = int(QueueItems.insert(**{**values, "position": 0}).execute())
    QueueItems.update(position=row).where(QueueItems.row == row).execute()
    return msgspec.structs.replace(item, position=row)


_FIND_ITEM = _one(lambda item_id: QueueItems.id == item_id)
_FIND_BY_TURN = _one(lambda turn_id: QueueItems.turn_id == turn_id)
_FIND_CLAIMED = Statement(
    lambda session_id: QueueItems.select(*_FIELDS).where(
        (QueueItems.session_id == session_id) & (QueueItems.state == "claimed")
    ),
    str,
)
_FIRST_QUEUED = _one(
    lambda session_id: (
        (QueueItems.session_id == session_id) & QueueItems.waiter.is_null() & (QueueItems.state == "queued")
    )
)
_HAS_ITEMS = Statement(
    lambda session_id: QueueItems.select(QueueItems.row).where(QueueItems.session_id == session_id).limit(1),
    str,
)


def find_item(item_id: str) -> QueueItem | None:
    return _found(_FIND_ITEM, item_id)


def find_by_prefix(prefix: str) -> list[QueueItem]:
    """At most two items whose id starts with `prefix`."""
    query = QueueItems.select(*_FIELDS).where((QueueItems.id >= prefix) & (QueueItems.id < prefix + "g"))
    return [_item(row) for row in dicts(query.limit(2))]


def find_by_turn(turn_id: str) -> QueueItem | None:
    return _found(_FIND_BY_TURN, turn_id)


def find_by_earlier_turn(session_id: str, turn_id: str) -> str | None:
    """Id of the item that was delivered as that turn, or is to be, and waits again."""
    query = QueueItems.select(QueueItems.id).where(
        (QueueItems.session_id == session_id)
        & ((QueueItems.turn_id == turn_id) | QueueItems.earlier_turns.contains(f'"{turn_id}"'))
    )
    return next((str(item_id) for (item_id,) in tuples(query.limit(1))), None)


def find_by_dedupe_key(session_id: str, key: str) -> QueueItem | None:
    return _first(
        QueueItems.select(*_FIELDS).where(
            (QueueItems.session_id == session_id) & (QueueItems.dedupe_key == key)
        )
    )


def has_items(session_id: str) -> bool:
    return _HAS_ITEMS.exists(session_id)


def page_items(session_id: str, *, after: int = 0, limit: int) -> list[QueueItem]:
    """Items of a session in the order of the line, those behind position `after`."""
    query = (
        QueueItems.select(*_FIELDS)
        .where((QueueItems.session_id == session_id) & (QueueItems.position > after))
        .order_by(QueueItems.position)
        .limit(limit)
    )
    return [_item(row) for row in dicts(query)]


def line(session_id: str) -> list[tuple[str, int, str]]:
    """(id, position, state) of every item of a session, in the order of the line."""
    query = QueueItems.select(QueueItems.id, QueueItems.position, QueueItems.state).where(
        QueueItems.session_id == session_id
    )
    return [(item_id, place, state) for item_id, place, state in tuples(query.order_by(QueueItems.position))]


def page_all_items(*, after: int = 0, limit: int) -> list[tuple[int, QueueItem]]:
    """(row number, item) of every session, oldest row first."""
    query = (
        QueueItems.select(QueueItems.row, *_FIELDS)
        .where(QueueItems.row > after)
        .order_by(QueueItems.row)
        .limit(limit)
    )
    return [(row.pop("row"), _item(row)) for row in dicts(query)]


def first_delivered(session_id: str) -> QueueItem | None:
    """The first item of the line that others deliver: one without a waiter."""
    return _first(
        QueueItems.select(*_FIELDS)
        .where((QueueItems.session_id == session_id) & QueueItems.waiter.is_null())
        .order_by(QueueItems.position)
    )


def first_queued(session_id: str) -> QueueItem | None:
    """The first item of the line that nobody has claimed and nobody waits for himself."""
    return _found(_FIRST_QUEUED, session_id)


def find_claimed(session_id: str) -> QueueItem | None:
    return _found(_FIND_CLAIMED, session_id)


def waiters(session_id: str, before: int | None) -> list[tuple[str, str]]:
    """(item id, owner) of those who stand in line, in its order, up to position `before`.

    One whose turn was admitted stands there no more: what it holds is the session.
    """
    query = QueueItems.select(QueueItems.id, QueueItems.waiter).where(
        (QueueItems.session_id == session_id)
        & QueueItems.waiter.is_null(False)
        & (QueueItems.state == "queued")
    )
    if before is not None:
        query = query.where(QueueItems.position < before)
    return [(item_id, owner) for item_id, owner in tuples(query.order_by(QueueItems.position))]


def has_delivered_before(session_id: str, before: int | None, now_ms: int) -> bool:
    """Whether an unexpired item that others deliver stands ahead of position `before`."""
    query = QueueItems.select(QueueItems.row).where(
        (QueueItems.session_id == session_id) & QueueItems.waiter.is_null() & (QueueItems.expires_ms > now_ms)
    )
    if before is not None:
        query = query.where(QueueItems.position < before)
    return bool(query.exists())


def count_items(session_id: str) -> int:
    return int(QueueItems.select().where(QueueItems.session_id == session_id).count())


def count_delivered(session_id: str) -> int:
    """Items that others deliver."""
    return int(
        QueueItems.select().where((QueueItems.session_id == session_id) & QueueItems.waiter.is_null()).count()
    )


def place_of(session_id: str, position: int) -> int:
    """The place in its line that a position is, as people and programs are told it: 1 is the first."""
    ahead = QueueItems.select().where(
        (QueueItems.session_id == session_id) & (QueueItems.position < position)
    )
    return int(ahead.count()) + 1


def update_item(item_id: str, **changes: Any) -> bool:
    """Set columns of an item; False if it is gone."""
    if "payload" in changes:
        changes["payload"] = _encode(changes["payload"])
    if "earlier_turns" in changes:
        changes["earlier_turns"] = msgspec.json.encode(changes["earlier_turns"]).decode()
    return bool(QueueItems.update(**changes).where(QueueItems.id == item_id).execute())


_CLAIM = Updates(
    lambda claim, item_id: QueueItems.update(state="claimed", **claim).where(
        (QueueItems.id == item_id) & (QueueItems.state == "queued")
    ),
    str,
    lambda name: int if name.endswith("_ms") else str,
)


def claim_item(item_id: str, **claim: Any) -> bool:
    """Claim a queued item; False if it is gone or claimed already: one conditional update."""
    return bool(_CLAIM.count(item_id, claim))


_DELETE_ITEM = Statement(lambda item_id: QueueItems.delete().where(QueueItems.id == item_id), str)
_DELETE_BY_TURN = Statement(lambda turn_id: QueueItems.delete().where(QueueItems.turn_id == turn_id), str)


def delete_item(item_id: str) -> bool:
    return bool(_DELETE_ITEM.count(item_id))


def delete_by_turn(turn_id: str) -> bool:
    """The item whose prompt is in history now."""
    return bool(_DELETE_BY_TURN.count(turn_id))


def delete_delivered(session_id: str) -> int:
    """Delete the items that others deliver, but for one that is being delivered."""
    query = QueueItems.delete().where(
        (QueueItems.session_id == session_id) & QueueItems.waiter.is_null() & (QueueItems.state == "queued")
    )
    return int(query.execute())


def claimed_items(after: str, limit: int) -> list[QueueItem]:
    """Claimed items by session (each has one at most), those behind `after`."""
    query = QueueItems.select(*_FIELDS).where(
        (QueueItems.state == "claimed") & (QueueItems.session_id > after)
    )
    return [_item(row) for row in dicts(query.order_by(QueueItems.session_id).limit(limit))]


def expired_items(now_ms: int, limit: int) -> list[QueueItem]:
    query = QueueItems.select(*_FIELDS).where(
        (QueueItems.expires_ms <= now_ms) & (QueueItems.state == "queued")
    )
    return [_item(row) for row in dicts(query.limit(limit))]


def sessions_with_items(after: str, limit: int) -> list[str]:
    """Ids of sessions that have items, by id, those behind `after`."""
    found: list[str] = []
    # One look into the index for each: grouping would go through every item.
    while len(found) < limit:
        query = QueueItems.select(fn.MIN(QueueItems.session_id)).where(QueueItems.session_id > after)
        ((next_id,),) = tuples(query)
        if next_id is None:
            break
        after = next_id
        found.append(after)
    return found
