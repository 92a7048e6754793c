"""Going on reading a session's stream: from persisted messages into the ring, nothing between them lost."""

from __future__ import annotations

from msgspec import Struct

from mcode_exec.records.message import DisplayMessage
from mcode_exec.sessions import finding
from mcode_exec.sessions.stream import SessionStream, Subscription
from mcode_exec.store.database import Store

_PAGE = 200  # messages per read


class Resumed(Struct, frozen=True, kw_only=True):
    """What was persisted after the anchor, and the subscription that goes on from there."""

    messages: tuple[DisplayMessage, ...]
    subscription: Subscription


async def after_message(
    store: Store, stream: SessionStream, session_id: str, message_id: str
) -> Resumed | None:
    """Persisted messages after an anchor, then the ring; None when the anchor is gone.

    A message that is persisted while this reads may come both ways; readers
    know items by their ids.
    """
    # The place in the ring is taken before the store is read: a frame in between comes twice, never not at all.
    subscription = stream.after_cursor(stream.resync_cursor)
    messages: list[DisplayMessage] = []
    anchor = message_id
    while True:
        page = await finding.messages_after(store, session_id, anchor, limit=_PAGE)
        if page is None:
            return None
        messages.extend(message for _, message in page)
        if len(page) < _PAGE:
            return Resumed(messages=tuple(messages), subscription=subscription)
        anchor = messages[-1].id
