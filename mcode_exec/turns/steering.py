"""Steering: words for a turn that runs, from any process, as one durable row.

Accepted under the turn's lock in one transaction; taken by the turn at its next
step boundary; consumed when its message stands in history (sessions.commit says
so in the same transaction as the message's row).  What was not taken when the
turn ends is a person's words, then it becomes a queue item, or a machine's,
then it has held the close, or is dropped with its reason.
Source: turn-system notes, steering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Struct, structs

from mcode_exec.clock import Clock
from mcode_exec.errors import BusyError, McodeError, SessionDeletingError, SessionError
from mcode_exec.ids import new_item_id, new_signal_id, new_turn_id, user_message_id
from mcode_exec.records.history import TextBlock
from mcode_exec.records.invocation import DEFAULT_PRODUCER
from mcode_exec.records.queue import ITEM_TTL_S, MAX_ITEMS, Origin, QueueItem, QueuePayload
from mcode_exec.records.signal import QUEUE_PRODUCER, TurnSignal
from mcode_exec.records.turn import Holder, Receipt
from mcode_exec.store import queue_rows, session_rows, signal_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.lease import is_held
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.queue import append, get_queued, take_out
from mcode_exec.turns.requests import queue_scope
from mcode_exec.turns.words import check_words, text_of

MAX_PENDING = MAX_ITEMS  # of one turn: they may become queue items
_TOLD_CHARS = 60  # of a steer, where it is named

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Origin).decode

DROPPED_AT_END = "the turn ended before it could take them"


class Words(Struct, frozen=True, kw_only=True):
    """What somebody says to a turn, and what it is known again by."""

    text: str
    #: who says it; with the key, what it is told from others by
    producer: str
    idempotency_key: str | None = None
    #: what that is called by who gave it
    key_name: str = "idempotency key"
    #: no person's words: they hold the turn's close, and are never queued
    is_machine: bool = False
    #: scope, id and digest of the turn that they become where none runs
    request: tuple[str, str, str] | None = None
    #: what they become if the turn ends without them
    origin: Origin | None = None


class Steered(Struct, frozen=True, kw_only=True):
    """What became of a steer when it was handed in."""

    #: the accepted row; None: no turn runs that could take it
    signal: TurnSignal | None = None
    #: the same words under the same key were accepted before
    is_duplicate: bool = False
    #: they are what this turn was begun with, and it runs or was answered
    receipt: Receipt | None = None
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
    key_name: str = "idempotency key",
    is_machine: bool = False,
    request: tuple[str, str, str] | None = None,
    origin: Origin | None = None,
    refusal: McodeError | None = None,
) -> Steered:
    """Hand words to the turn that runs in a session; `refusal`: raised where one runs that would take them.

    `origin`: what they become if the turn ends without them.

    Raises: SessionError for a session that does not exist, is being deleted, or knows the key with other words;
        BusyError where too many wait already; InvocationError for words that no queue would take.
    """
    words = Words(
        text=text,
        producer=producer,
        idempotency_key=idempotency_key,
        key_name=key_name,
        is_machine=is_machine,
        request=request,
        origin=origin,
    )
    return await store.write(lambda: _steer(owner, session_id, words, clock, refusal))


def is_known(session_id: str, producer: str, key: str) -> bool:
    """Whether words under this key are with a turn, or were; inside a transaction."""
    known = signal_rows.find_by_key(session_id, producer, key)
    return known is not None and _stands(known)


def find_handed_over(session_id: str, request_id: str) -> TurnSignal | None:
    """The words that a running turn was given under a request id, or what they have become; inside a transaction."""
    known = signal_rows.find_by_key(session_id, DEFAULT_PRODUCER, request_id)
    return known if known is not None and _stands(known) else None


async def steer_item(store: Store, owner: Owner, item_id: str, clock: Clock) -> Steered:
    """Hand a queued item's words to the turn that runs: the item goes as that happens.

    Raises: SessionError, also where a turn runs and the item has more than words, or a model of its own;
        BusyError; InvocationError.
    """

    def transaction() -> Steered:
        item = get_queued(item_id)
        words = Words(
            text=text_of(item.payload.content),
            producer=QUEUE_PRODUCER,
            idempotency_key=item.id,
            origin=Origin(
                payload=item.payload,
                source=item.source,
                digest=item.digest,
                item_id=item.id,
                dedupe_key=item.dedupe_key,
                expires_ms=None if item.waiter is not None else item.expires_ms,
            ),
        )
        if item.payload.request_id is not None:
            # Who sends the request again asks by that.
            words = structs.replace(
                words,
                producer=DEFAULT_PRODUCER,
                idempotency_key=item.payload.request_id,
                key_name="request id",
            )
        steered = _steer(owner, item.session_id, words, clock, _refusal(item))
        if steered.signal is not None:
            take_out(item, "merged", clock.now_ms(), steered.signal.turn_id)
        return steered

    return await store.write(transaction)


def _refusal(item: QueueItem) -> SessionError | None:
    """What of an item a running turn cannot take; where none runs it is nobody's concern."""
    payload = item.payload
    if payload.model or payload.effort or payload.agent or payload.fallback_models:
        return SessionError(
            f"{item.id} has a model of its own, and the turn that runs in session {item.session_id} keeps the one "
            "it has; let the item run in its place",
            code="active-model-override-unsupported",
        )
    if any(not isinstance(block, TextBlock) for block in payload.content):
        return SessionError(
            f"{item.id} has attachments, which the turn that runs in session {item.session_id} cannot take; "
            "let the item run in its place",
            code="steer-attachments-unsupported",
        )
    return None


