"""Steering: words for a turn that runs, from any process, as one durable row.

Accepted under the turn's lock in one transaction; taken by the turn at its next
step boundary; consumed when its message stands in history (sessions.commit says
so in the same transaction as the message's row).  What was not taken when the
turn ends is a person's words, then it becomes a queue item, or a machine's,
then it has held the close, or is dropped with its reason.
Source: turn-system notes, steering.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from mcode_exec.clock import Clock
from mcode_exec.errors import SessionError
from mcode_exec.ids import new_item_id, new_signal_id, new_turn_id, user_message_id
from mcode_exec.records.history import TextBlock
from mcode_exec.records.queue import ITEM_TTL_S, QueueItem, QueuePayload
from mcode_exec.records.signal import TurnSignal
from mcode_exec.records.turn import Holder
from mcode_exec.store import queue_rows, session_rows, signal_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.lease import is_held
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.queue import append, check_size, get_queued, take_out

#: whose words a queued item's are; source: turn-system notes, steering
QUEUE_PRODUCER = "queue-immediate-send"
DROPPED_AT_END = "the turn ended before it could take this"


class Steered(Struct, frozen=True, kw_only=True):
    """What became of a steer when it was handed in."""

    #: the accepted row; None: no turn runs that could take it
    signal: TurnSignal | None = None
    #: the same words under the same key were accepted before
    is_duplicate: bool = False
    #: who holds the session, when that is no turn
    holder: Holder | None = None


async def steer(
    store: Store,
    owner: Owner,
    session_id: str,
    text: str,
    clock: Clock,
    *,
    producer: str,
    idempotency_key: str | None = None,
    is_machine: bool = False,
) -> Steered:
    """Hand words to the turn that runs in a session.

    Raises: SessionError for a session that does not exist, is being deleted, or knows the key with other words;
        InvocationError for words that no queue would take.
    """
    check_size(_payload(text))

    return await store.write(
        lambda: _steer(owner, session_id, text, clock, producer, idempotency_key, is_machine)
    )


async def steer_item(store: Store, owner: Owner, item_id: str, clock: Clock) -> Steered:
    """Hand a queued item's words to the turn that runs: the item goes as that happens.

    Raises: SessionError, BusyError; InvocationError for an item that has more than words, or a model of its own.
    """

    def transaction() -> Steered:
        item = get_queued(item_id)
        text = _words(item)
        steered = _steer(owner, item.session_id, text, clock, QUEUE_PRODUCER, item.id, False)
        if steered.signal is not None:
            take_out(item, "merged", clock.now_ms(), steered.signal.turn_id)
        return steered

    return await store.write(transaction)


def _words(item: QueueItem) -> str:
    payload = item.payload
    if payload.model or payload.effort or payload.agent or payload.fallback_models:
        raise SessionError(
            f"{item.id} has a model of its own, and a running turn keeps the one it has; let it run in its place",
            code="active-model-override-unsupported",
        )
    texts = [block.text for block in payload.content if isinstance(block, TextBlock)]
    if len(texts) < len(payload.content):
        raise SessionError(
            f"{item.id} has attachments, which a running turn cannot take; let it run in its place",
            code="steer-attachments-unsupported",
        )
    return "\n\n".join(texts)


def _steer(
    owner: Owner,
    session_id: str,
    text: str,
    clock: Clock,
    producer: str,
    idempotency_key: str | None,
    is_machine: bool,
) -> Steered:
    if session_rows.find_session(session_id) is None:
        raise SessionError(f"there is no session {session_id} that could run")
    if idempotency_key is not None:
        known = signal_rows.find_by_key(session_id, producer, idempotency_key)
        if known is not None:
            return _known(known, text, idempotency_key)
    lock = turn_rows.find_lock(session_id)
    if lock is not None and lock.kind == "deletion":
        raise SessionError(f"session {session_id} is being deleted", code="session_deleting")
    if lock is None or not is_held(lock, owner, clock):
        return Steered()
    if lock.turn_id is None:
        return Steered(holder=lock.holder())
    signal_id = new_signal_id()
    # no two pairs make one key, whatever is in them
    key = signal_id if idempotency_key is None else f"{len(producer)}:{producer}:{idempotency_key}"
    signal = TurnSignal(
        id=signal_id,
        session_id=session_id,
        turn_id=lock.turn_id,
        kind="steer",
        producer=producer,
        idempotency_key=idempotency_key,
        is_machine=is_machine,
        text=text,
        message_id=user_message_id(session_id, "steer:" + key),
        state="pending",
        created_ms=clock.now_ms(),
    )
    signal_rows.insert_signal(signal)
    return Steered(signal=signal)


def _known(known: TurnSignal, text: str, key: str) -> Steered:
    if known.text != text:
        raise SessionError(
            f"idempotency key {key!r} was used before with other words; use a new one",
            code="turn_ingress_conflict",
        )
    return Steered(signal=known, is_duplicate=True)


def holds_close(turn_id: str) -> bool:
    """Whether machine steering waits, which has no other way; inside a transaction."""
    return any(signal.is_machine for signal in signal_rows.pending(turn_id, "steer"))


def end_signals(turn_id: str, clock_ms: int, is_in_history: Callable[[str], bool]) -> int:
    """Say what becomes of a turn's signals when it is over; inside the transaction that settles it.

    `is_in_history`: whether a message stands there although its row may not.
    Returns how many steers became queue items.
    """
    requeued = 0
    for signal in signal_rows.pending(turn_id):
        if signal.message_id is None or is_in_history(signal.message_id):
            signal_rows.settle_signal(signal.id, "consumed", clock_ms)
        elif signal.is_machine:
            signal_rows.settle_signal(signal.id, "dropped", clock_ms, reason=DROPPED_AT_END)
        else:
            item = _as_item(signal, clock_ms)
            signal_rows.settle_signal(signal.id, "requeued", clock_ms, item_id=item.id)
            requeued += 1
    return requeued


def _as_item(signal: TurnSignal, now_ms: int) -> QueueItem:
    import hashlib

    payload = _payload(signal.text)
    return append(
        QueueItem(
            id=new_item_id(),
            session_id=signal.session_id,
            position=0,
            state="queued",
            source="steer",
            digest=hashlib.sha256(queue_rows.encode_payload(payload)).hexdigest(),
            payload=payload,
            turn_id=new_turn_id(),
            created_ms=now_ms,
            expires_ms=now_ms + int(ITEM_TTL_S * 1000),
        )
    )


def _payload(text: str) -> QueuePayload:
    return QueuePayload(content=(TextBlock(text=text),))
