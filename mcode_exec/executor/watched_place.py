"""How far a session has been told: all that another watcher must know to go on behind a line.

A place holds numbers of rows, and is no larger in a long session than in a
short one.  Its text is the `cursor` of a line.
"""

from __future__ import annotations

import re

from msgspec import Struct

from mcode_exec.errors import SessionError
from mcode_exec.records.message import ToolPart, ToolPending
from mcode_exec.store import message_rows, turn_rows

_CURSOR = re.compile(r"w1\.(\d{1,18})([oe])\.(\d{1,18})\.(\d{1,9})((?:\.\d{1,18}-\d{1,9})*)", re.ASCII)


class Place(Struct, frozen=True, kw_only=True):
    """Behind one line of what is told of a session."""

    #: the newest turn whose beginning was told, by the number of its receipt; and whether its end was not
    sequence: int = 0
    is_open: bool = False
    #: the newest message of which everything was told, and how many parts of the one behind it
    row: int = 0
    parts: int = 0
    #: (row, index) of calls whose beginning was told and whose end was not
    calls: tuple[tuple[int, int], ...] = ()

    def cursor(self) -> str:
        state = "o" if self.is_open else "e"
        calls = "".join(f".{row}-{index}" for row, index in self.calls)
        return f"w1.{self.sequence}{state}.{self.row}.{self.parts}{calls}"


def _place_of(cursor: str) -> Place | None:
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        return None
    sequence, state, row, parts, calls = found.groups()
    pairs = [pair.split("-") for pair in calls.split(".") if pair]
    return Place(
        sequence=int(sequence),
        is_open=state == "o",
        row=int(row),
        parts=int(parts),
        calls=tuple((int(row), int(index)) for row, index in pairs),
    )


def place_after(session_id: str, name: str) -> Place:
    """Behind a line, or behind a message; inside a read.  Raises: SessionError if the session has none of that name."""
    place = _place_of(name)
    if place is not None:
        if not _is_of(session_id, place):
            raise SessionError(f"{name} is no place in session {session_id}; it was told of another one")
        return place
    found = message_rows.find_message(session_id, name)
    if found is None:
        raise SessionError(
            f"session {session_id} has no message {name}; "
            f"`mcode sessions show {session_id} --output-format json` names them"
        )
    row, message = found
    turn = turn_rows.turn_named(message.turn_id)
    if turn is None:  # a session that came from elsewhere has no receipts of what it brought
        return Place(row=row)
    pending = [part for part in message.parts if isinstance(part, ToolPart)]
    calls = tuple((row, part.index) for part in pending if isinstance(part.state, ToolPending))
    return Place(sequence=turn.sequence, is_open=True, row=row, calls=() if turn.is_settled else calls)


def _is_of(session_id: str, place: Place) -> bool:
    if place.sequence:
        return turn_rows.turn_at(session_id, place.sequence) is not None
    return not place.row or message_rows.message_at(session_id, place.row, 0) is not None


def place_before(session_id: str, turn: turn_rows.Turn) -> Place:
    """Where nothing of a turn has been told; inside a read."""
    first = message_rows.first_row_of_turn(session_id, turn.turn_id)
    return Place(sequence=turn.sequence - 1, row=message_rows.newest_row(session_id, before=first))