def _steer(owner: Owner, session_id: str, words: Words, clock: Clock, refusal: McodeError | None) -> Steered:
    session = session_rows.find_session(session_id)
    if session is None:
        raise SessionError(f"there is no session {session_id} that could run")
    if session.deleting_by is not None:
        raise SessionDeletingError(session_id)
    known = _known(session_id, words)
    if known is not None:
        return Steered(signal=known, is_duplicate=True)
    lock = turn_rows.find_lock(session_id)
    if lock is not None and not is_held(lock, owner, clock):
        lock = None
    begun = _begun(words, None if lock is None else lock.turn_id)
    if begun is not None:
        return Steered(receipt=begun)
    if lock is None:
        return Steered()
    if lock.kind != "turn" or lock.turn_id is None:
        return Steered(holder=lock.holder())
    if refusal is not None:
        raise refusal
    check_words(_payload(words.text).content)
    if signal_rows.count_pending(lock.turn_id) >= MAX_PENDING:
        raise BusyError(
            f"{MAX_PENDING} steers wait for turn {lock.turn_id} already; try again later",
            code="steering_full",
        )
    if words.idempotency_key is not None:
        signal_rows.free_key(session_id, words.producer, words.idempotency_key)
    signal = _signal(session_id, lock.turn_id, words, clock.now_ms())
    waiting = _waiting(session_id, words)
    signal_rows.insert_signal(signal)
    if waiting is not None:
        take_out(waiting, "merged", clock.now_ms(), lock.turn_id)
    return Steered(signal=signal)


def _waiting(session_id: str, words: Words) -> QueueItem | None:
    """The item that the same request has left in the queue: one of the two is enough."""
    if words.request is None:
        return None
    item = queue_rows.find_by_dedupe_key(session_id, words.request[1])
    if item is None or item.state != "queued" or item.payload.request_id != words.request[1]:
        return None
    if item.digest != words.request[2]:
        raise _conflict(words, words.request[1])
    return item


def _signal(session_id: str, turn_id: str, words: Words, now_ms: int) -> TurnSignal:
    signal_id = new_signal_id()
    # no two pairs make one key, whatever is in them
    key = f"{len(words.producer)}:{words.producer}:{words.idempotency_key}"
    if words.idempotency_key is None:
        key = signal_id
    return TurnSignal(
        id=signal_id,
        session_id=session_id,
        turn_id=turn_id,
        kind="steer",
        producer=words.producer,
        idempotency_key=words.idempotency_key,
        is_machine=words.is_machine,
        text=words.text,
        message_id=user_message_id(session_id, "steer:" + key),
        state="pending",
        created_ms=now_ms,
        origin=None if words.origin is None else _encode(words.origin),
    )


def _known(session_id: str, words: Words) -> TurnSignal | None:
    """The row of the same words; one that was dropped stands in nobody's way."""
    key = words.idempotency_key
    if key is None:
        return None
    known = signal_rows.find_by_key(session_id, words.producer, key)
    if known is None or not _stands(known):
        return None
    if known.state == "requeued" and words.origin is not None and words.origin.item_id == known.item_id:
        return None  # it is that item itself which is handed over again
    if known.text != words.text:
        raise _conflict(words, key)
    return known


