"""Streamed text with its secrets masked, however the stream was cut.

A secret may arrive in two deltas; so text that may be the beginning of one is
held back and comes with the next delta, or in one last delta before the item
completes.  Items that are discarded take what was held with them.
"""

from __future__ import annotations

from msgspec import structs

from mcode_exec.records.event import AnyEvent, Item, ItemCompleted, ItemDiscarded, ItemUpdated
from mcode_exec.redaction import Redactor, StreamRedactor


class DeltaRedaction:
    """One StreamRedactor per open item."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._open: dict[str, StreamRedactor] = {}

    def pass_through(self, event: AnyEvent) -> tuple[AnyEvent, ...]:
        """`event` as it may leave: none, one, or two events."""
        if isinstance(event, ItemUpdated) and isinstance(event.item.content_delta, str):
            return self._delta(event, event.item.content_delta)
        if isinstance(event, ItemCompleted):
            rest = self._take(event.item.id)
            if rest:
                last = Item(id=event.item.id, type=event.item.type, content_delta=rest)
                return (ItemUpdated(item=last), event)
        elif isinstance(event, ItemDiscarded):
            self._open.pop(event.item_id, None)
        return (event,)

    def _delta(self, event: ItemUpdated, delta: str) -> tuple[AnyEvent, ...]:
        stream = self._open.setdefault(event.item.id, StreamRedactor(self._redactor))
        text = stream.feed(delta)
        if text == delta:
            return (event,)
        return (structs.replace(event, item=structs.replace(event.item, content_delta=text)),) if text else ()

    def _take(self, item_id: str) -> str:
        stream = self._open.pop(item_id, None)
        return stream.flush() if stream is not None else ""
