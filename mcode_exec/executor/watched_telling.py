"""What a watcher tells of turns and messages, each line with the place behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import structs

from mcode_exec.executor.outcome import decode_result
from mcode_exec.executor.watched_place import Place
from mcode_exec.ids import item_id
from mcode_exec.records.event import (
    AnyEvent,
    ItemCompleted,
    ItemDiscarded,
    ItemStarted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from mcode_exec.records.items import item_of_part, steer_of
from mcode_exec.records.message import DisplayMessage, ToolPart, ToolPending
from mcode_exec.records.turn import Receipt
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.masking import masked
from mcode_exec.store.turn_rows import Turn

_CUT_OFF = "the turn ended before this was committed"

#: (session, turn, a user's message or an event of that turn, cursor of the place behind it)
Told = Callable[[str, str, "AnyEvent | DisplayMessage", str], None]


class Teller:
    """Tells one session; `place` is where it stands, `turn_id` the turn of that place."""

    def __init__(self, session_id: str, place: Place, turn_id: str, told: Told, redactor: Redactor) -> None:
        self.place = place
        self.turn_id = turn_id
        self._session_id = session_id
        self._told = told
        self._redactor = redactor
        #: of rows with calls that have not ended: message id and the revision that was told
        self._known: dict[int, tuple[str, int]] = {}

    def revisions(self) -> dict[int, int]:
        """Rows whose calls have not ended, and the revision up to which each was told."""
        return {row: self._known.get(row, ("", 0))[1] for row, _ in self.place.calls}

    def tell_beginning(self, turn: Turn) -> None:
        self.turn_id = turn.turn_id
        event = TurnStarted(model=None, accepted_sequence=turn.sequence, sandbox=None, permission=None)
        self._tell(turn.turn_id, event, structs.replace(self.place, sequence=turn.sequence, is_open=True))

    def tell_message(self, row: int, revision: int, message: DisplayMessage) -> None:
        """What a message holds, from the part on that is not told yet."""
        message = masked(message, self._redactor)
        self._known[row] = (message.id, revision)
        pieces = [(number, *piece) for number, piece in enumerate(_parts(message), start=1)]
        told = [(number, call, event) for number, call, event in pieces if event is not None]
        for number, call, event in told:
            if number <= self.place.parts:
                continue
            calls = self.place.calls
            if isinstance(event, ItemStarted) and call is not None:
                calls += ((row, call.index),)
            is_last = number == told[-1][0]
            behind = {"row": row, "parts": 0} if is_last else {"parts": number}
            self._tell(message.turn_id, event, structs.replace(self.place, calls=calls, **behind))
        self.place = structs.replace(self.place, row=row, parts=0)
        self._forget()

    def tell_results(self, row: int, revision: int, message: DisplayMessage) -> None:
        """The calls of a message that have ended since they were told as begun."""
        message = masked(message, self._redactor)
        self._known[row] = (message.id, revision)
        for call, event in _parts(message):
            if call is None or (row, call.index) not in self.place.calls:
                continue
            if isinstance(event, ItemCompleted):
                self._tell(message.turn_id, event, self._without((row, call.index)))
        self._forget()

    def tell_end(self, receipt: Receipt) -> None:
        """How the turn has ended, after the calls that it will not end any more."""
        for row, index in self.place.calls:
            message_id, _ = self._known.get(row, ("", 0))
            event = ItemDiscarded(item_id=item_id(message_id, index), reason=_CUT_OFF)
            self._tell(receipt.turn_id, event, self._without((row, index)))
        self._tell(receipt.turn_id, _end_of(receipt), structs.replace(self.place, is_open=False))
        self._forget()

    def _without(self, call: tuple[int, int]) -> Place:
        return structs.replace(self.place, calls=tuple(one for one in self.place.calls if one != call))

    def _forget(self) -> None:
        rows = {row for row, _ in self.place.calls}
        self._known = {row: known for row, known in self._known.items() if row in rows}

    def _tell(self, turn_id: str, event: AnyEvent | DisplayMessage, place: Place) -> None:
        self.place = place
        self._told(self._session_id, turn_id, event, place.cursor())


def _parts(message: DisplayMessage) -> Iterator[tuple[ToolPart | None, AnyEvent | DisplayMessage | None]]:
    """What is told of a message piece by piece, always as many and in the same order; the call that a piece is."""
    if message.role == "assistant":
        for part in message.parts:
            item, call = item_of_part(message.id, part), part if isinstance(part, ToolPart) else None
            if item is None:
                yield None, None
            elif call is not None and isinstance(call.state, ToolPending):
                yield call, ItemStarted(item=item)
            else:
                yield call, ItemCompleted(item=item)
    elif message.steered_by is not None:
        yield None, steer_of(message)
    elif message.role == "user":
        yield None, message


def _end_of(receipt: Receipt) -> AnyEvent:
    """How a turn ended, from its receipt; one whose process died has no result."""
    result = None if receipt.result is None else decode_result(receipt.result)
    if result is None:
        return TurnFailed(status="interrupted", error=None, duration_ms=0)
    if result.status in ("succeeded", "interaction_required") and result.model is not None:
        return TurnCompleted(model=result.model, usage=result.usage, duration_ms=result.duration_ms)
    return TurnFailed(status=result.status, error=result.error, duration_ms=result.duration_ms)