def _stands(signal: TurnSignal) -> bool:
    """Whether words are with a turn, or will be; not those that were dropped, or became an item that was taken back."""
    if signal.state != "requeued" or signal.item_id is None:
        return signal.state != "dropped"
    return queue_rows.find_item(signal.item_id) is not None or ran_as(signal) is not None


def ran_as(signal: TurnSignal) -> str | None:
    """The turn that a steer's item has begun; inside a read."""
    key = _origin(signal).dedupe_key
    begun = None if key is None else turn_rows.find_request(queue_scope(signal.session_id), key)
    return None if begun is None else begun.turn_id


def _origin(signal: TurnSignal) -> Origin:
    return Origin(payload=_payload(signal.text)) if signal.origin is None else _decode(signal.origin)


def _begun(words: Words, running: str | None) -> Receipt | None:
    """The turn that was begun with these words, where it runs or was answered."""
    if words.request is None:
        return None
    scope, request_id, digest = words.request
    receipt = turn_rows.find_request(scope, request_id)
    if receipt is None:
        return None
    if receipt.digest != digest:
        raise _conflict(words, words.idempotency_key or request_id)
    is_answered = receipt.outcome == "completed"
    return receipt if is_answered or receipt.turn_id == running else None


def _conflict(words: Words, key: str) -> SessionError:
    return SessionError(
        f"{words.key_name} {key!r} was used before with other words; use a new one",
        code="turn_ingress_conflict",
    )


def holds_close(turn_id: str) -> bool:
    """Whether machine steering waits, which has no other way; inside a transaction."""
    return any(signal.is_machine for signal in signal_rows.pending(turn_id, "steer"))


def end_signals(turn_id: str, clock_ms: int, is_in_history: Callable[[str], bool]) -> list[TurnSignal]:
    """Say what becomes of a turn's signals when it is over; inside the transaction that settles it.

    `is_in_history`: whether a message stands there although its row may not.
    Returns the steers that the turn did not take, with what became of each.
    """
    left: list[TurnSignal] = []
    for signal in signal_rows.pending(turn_id):
        if signal.message_id is None or is_in_history(signal.message_id):
            signal_rows.settle_signal(signal.id, "consumed", clock_ms)
        elif signal.is_machine:
            signal_rows.settle_signal(signal.id, "dropped", clock_ms, reason=DROPPED_AT_END)
            left.append(structs.replace(signal, state="dropped"))
        else:
            item = _as_item(signal, clock_ms)
            signal_rows.settle_signal(signal.id, "requeued", clock_ms, item_id=item.id)
            left.append(structs.replace(signal, state="requeued", item_id=item.id))
    return left


def notices_of(left: Iterable[TurnSignal]) -> Iterator[tuple[str, str]]:
    """(code, message) for people, of each steer that a turn did not take."""
    for signal in left:
        who = "" if signal.producer == DEFAULT_PRODUCER else f" from {signal.producer}"
        words = f"words{who} that came too late for the turn ({signal.text[:_TOLD_CHARS]!r})"
        if signal.state == "requeued":
            look = f"`mcode queue list {signal.session_id}` shows it"
            yield "steer.queued", f"{words} wait in the queue as {signal.item_id}; {look}"
        else:
            yield "steer.dropped", f"{words} are dropped: {DROPPED_AT_END}"


def _as_item(signal: TurnSignal, now_ms: int) -> QueueItem:
    import hashlib

    origin = _origin(signal)
    key = origin.dedupe_key
    is_taken = key is not None and queue_rows.find_by_dedupe_key(signal.session_id, key) is not None
    return append(
        QueueItem(
            id=new_item_id() if is_taken or origin.item_id is None else origin.item_id,
            session_id=signal.session_id,
            position=0,
            state="queued",
            source=origin.source,
            digest=origin.digest or hashlib.sha256(queue_rows.encode_payload(origin.payload)).hexdigest(),
            payload=origin.payload,
            turn_id=new_turn_id(),
            created_ms=now_ms,
            expires_ms=origin.expires_ms or now_ms + int(ITEM_TTL_S * 1000),
            dedupe_key=None if is_taken else key,
        )
    )


def _payload(text: str) -> QueuePayload:
    return QueuePayload(content=(TextBlock(text=text),))
