"""Watching a session that runs in another process: what is committed, as it is committed.

Rows carry a revision that rises with every change, so that an item is told when
its row is written and its call when that gets its result, none twice and none
left out.  Each turn has one end, from its receipt, in the order of receipts,
however many ended between two looks; or for a process that has died when that
is noticed: nothing is written, recovery is left to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from mcode_exec.errors import SessionError
from mcode_exec.executor.outcome import decode_result
from mcode_exec.executor.watched_store import Watched, watched
from mcode_exec.records.event import AnyEvent, ItemCompleted, ItemDiscarded, TurnCompleted, TurnFailed
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.projection import EventProjector
from mcode_exec.records.session import Session
from mcode_exec.records.turn import Receipt
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import finding
from mcode_exec.sessions.masking import masked
from mcode_exec.store import message_rows, session_rows, turn_rows

_DEAD_S = 0.5  # between two looks whether the turn's process still lives
_PAGE = 200
_RECEIPTS = 20  # results may be large

#: (session, turn, a user's message or an event of that turn)
Told = Callable[[str, str, "AnyEvent | DisplayMessage"], None]


class _Seen(Struct, frozen=True, kw_only=True):
    """One look at a session."""

    #: (row, revision, message)
    changed: list[tuple[int, int, DisplayMessage]]
    #: the turn that holds the session, if one does, and its owner's token
    running: str | None
    owner: str | None
    #: of the turns behind the last one whose end was told, and of those in `changed`; in their order
    receipts: dict[str, Receipt]
    has_more_receipts: bool
    is_gone: bool

    @property
    def is_all(self) -> bool:
        return len(self.changed) < _PAGE and not self.has_more_receipts


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

    From the message `after` on, else from the beginning of the turn that runs.  False where nothing ran.
    `rest`: called between two looks; what it raises ends the watching.
    Raises: SessionError for a session or message that does not exist, or that is deleted meanwhile.
    """
    async with watched(data_dir, env, rest, waits=False) as (source, _):
        if source is None:
            raise SessionError(f"there is no session {name}; no run has made a store yet")
        session = await finding.find_exact(source.store, name)
        watcher = _Watcher(source, session, told, Redactor(secret_values(env)), follows=follows)
        await watcher.begin(after)
        return await watcher.run()


