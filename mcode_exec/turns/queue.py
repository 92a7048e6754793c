"""The queue of a session: adding to it, changing it, holding it.

Every function is one transaction.  What is being delivered (a live claim) is
not changed.  The order of the line is the order of positions; moving an item
permutes the positions of those between, so that none is ever new or used twice.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from mcode_exec.clock import Clock
from mcode_exec.errors import BusyError, SessionDeletingError, SessionError
from mcode_exec.ids import item_id_of, new_item_id, new_turn_id
from mcode_exec.records.queue import (
    ITEM_TTL_S,
    MAX_ITEMS,
    Pause,
    PauseReason,
    QueueItem,
    QueuePayload,
    Removal,
    RemovalReason,
)
from mcode_exec.records.signal import QUEUE_PRODUCER
from mcode_exec.records.turn import Source
from mcode_exec.store import queue_rows, queue_state_rows, session_rows, signal_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.delivery import is_drained
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.requests import queue_scope
from mcode_exec.turns.words import check_words, text_of

NOT_DRAINED = "queue_not_drained"


def append(item: QueueItem) -> QueueItem:
    """Put an item at the end of its session's line and wake who delivers it; inside a write transaction.

    A pause that its last item has outlived holds nothing that comes later.
    """
    if queue_rows.first_delivered(item.session_id) is None:
        queue_state_rows.delete_pause(item.session_id)
    appended = queue_rows.insert_item(item)
    queue_state_rows.begin_wakes(item.session_id)
    return appended


async def add(
    store: Store,
    owner: Owner,
    session_id: str,
    payload: QueuePayload,
    clock: Clock,
    *,
    digest: str,
    source: Source = "api",
    dedupe_key: str | None = None,
    ttl_s: float = ITEM_TTL_S,
    waits: bool = False,
    turn_id: str | None = None,
    only_if_drained: bool = False,
) -> tuple[QueueItem, bool]:
    """Append an item to a session's line; the item, and whether it is new.

    False: its dedupe key was there, or its own turn id, asked again after an answer that was lost.  What a key
    named that has begun since is in state `ran`, with its turn.

    `waits`: this process stands in line itself.  `only_if_drained`: refuse where nobody would run it.
    Raises: SessionError, InvocationError, BusyError `queue_full`, `queue_not_drained`.
    """
    if not waits:  # a place is run by its own process alone: it may be as long as any prompt
        check_words(payload.content)
    now_ms = clock.now_ms()
    #: a request id is answered or tried again by admission, which knows how it ended
    names_item = dedupe_key is not None and dedupe_key != payload.request_id
    wanted = QueueItem(
        id=item_id_of(session_id, dedupe_key) if names_item and dedupe_key is not None else new_item_id(),
        session_id=session_id,
        position=0,
        state="queued",
        source=source,
        digest=digest,
        payload=payload,
        turn_id=turn_id or new_turn_id(),
        created_ms=now_ms,
        expires_ms=now_ms + int(ttl_s * 1000),
        dedupe_key=dedupe_key,
        waiter=owner.token if waits else None,
    )

    def transaction() -> tuple[QueueItem, bool]:
        session = session_rows.find_session(session_id)
        if session is None:
            raise SessionError(f"there is no session {session_id} that could run")
        if session.deleting_by is not None:
            raise SessionDeletingError(session_id)
        known = None if turn_id is None else queue_rows.find_by_turn(turn_id)
        if known is not None:
            return _same(known, digest, f"turn id {turn_id}"), False
        if dedupe_key is not None:
            known = queue_rows.find_by_dedupe_key(session_id, dedupe_key)
            if known is not None and _is_over(known, owner, now_ms):
                queue_rows.delete_item(known.id)
            elif known is not None:
                name = "request id" if dedupe_key == payload.request_id else "dedupe key"
                return _same(known, digest, f"{name} {dedupe_key!r}"), False
        begun = _turn_with(wanted) if names_item else None
        if begun is not None:
            return structs.replace(wanted, state="ran", turn_id=begun), False
        if only_if_drained and not is_drained(session_id, owner):
            raise BusyError(
                f"session {session_id} is busy, and no live process drains its queue: nothing was queued; "
                f"`mcode queue add {session_id} …` queues all the same, "
                f"`mcode queue drain --session {session_id}` runs what is queued",
                code=NOT_DRAINED,
            )
        if queue_rows.count_items(session_id) >= MAX_ITEMS:
            raise BusyError(
                f"the queue of session {session_id} is full ({MAX_ITEMS} items); try again later",
                code="queue_full",
            )
        return append(wanted), True

    return await store.write(transaction)


def _is_over(item: QueueItem, owner: Owner, now_ms: int) -> bool:
    """Whether an item that stands in the line will never run."""
    has_left = item.waiter is not None and not owner.is_alive(item.waiter)
    return item.state == "queued" and (has_left or item.expires_ms <= now_ms)


def _turn_with(item: QueueItem) -> str | None:
    """The turn that began with an item of this id, or was given its words; inside a transaction."""
    assert item.dedupe_key is not None
    begun = turn_rows.find_request(queue_scope(item.session_id), item.dedupe_key)
    handed = signal_rows.find_by_key(item.session_id, QUEUE_PRODUCER, item.id)
    if begun is not None:
        is_same, turn_id = begun.digest == item.digest, begun.turn_id
    elif handed is not None and handed.state in ("pending", "consumed"):
        is_same, turn_id = handed.text == text_of(item.payload.content), handed.turn_id
    else:
        return None
    if not is_same:
        raise _conflict(f"dedupe key {item.dedupe_key!r}")
    return turn_id


def _same(known: QueueItem, digest: str, key: str) -> QueueItem:
    if known.digest != digest:
        raise _conflict(key)
    return known


def _conflict(key: str) -> SessionError:
    return SessionError(
        f"{key} was used before with another input; use a new one", code="turn_ingress_conflict"
    )


async def stand_behind(store: Store, owner: Owner, session_id: str, clock: Clock) -> None:
    """From here on this process drains a session's items (`*`: everybody's), until it is done or dead."""
    await store.write(lambda: queue_state_rows.put_drainer(session_id, owner.token, clock.now_ms()))


async def stop_draining(store: Store, owner: Owner, session_id: str) -> None:
    await store.write(lambda: queue_state_rows.delete_drainer(session_id, owner.token))


async def is_drained_out(store: Store, owner: Owner, session_id: str, clock: Clock) -> bool:
    """Stop draining a session if nothing is left that could be taken: then nobody counts on us any more."""

    def transaction() -> bool:
        is_paused = queue_state_rows.find_pause(session_id) is not None
        if not is_paused and queue_rows.has_delivered_before(session_id, None, clock.now_ms()):
            return False
        queue_state_rows.delete_drainer(session_id, owner.token)
        return True

    return await store.write(transaction)


async def leave(store: Store, item_id: str) -> None:
    """Give up the place in line; what became of an item before that is forgotten."""

    def transaction() -> None:
        item = queue_rows.find_item(item_id)
        if item is not None:
            queue_rows.delete_item(item_id)
            queue_state_rows.wake(item.session_id)  # drainers do not pass a place that is taken
        queue_state_rows.delete_removal(item_id)

    await store.write(transaction)


async def remove(store: Store, item_id: str, reason: RemovalReason, clock: Clock) -> bool:
    """Take an item out of the line; False if it is gone.  Raises: BusyError while it is being delivered."""

    def transaction() -> bool:
        item = queue_rows.find_item(item_id)
        if item is None:
            return False
        _check_queued(item)
        take_out(item, reason, clock.now_ms())
        return True

    return await store.write(transaction)


def take_out(item: QueueItem, reason: RemovalReason, now_ms: int, turn_id: str | None = None) -> None:
    """Delete an item and leave word for who waits for it; inside a write transaction."""
    queue_rows.delete_item(item.id)
    queue_state_rows.wake(item.session_id)
    if item.waiter is not None:
        queue_state_rows.put_removal(
            Removal(item_id=item.id, reason=reason, turn_id=turn_id), item.waiter, now_ms
        )


async def clear(store: Store, session_id: str, clock: Clock) -> int:
    """Take every item out that nobody stands in line for, and the pause with them; how many there were."""

    def transaction() -> int:
        queue_state_rows.delete_pause(session_id)
        return queue_rows.delete_delivered(session_id)

    return await store.write(transaction)


async def edit(
    store: Store,
    item_id: str,
    change: Callable[[QueuePayload], QueuePayload],
    digest_of: Callable[[QueuePayload], str],
) -> QueueItem:
    """Change what an item runs.  Raises: SessionError, BusyError, InvocationError."""

    def transaction() -> QueueItem:
        item = _get(item_id)
        _check_queued(item)
        if item.waiter is not None:
            raise BusyError(f"{item_id} is the place of a process that waits; only itself says what it runs")
        payload = change(item.payload)
        check_words(payload.content)
        digest = digest_of(payload)
        queue_rows.update_item(item_id, payload=payload, digest=digest)
        queue_state_rows.wake(item.session_id)  # it may be one that could not run as it was
        return structs.replace(item, payload=payload, digest=digest)

    return await store.write(transaction)


async def move(store: Store, item_id: str, place: int) -> QueueItem:
    """Put an item at a place in its line, 1 the first.  Raises: SessionError, BusyError."""

    def transaction() -> QueueItem:
        item = _get(item_id)
        _check_queued(item)
        before = queue_rows.line(item.session_id)
        after = [one for one in before if one[0] != item_id]
        after.insert(min(max(place - 1, 0), len(after)), (item_id, item.position, item.state))
        moves = [(one, new) for one, (_, new, _) in zip(after, before, strict=True) if one[1] != new]
        if any(state == "claimed" for (_, _, state), _ in moves):
            raise BusyError("an item that is being delivered keeps its place; move behind it")
        for (one, _, _), position in moves:
            queue_rows.update_item(one, position=position)
        queue_state_rows.wake(item.session_id)
        moved = queue_rows.find_item(item_id)
        assert moved is not None
        return moved

    return await store.write(transaction)


def pause_if_any(session_id: str, reason: PauseReason, turn_id: str | None, now_ms: int) -> bool:
    """Hold a queue that has items for others to deliver; inside a write transaction."""
    if not queue_rows.count_delivered(session_id):
        return False
    queue_state_rows.put_pause(Pause(session_id=session_id, reason=reason, turn_id=turn_id, at_ms=now_ms))
    return True


async def pause(store: Store, session_id: str, clock: Clock) -> bool:
    """Hold a queue by hand; False where it has no items to hold."""
    return await store.write(lambda: pause_if_any(session_id, "user-stop", None, clock.now_ms()))


async def unpause(store: Store, session_id: str) -> bool:
    """Let a held queue go on; False if it was not held."""

    def transaction() -> bool:
        was_held = queue_state_rows.delete_pause(session_id)
        queue_state_rows.wake(session_id)
        return was_held

    return await store.write(transaction)


def _get(item_id: str) -> QueueItem:
    item = queue_rows.find_item(item_id)
    if item is None:
        raise SessionError(
            f"there is no queue item {item_id}; `mcode queue list --all` shows what there is",
            code="queue_item_not_found",
        )
    return item


def get_queued(item_id: str) -> QueueItem:
    """An item that nobody is delivering; inside a transaction.  Raises: SessionError, BusyError."""
    item = _get(item_id)
    _check_queued(item)
    return item


def _check_queued(item: QueueItem) -> None:
    if item.state == "claimed":
        raise BusyError(f"{item.id} is being delivered as {item.turn_id}; `mcode abort` ends a turn")
