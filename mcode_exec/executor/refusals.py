"""Items that this process cannot run as it is: for want of a key, a model, a workspace.

Such an item goes back into its place, for another process or for later.  What
was found is remembered, so that nobody claims it again and again: it is tried
anew when it has been changed, and else after a pause that grows.
"""

from __future__ import annotations

from msgspec import Struct, structs

from mcode_exec.clock import Clock
from mcode_exec.errors import McodeError
from mcode_exec.records.queue import QueueItem, QueuePayload

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Refusal(Struct, frozen=True, kw_only=True):
    """An item that could not be run here, and why."""

    item_id: str
    payload: QueuePayload
    error: McodeError
    #: seconds between two tries, and when the next one may be (monotonic)
    pause_s: float
    again_s: float


class Refusals:
    """By session at most one: nothing behind it is taken."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of: dict[str, Refusal] = {}

    def note(self, item: QueueItem, error: McodeError) -> bool:
        """Remember that `item` could not be run; True where that, or why, is news."""
        known = self.find(item)
        pause_s = FIRST_PAUSE_S if known is None else min(known.pause_s * 2, LONGEST_PAUSE_S)
        self._of[item.session_id] = Refusal(
            item_id=item.id,
            payload=item.payload,
            error=error,
            pause_s=pause_s,
            again_s=self._clock.monotonic_s() + pause_s,
        )
        return known is None or known.error.message != error.message

    def find(self, item: QueueItem) -> Refusal | None:
        """What is known of an item as it is now."""
        known = self._of.get(item.session_id)
        is_it = known is not None and known.item_id == item.id and known.payload == item.payload
        return known if is_it else None

    def rests(self, item: QueueItem) -> bool:
        """Whether an item is to be left alone for now."""
        known = self.find(item)
        return known is not None and self._clock.monotonic_s() < known.again_s

    def is_due(self, session_id: str) -> bool:
        """Whether the item of a session may be tried again."""
        known = self._of.get(session_id)
        return known is not None and self._clock.monotonic_s() >= known.again_s

    def any_due(self) -> bool:
        return any(self.is_due(session_id) for session_id in self._of)

    def forget(self, session_id: str) -> None:
        """Nothing of the session waits any more, or another item is its first."""
        self._of.pop(session_id, None)

    def put_off(self, session_id: str) -> None:
        """It could not be tried now: not before its pause has passed once more."""
        known = self._of.get(session_id)
        if known is not None and self.is_due(session_id):
            again_s = self._clock.monotonic_s() + known.pause_s
            self._of[session_id] = structs.replace(known, again_s=again_s)