class _Watcher:
    """One reader of one session."""

    def __init__(
        self, source: Watched, session: Session, told: Told, redactor: Redactor, *, follows: bool
    ) -> None:
        self._source = source
        self._session_id = session.id
        self._told = told
        self._redactor = redactor
        self._follows = follows
        self._projector = EventProjector(with_deltas=False)
        #: everything up to this revision has been looked at
        self._revision = 0
        #: what stood in these rows at the beginning is not told; its revision then
        self._before_row = 0
        self._before_revision = 0
        #: the turn whose end is to be told next; and the one to end with, if it ran at the beginning
        self._turn_id: str | None = None
        #: the receipt whose turn's end was told last, or that stood there at the beginning
        self._sequence = 0
        self._goal: str | None = None
        self._ended: set[str] = set()
        self._discarded: set[str] = set()
        self._shown: set[str] = set()
        #: a token whose process has died, as of before the last look
        self._dead: str | None = None

    async def begin(self, after: str | None) -> None:
        """Find where to begin."""
        await self._source.store.read(lambda: self._begin(after))

    def _begin(self, after: str | None) -> None:
        session_id = self._session_id
        lock = turn_rows.find_lock(session_id)
        self._turn_id = self._goal = None if lock is None else lock.turn_id
        if after is not None:
            found = message_rows.find_message(session_id, after)
            if found is None:
                raise SessionError(
                    f"session {session_id} has no message {after}; "
                    f"`mcode sessions show {session_id} --output-format json` names them"
                )
            self._before_row = found[0]
            self._turn_id = found[1].turn_id  # its end comes behind each of its messages
        else:
            first = None if self._goal is None else message_rows.first_row_of_turn(session_id, self._goal)
            self._before_row = message_rows.newest_row(session_id) if first is None else first - 1
        self._sequence = self._sequence_before(self._turn_id)
        self._before_revision = message_rows.newest_revision(session_id)
        self._revision = message_rows.revision_behind(session_id, self._before_row)

    def _sequence_before(self, turn_id: str | None) -> int:
        """The receipt behind which turns are told."""
        receipt = None if turn_id is None else turn_rows.find_receipt(turn_id)
        if receipt is not None:
            return receipt.sequence - 1
        newest = turn_rows.newest_receipts(self._session_id, None, 1)
        return newest[0].sequence if newest else 0

    async def run(self) -> bool:
        has_run = self._turn_id is not None
        while True:
            await self._source.change(_DEAD_S)
            seen = await self._source.store.read(self._look)
            has_run = has_run or seen.running is not None
            if self._tell(seen) and not self._follows:
                return has_run
            if not seen.is_all or self._notices_death(seen):
                self._source.look_again()

    def _look(self) -> _Seen:
        lock = turn_rows.find_lock(self._session_id)
        running = None if lock is None else lock.turn_id
        changed = message_rows.messages_changed(self._session_id, self._revision, _PAGE)
        behind = turn_rows.receipts_after(self._session_id, self._sequence, _RECEIPTS)
        receipts = {one.turn_id: one for one in behind}
        for turn_id in {self._turn_id, *(message.turn_id for _, _, message in changed)} - receipts.keys():
            receipt = None if turn_id is None else turn_rows.find_receipt(turn_id)
            if receipt is not None:
                receipts[receipt.turn_id] = receipt
        return _Seen(
            changed=changed,
            running=running,
            owner=None if lock is None else lock.owner,
            receipts=receipts,
            has_more_receipts=len(behind) == _RECEIPTS,
            is_gone=session_rows.find_session(self._session_id) is None,
        )

    def _tell(self, seen: _Seen) -> bool:
        """Tell what is new; True when everything that there was to watch is over, and that was told."""
        for row, revision, message in seen.changed:
            is_known = row <= self._before_row and revision <= self._before_revision
            if not is_known and self._begins_turn(row, message, seen):
                self._end_all(seen, before=message.turn_id)
                if self._is_over():
                    return True
                self._turn_id = message.turn_id
            self._revision = revision
            if not is_known:
                self._tell_message(masked(message, self._redactor))
        if seen.is_gone:
            raise SessionError(f"session {self._session_id} was deleted while it was watched")
        if len(seen.changed) == _PAGE:
            return False
        self._end_all(seen, before=None)
        if self._turn_id is None and seen.running not in self._ended:
            self._turn_id = seen.running
        is_idle = self._goal is None and self._turn_id is None and not seen.has_more_receipts
        return self._is_over() or is_idle

    def _begins_turn(self, row: int, message: DisplayMessage, seen: _Seen) -> bool:
        """Whether another turn than the one that is told goes on with this message."""
        turn_id = message.turn_id
        if turn_id == self._turn_id or turn_id in self._ended:
            return False
        receipt = seen.receipts.get(turn_id)
        is_over = receipt is None or receipt.settled_ms is not None
        # What a later turn mends of one that had ended before the beginning is no turn of its own.
        return row > self._before_row or not is_over

    def _is_over(self) -> bool:
        return not self._follows and self._goal in self._ended

    def _end_all(self, seen: _Seen, *, before: str | None) -> None:
        """Tell how turns have ended, in their order: those before another, or all that have."""
        limit = None if before is None else seen.receipts.get(before)
        for turn_id in self._due(seen, limit):
            self._end(turn_id, seen)
            if self._is_over():
                return

    def _due(self, seen: _Seen, limit: Receipt | None) -> list[str]:
        receipts = sorted(seen.receipts.values(), key=lambda one: one.sequence)
        behind = [one for one in receipts if one.sequence > self._sequence]
        due = [one.turn_id for one in behind if limit is None or one.sequence < limit.sequence]
        if self._turn_id is not None and self._turn_id not in due:
            due.insert(0, self._turn_id)
        return [turn_id for turn_id in due if turn_id not in self._ended]

    def _end(self, turn_id: str, seen: _Seen) -> None:
        """Tell how a turn has ended, if it has."""
        receipt = seen.receipts.get(turn_id)
        if receipt is not None and receipt.settled_ms is not None:
            self._tell_end(turn_id, _end_of(receipt))
        elif seen.running != turn_id and receipt is None:
            self._ended.add(turn_id)  # a session that came from elsewhere has no receipts
            self._turn_id = None
        elif seen.running != turn_id or seen.owner == self._dead:
            self._tell_end(turn_id, TurnFailed(status="interrupted", error=None, duration_ms=0))
        else:
            return
        if receipt is not None:
            self._sequence = max(self._sequence, receipt.sequence)

    def _tell_end(self, turn_id: str, end: AnyEvent) -> None:
        for event in self._projector.abandoned("the turn ended before this was committed"):
            if isinstance(event, ItemDiscarded):
                self._discarded.add(event.item_id)
            self._told(self._session_id, turn_id, event)
        self._told(self._session_id, turn_id, end)
        self._turn_id = None
        self._ended.add(turn_id)

    def _tell_message(self, message: DisplayMessage) -> None:
        if message.role == "user" and message.id not in self._shown:
            self._shown.add(message.id)
            if message.steered_by is None:
                self._told(self._session_id, message.turn_id, message)
        for event in self._projector.persisted((message,)):
            # A call that its turn's death has cut off is over, although a later turn writes that down.
            if not (isinstance(event, ItemCompleted) and event.item.id in self._discarded):
                self._told(self._session_id, message.turn_id, event)

    def _notices_death(self, seen: _Seen) -> bool:
        """Whether the running turn's process has died; what it committed before that is read once more first."""
        if seen.owner is None or seen.running in self._ended or seen.owner == self._dead:
            return False
        if self._source.is_alive(seen.owner):
            return False
        self._dead = seen.owner
        return True


def _end_of(receipt: Receipt) -> AnyEvent:
    """How a turn ended, from its receipt; one whose process died has no result."""
    result = None if receipt.result is None else decode_result(receipt.result)
    if result is None:
        return TurnFailed(status="interrupted", error=None, duration_ms=0)
    if result.status in ("succeeded", "interaction_required") and result.model is not None:
        return TurnCompleted(model=result.model, usage=result.usage, duration_ms=result.duration_ms)
    return TurnFailed(status=result.status, error=result.error, duration_ms=result.duration_ms)
