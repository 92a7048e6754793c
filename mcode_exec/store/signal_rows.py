"""Rows of `turn_signals`: what other processes say to a running turn."""

from __future__ import annotations

from typing import Any

from mcode_exec.records.signal import SignalKind, TurnSignal
from mcode_exec.store.statement import Statement
from mcode_exec.store.tables import TurnSignals, dicts

_FIELDS = [getattr(TurnSignals, name) for name in TurnSignal.__struct_fields__]


def _signal(row: dict[str, Any]) -> TurnSignal:
    row["is_machine"] = bool(row["is_machine"])
    if row["origin"] is not None:
        row["origin"] = bytes(row["origin"])
    return TurnSignal(**row)


def insert_signal(signal: TurnSignal) -> None:
    values = {name: getattr(signal, name) for name in TurnSignal.__struct_fields__}
    TurnSignals.insert(**{**values, "is_machine": int(signal.is_machine)}).execute()


def find_by_key(session_id: str, producer: str, key: str) -> TurnSignal | None:
    query = TurnSignals.select(*_FIELDS).where(
        (TurnSignals.session_id == session_id)
        & (TurnSignals.producer == producer)
        & (TurnSignals.idempotency_key == key)
    )
    return next((_signal(row) for row in dicts(query.limit(1))), None)


_PENDING = Statement(
    lambda turn_id: (
        TurnSignals.select(*_FIELDS)
        .where((TurnSignals.turn_id == turn_id) & (TurnSignals.state == "pending"))
        .order_by(TurnSignals.row)
    ),
    str,
)


def pending(turn_id: str, kind: SignalKind | None = None) -> list[TurnSignal]:
    """What has been said to a turn and not been taken, oldest first."""
    return [_signal(row) for row in _PENDING.dicts(turn_id) if kind is None or row["kind"] == kind]


def page_pending(after: int, limit: int) -> list[tuple[int, TurnSignal]]:
    """(row number, signal) of what nothing has become of yet, said to any turn, those behind row `after`."""
    query = TurnSignals.select(TurnSignals.row, *_FIELDS).where(
        (TurnSignals.state == "pending") & (TurnSignals.row > after)
    )
    rows = dicts(query.order_by(TurnSignals.row).limit(limit))
    return [(row.pop("row"), _signal(row)) for row in rows]


def count_pending(turn_id: str) -> int:
    query = TurnSignals.select().where((TurnSignals.turn_id == turn_id) & (TurnSignals.state == "pending"))
    return int(query.count())


def free_key(session_id: str, producer: str, key: str) -> None:
    """Let a key be used again whose words were dropped, or became an item that is gone."""
    query = TurnSignals.update(idempotency_key=None).where(
        (TurnSignals.session_id == session_id)
        & (TurnSignals.producer == producer)
        & (TurnSignals.idempotency_key == key)
        & TurnSignals.state.in_(("dropped", "requeued"))
    )
    query.execute()


_CONSUME = Statement(
    lambda message_id, at_ms: TurnSignals.update(state="consumed", settled_ms=at_ms).where(
        (TurnSignals.message_id == message_id) & (TurnSignals.state == "pending")
    ),
    str,
    int,
)


def consume_message(message_id: str, at_ms: int) -> bool:
    """The steer whose message is in history now; False for any other message."""
    return bool(_CONSUME.count(message_id, at_ms))


def settle_signal(
    signal_id: str, state: str, at_ms: int, *, reason: str | None = None, item_id: str | None = None
) -> bool:
    """Say what became of a pending signal; False if something has already."""
    changes: dict[str, Any] = {"state": state, "settled_ms": at_ms, "item_id": item_id}
    if reason is not None:
        changes["reason"] = reason
    query = TurnSignals.update(**changes).where(
        (TurnSignals.id == signal_id) & (TurnSignals.state == "pending")
    )
    return bool(query.execute())


def withdraw_aborts(session_id: str, reason: str, at_ms: int) -> None:
    """Take back what a session's turns were told with this reason and have not heard."""
    query = TurnSignals.update(state="dropped", settled_ms=at_ms).where(
        (TurnSignals.session_id == session_id)
        & (TurnSignals.kind == "abort")
        & (TurnSignals.reason == reason)
        & (TurnSignals.state == "pending")
    )
    query.execute()


def delete_all(session_id: str) -> None:
    TurnSignals.delete().where(TurnSignals.session_id == session_id).execute()
