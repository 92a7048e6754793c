"""Watching sessions that run in other processes: what is committed, as it is committed.

Rows carry a revision that rises with every change, so that an item is told when
its row is written and its call when that gets its result, none twice and none
left out.  A turn's process that has died is noticed, and its turn settled, as by
every other start of mcode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from mcode_exec.errors import SessionError
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.outcome import decode_result
from mcode_exec.executor.runtime import Runtime
from mcode_exec.records.event import AnyEvent, TurnCompleted, TurnFailed
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.projection import EventProjector
from mcode_exec.records.session import Session
from mcode_exec.records.turn import Receipt
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import finding
from mcode_exec.sessions.masking import masked
from mcode_exec.store import message_rows, session_rows, turn_rows
from mcode_exec.turns.recovery import recover

LOOK_S = 0.05  # between two looks whether another process has changed the store
_DEAD_S = 1.0  # between two looks whether the turn's process still lives
_PAGE = 200

#: a user's message, or an event of the turn `turn_id`
Told = Callable[[str, "AnyEvent | DisplayMessage"], None]


class Change(Struct, frozen=True, kw_only=True):
    """One line of `watch --all`."""

    kind: str
    session_id: str
    at_ms: int
    #: as it is by now; None where it is gone
    session: Session | None = None


class _Seen(Struct, frozen=True, kw_only=True):
    """One look at a session."""

    messages: list[tuple[int, DisplayMessage]]
    #: the turn that holds the session, if one does
    running: str | None
    owner: str | None
    receipt: Receipt | None
    is_gone: bool


async def watch_session(
    data_dir: str | None, env: Mapping[str, str], name: str, *, after: str | None, follows: bool, told: Told
) -> bool:
    """Tell what is committed in a session until its turn ends, or (`follows`) for good.

    From the message `after` on, else from the beginning of the turn that runs.  False where nothing ran.
    Raises: SessionError for a session or message that does not exist, or that is deleted meanwhile.
    """
    async with opened(data_dir, env) as runtime:
        session = await finding.find_exact(runtime.store, name)
        watcher = _Watcher(runtime, session, told, Redactor(secret_values(env)))
        await watcher.begin(after)
        return await watcher.run(follows=follows)


class _Watcher:
    """One reader of one session."""

    def __init__(self, runtime: Runtime, session: Session, told: Told, redactor: Redactor) -> None:
        self._runtime = runtime
        self._session_id = session.id
        self._told = told
        self._redactor = redactor
        self._projector = EventProjector(with_deltas=False)
        self._revision = 0
        #: the turn whose end is still to be told
        self._turn_id: str | None = None
        self._shown: set[str] = set()

    async def begin(self, after: str | None) -> None:
        """Find where to begin."""

        def place() -> tuple[int, str | None]:
            lock = turn_rows.find_lock(self._session_id)
            running = None if lock is None else lock.turn_id
            if after is not None:
                found = message_rows.find_message(self._session_id, after)
                if found is None:
                    raise SessionError(
                        f"session {self._session_id} has no message {after}; "
                        f"`mcode sessions show {self._session_id} --output-format json` names them"
                    )
                return message_rows.revision_before(self._session_id, found[0]), running
            if running is None:
                return message_rows.newest_revision(self._session_id), None
            return message_rows.revision_before_turn(self._session_id, running), running

        self._revision, self._turn_id = await self._runtime.store.read(place)

    async def run(self, *, follows: bool) -> bool:
        store, clock = self._runtime.store, self._runtime.clock
        version, looked_s = -1, clock.monotonic_s()
        has_run = self._turn_id is not None
        while True:
            now = await store.data_version()
            is_due = clock.monotonic_s() - looked_s >= _DEAD_S
            if now != version or is_due:
                version, looked_s = now, clock.monotonic_s()
                seen = await store.read(self._look)
                has_run = has_run or seen.running is not None
                if self._tell(seen) and not follows:
                    return has_run
                if len(seen.messages) == _PAGE:
                    version = -1  # there may be more
                    continue
                if seen.running is None and self._turn_id is None and not follows:
                    return has_run
                await self._settle_dead(seen)
            await asyncio.sleep(LOOK_S)

    def _look(self) -> _Seen:
        lock = turn_rows.find_lock(self._session_id)
        running = None if lock is None else lock.turn_id
        watched = self._turn_id or running
        return _Seen(
            messages=message_rows.messages_changed(self._session_id, self._revision, _PAGE),
            running=running,
            owner=None if lock is None else lock.owner,
            receipt=None if watched is None else turn_rows.find_receipt(watched),
            is_gone=session_rows.find_session(self._session_id) is None,
        )

    def _tell(self, seen: _Seen) -> bool:
        """Tell what is new; True when the watched turn is over, and that was told."""
        is_over = False
        for revision, message in seen.messages:
            if message.turn_id != self._turn_id:
                is_over = self._tell_end(seen.receipt) or is_over
                self._turn_id = message.turn_id
            self._revision = revision
            self._tell_message(masked(message, self._redactor))
        if seen.is_gone:
            raise SessionError(f"session {self._session_id} was deleted")
        if self._turn_id is None:
            self._turn_id = seen.running
        if len(seen.messages) == _PAGE:
            return False
        return self._tell_end(seen.receipt) or is_over

    def _tell_end(self, receipt: Receipt | None) -> bool:
        """Tell how the watched turn has ended, if it has."""
        if receipt is None or receipt.turn_id != self._turn_id or receipt.settled_ms is None:
            return False
        for event in self._projector.abandoned("the turn ended before this was committed"):
            self._told(receipt.turn_id, event)
        self._told(receipt.turn_id, _end_of(receipt))
        self._turn_id = None
        return True

    def _tell_message(self, message: DisplayMessage) -> None:
        if message.role == "user" and message.id not in self._shown:
            self._shown.add(message.id)
            if message.steered_by is None:
                self._told(message.turn_id, message)
        for event in self._projector.persisted((message,)):
            self._told(message.turn_id, event)

    async def _settle_dead(self, seen: _Seen) -> None:
        """A process that has died tells nobody: whoever watches ends its turn."""
        runtime = self._runtime
        if seen.owner is not None and not runtime.owner.is_alive(seen.owner):
            await recover(runtime.store, runtime.owner, runtime.clock, runtime.sessions_dir)


def _end_of(receipt: Receipt) -> AnyEvent:
    """How a turn ended, from its receipt; one whose process died has no result."""
    result = None if receipt.result is None else decode_result(receipt.result)
    if result is None:
        return TurnFailed(status="interrupted", error=None, duration_ms=0)
    if result.status in ("succeeded", "interaction_required") and result.model is not None:
        return TurnCompleted(model=result.model, usage=result.usage, duration_ms=result.duration_ms)
    return TurnFailed(status=result.status, error=result.error, duration_ms=result.duration_ms)


async def watch_all(
    data_dir: str | None, env: Mapping[str, str], told: Callable[[Change | None], None]
) -> None:
    """Tell every change of every session from now on, for good; None: some were missed."""
    redactor = Redactor(secret_values(env))
    async with opened(data_dir, env) as runtime:
        store = runtime.store
        seen = await store.read(session_rows.newest_change)
        version = -1
        while True:
            now = await store.data_version()
            if now == version:
                await asyncio.sleep(LOOK_S)
                continue
            version = now
            while True:
                oldest, changes = await store.read(lambda after=seen: _changes(after))  # type: ignore[misc]
                if changes and oldest > seen + 1:
                    told(None)
                for number, change in changes:
                    seen = number
                    told(_masked(change, redactor))
                if len(changes) < _PAGE:
                    break


def _changes(after: int) -> tuple[int, list[tuple[int, Change]]]:
    rows = session_rows.changes_after(after, _PAGE)
    return session_rows.oldest_change(), [
        (
            number,
            Change(
                kind=kind, session_id=session_id, at_ms=at_ms, session=session_rows.find_session(session_id)
            ),
        )
        for number, session_id, kind, at_ms in rows
    ]


def _masked(change: Change, redactor: Redactor) -> Change:
    from msgspec import structs

    session = change.session
    if session is None:
        return change
    error = session.error_message
    words: dict[str, Any] = {
        "title": redactor.text(session.title),
        "error_message": None if error is None else redactor.text(error),
    }
    return structs.replace(change, session=structs.replace(session, **words))
