"""Watching a session that runs in another process: what is committed, as it is committed.

Turns are told in the order of their receipts, however many ran between two
looks: each has one beginning and one end, whether it wrote anything or not, and
between them the messages of its rows.  The end comes from the receipt, or for a
process that has died when that is noticed: nothing is written, recovery is left
to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from mcode_exec.errors import SessionDeletingError, SessionError
from mcode_exec.executor.watched_place import Place, place_after, place_before
from mcode_exec.executor.watched_store import Watched, watched
from mcode_exec.executor.watched_telling import Teller, Told
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import finding
from mcode_exec.store import message_rows, session_rows, turn_rows

_DEAD_S = 0.5  # between two looks whether the turn's process still lives
_ROWS, _BYTES, _TURNS = 200, 4 * 1024 * 1024, 100  # of one look


class _Seen(Struct, frozen=True, kw_only=True):
    """One look at a session, beyond a place."""

    session: Session | None
    #: calls that have changed since they were told, as (row, revision, message)
    calls: list[tuple[int, int, DisplayMessage]]
    #: what is behind the place, likewise
    rows: list[tuple[int, int, DisplayMessage]]
    turns: list[turn_rows.Turn]
    has_all_rows: bool
    has_all_turns: bool
    #: whether the newest turn of these has ended
    is_settled: bool
    #: the turn that holds the session, if one does, and its owner's token
    running: str | None
    owner: str | None


async def watch_session(
    data_dir: str | None,
    env: Mapping[str, str],
    name: str,
    *,
    after: str | None,
    follows: bool,
    told: Told,
    rest: Callable[[], None],
) -> bool:
    """Tell what is committed in a session until its turn ends, or (`follows`) for good.

    Behind the line or message `after`, else from the beginning of the turn that runs.  False where nothing ran.
    `rest`: called between two looks; what it raises ends the watching.
    Raises: SessionError for a session or message that does not exist, or that is deleted meanwhile.
    """
    async with watched(data_dir, env, rest, waits=False) as (source, _):
        if source is None:
            raise SessionError(f"there is no session {name}; no run has made a store yet")
        session = await finding.find_exact(source.store, name)
        place, turn_id, goal = await source.store.read(lambda: _begin(session.id, after))
        teller = Teller(session.id, place, turn_id, told, Redactor(secret_values(env)))
        return await _Watcher(source, session.id, teller, goal, follows=follows).run()


def _begin(session_id: str, after: str | None) -> tuple[Place, str, int]:
    """Where to begin, the turn of that place, and the turn with whose end it is over."""
    session, lock = session_rows.find_session(session_id), turn_rows.find_lock(session_id)
    running = None if lock is None or lock.turn_id is None else turn_rows.turn_named(lock.turn_id)
    if session is not None and session.deleting_by is not None and running is None:
        raise SessionError(f"session {session_id} is being deleted", code="session_deleting")
    newest = turn_rows.newest_sequence(session_id)
    if after is not None:
        place = place_after(session_id, after)
        turn = turn_rows.turn_at(session_id, place.sequence)
        return place, "" if turn is None else turn.turn_id, newest
    if running is not None:
        return place_before(session_id, running), "", newest
    return Place(sequence=newest, row=message_rows.newest_row(session_id)), "", newest


class _Watcher:
    """One reader of one session: looks, and has told what is new."""

    def __init__(self, source: Watched, session_id: str, teller: Teller, goal: int, *, follows: bool) -> None:
        self._source = source
        self._session_id = session_id
        self._teller = teller
        self._goal = goal
        self._follows = follows
        #: a token whose process has died, as of before the last look
        self._dead: str | None = None

    async def run(self) -> bool:
        """Until it is over; whether a turn was told, or one ran."""
        has_run = False
        while True:
            await self._source.change(_DEAD_S)
            seen = await self._source.store.read(self._look)
            has_run = has_run or seen.running is not None
            if await self._tell(seen):
                return has_run
            if not (seen.has_all_rows and seen.has_all_turns) or self._notices_death(seen):
                self._source.look_again()

    def _look(self) -> _Seen:
        session_id, place = self._session_id, self._teller.place
        lock = turn_rows.find_lock(session_id)
        rows, has_all_rows = message_rows.messages_behind(session_id, place.row, _ROWS, _BYTES)
        turns = turn_rows.turns_after(session_id, place.sequence, _TURNS)
        newest = turns[-1] if turns else turn_rows.turn_at(session_id, place.sequence)
        calls = [
            (row, *found)
            for row, revision in self._teller.revisions().items()
            if (found := message_rows.message_at(session_id, row, revision)) is not None
        ]
        return _Seen(
            session=session_rows.find_session(session_id),
            calls=calls,
            rows=rows,
            turns=turns,
            has_all_rows=has_all_rows,
            has_all_turns=len(turns) < _TURNS,
            is_settled=newest is None or newest.is_settled,
            running=None if lock is None else lock.turn_id,
            owner=None if lock is None else lock.owner,
        )

    async def _tell(self, seen: _Seen) -> bool:
        """Tell what is new; True when everything that there was to watch is over, and that was told."""
        if seen.session is None:
            raise self._is_deleted()
        for row, revision, message in seen.calls:
            self._teller.tell_results(row, revision, message)
        for row, revision, message in seen.rows:
            if not await self._reach(message.turn_id, seen):
                return self._is_over()
            self._teller.tell_message(row, revision, message)
        if not seen.has_all_rows:
            return False
        for turn in seen.turns:
            if not await self._go_on_to(turn):
                return True
        if self._teller.place.is_open and self._has_ended(seen):
            await self._end()
        self._check_deletion(seen.session)
        return self._is_over() and seen.has_all_turns

    async def _reach(self, turn_id: str, seen: _Seen) -> bool:
        """Begin a message's turn, after those before it; False if it is not reached by this look, or never will be."""
        numbers = {turn.turn_id: turn.sequence for turn in seen.turns}
        sequence = numbers.get(turn_id, 0)
        if turn_id not in numbers and not seen.has_all_turns:
            found = await self._source.store.read(lambda: turn_rows.turn_named(turn_id))
            sequence = 0 if found is None else found.sequence
        # What is written late of a turn that has ended, or has no receipt, is told in its place among the rows.
        for turn in seen.turns:
            if turn.sequence <= sequence and not await self._go_on_to(turn):
                return False
        return sequence <= self._teller.place.sequence

    async def _go_on_to(self, turn: turn_rows.Turn) -> bool:
        """End the turn that is told and begin another behind it; False if that end was all there was to watch."""
        place = self._teller.place
        if turn.sequence > place.sequence:
            if place.is_open:
                await self._end()
            if self._is_over():
                return False
            self._teller.tell_beginning(turn)
        return True

    async def _end(self) -> None:
        turn_id = self._teller.turn_id
        receipt = await self._source.store.read(lambda: turn_rows.find_receipt(turn_id))
        if receipt is None:
            raise self._is_deleted()
        self._teller.tell_end(receipt)

    def _has_ended(self, seen: _Seen) -> bool:
        """Whether the newest turn has: it is settled, or nobody is there who could settle it."""
        return seen.is_settled or seen.running != self._teller.turn_id or seen.owner == self._dead

    def _is_over(self) -> bool:
        place = self._teller.place
        return not self._follows and not place.is_open and place.sequence >= self._goal

    def _is_deleted(self) -> SessionError:
        return SessionError(f"session {self._session_id} was deleted while it was watched")

    def _check_deletion(self, session: Session) -> None:
        """A deletion that nobody is at any more: nothing will run here, and nobody may be there to finish it."""
        deleter = session.deleting_by
        if deleter is None or self._teller.place.is_open or self._source.is_alive(deleter):
            return
        raise SessionDeletingError(self._session_id)

    def _notices_death(self, seen: _Seen) -> bool:
        """Whether the running turn's process has died; what it committed before that is read once more first."""
        if seen.owner is None or not self._teller.place.is_open or seen.owner == self._dead:
            return False
        if self._source.is_alive(seen.owner):
            return False
        self._dead = seen.owner
        return True
