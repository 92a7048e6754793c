"""The one door through which a turn's facts become permanent.

History first (fsync), then the frame, rows after (sessions.record_rows), all
only while the lease token still signs the session's lock.  A commit that was
cancelled goes on to its end; the next one waits for it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec import Struct

from mcode_exec.clock import Clock
from mcode_exec.errors import LeaseLostError
from mcode_exec.faults import fault
from mcode_exec.records.history import HistoryRecord
from mcode_exec.records.signal import TurnSignal
from mcode_exec.records.usage import Usage
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.history import CanonicalHistory
from mcode_exec.sessions.record_rows import RecordRows
from mcode_exec.sessions.stream import SessionStream
from mcode_exec.store import message_rows, session_rows, signal_rows, turn_rows
from mcode_exec.store.database import Patience, Store


class FailedAttempt(Struct, frozen=True, kw_only=True):
    """A model call, or an attempt of one, that the provider billed although it gave no answer."""

    provider_id: str
    model_id: str
    usage: Usage
    cost_usd: str | None


class _Unwritten(Struct, frozen=True, kw_only=True):
    """A committed record whose rows are still to be written."""

    record: HistoryRecord
    failed: tuple[FailedAttempt, ...]
    prefix_body: bytes | None
    #: size of the history with it
    size: int


#: A result makes the row of its message be written anew.  Of an answer with many calls results are put off until
#: they are a quarter of those that stand there, for as long at most: else the work grew with the square of the calls.
_QUARTER = 4
_PUT_OFF_S = 0.2


class CommitDoor:
    """Open for one turn, under one lease token."""

    def __init__(
        self,
        *,
        store: Store,
        history: CanonicalHistory,
        stream: SessionStream,
        session_id: str,
        turn_id: str,
        lease_token: str,
        agent: str | None,
        redactor: Redactor,
        clock: Clock,
        patience: Patience | None = None,
    ) -> None:
        self._store = store
        self._patience = patience
        self._history = history
        self._stream = stream
        self._session_id = session_id
        self._turn_id = turn_id
        self._token = lease_token
        self._agent = agent
        self._clock = clock
        #: commits are strictly one after the other, a cancelled one included
        self._turnstile = asyncio.Lock()
        self._record_rows = RecordRows(session_id, redactor)
        #: committed, in their order
        self._unwritten: list[_Unwritten] = []
        #: results of the newest message that have their rows
        self._results_written = 0
        #: the failure that closed the door; every later commit meets it again
        self._broken: Exception | None = None
        #: what others had said to the turn when the newest record was committed, taken or not
        self.steers: tuple[TurnSignal, ...] = ()
        #: what is writing rows now, and what will if no commit comes before
        self._writing: asyncio.Task[None] | None = None
        self._put_off: asyncio.Task[None] | None = None

    @property
    def records(self) -> list[HistoryRecord]:
        """Everything committed so far, older turns included."""
        return self._history.records

    async def commit(
        self,
        record: HistoryRecord,
        *,
        failed: tuple[FailedAttempt, ...] = (),
        prefix_body: bytes | None = None,
    ) -> None:
        """Make `record` permanent: when this returns it is in history and on the stream.

        Its rows follow while the turn goes on; a later commit, and `settle`, wait
        for them and raise what went wrong with them.
        Raises: LeaseLostError; StoreFailedError; StoreBusyError when rows could not be
            written (history has the record: the next open finishes them).
        """
        await asyncio.shield(asyncio.ensure_future(self._commit(record, failed, prefix_body)))

    async def _commit(
        self, record: HistoryRecord, failed: tuple[FailedAttempt, ...], prefix_body: bytes | None
    ) -> None:
        async with self._turnstile:
            await self._rows_written()
            try:
                fault("before-append")
                await self._store.guarded(
                    self._look,
                    lambda: self._history.append((record,), self._clock.now_ms()),
                    self._patience,
                )
                fault("after-append")
            except Exception as error:
                self._broken = error
                raise
            size = self._history.size
            self._stream.publish_committed(record)
            is_result = record.message.role == "tool"
            if not is_result:
                self._results_written = 0
            self._unwritten.append(
                _Unwritten(record=record, failed=failed, prefix_body=prefix_body, size=size)
            )
            if is_result and len(self._unwritten) * _QUARTER < self._results_written:
                if self._put_off is None:
                    self._put_off = asyncio.ensure_future(self._write_later())
            else:
                self._begin_writing()

    async def _write_later(self) -> None:
        await asyncio.sleep(_PUT_OFF_S)
        async with self._turnstile:
            with suppress(Exception):  # it is raised to whoever commits or settles next
                await self._rows_written()
            self._begin_writing()

    def _begin_writing(self) -> None:
        """Write what has no rows yet; inside the turnstile, when nothing is being written."""
        if self._put_off is not None and self._put_off is not asyncio.current_task():
            self._put_off.cancel()
        self._put_off = None
        batch, self._unwritten = self._unwritten, []
        if batch and self._broken is None:
            self._writing = asyncio.ensure_future(self._write(batch))

    async def _write(self, batch: list[_Unwritten]) -> None:
        try:
            await self._store.write(lambda: self._write_rows(batch), self._patience)
            fault("after-rows")
        except Exception as error:  # raised to whoever commits or settles next
            self._broken = error
        else:
            self._results_written += sum(one.record.message.role == "tool" for one in batch)

    async def _rows_written(self) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing = None
        if self._broken is not None:
            raise self._broken

    async def look(self) -> None:
        """Look what has been said to the turn since the newest commit.  Raises: LeaseLostError."""
        await self._store.read(self._look)

    def _look(self) -> None:
        """Whether the lease is still ours, and what was said to the turn: one read for both."""
        check_lease(self._session_id, self._token)
        self.steers = tuple(signal_rows.pending(self._turn_id, "steer"))

    def _write_rows(self, batch: list[_Unwritten]) -> None:
        check_lease(self._session_id, self._token)
        for one in batch:
            if one.prefix_body is not None and one.record.prefix is not None:
                message_rows.put_prefix(one.record.prefix, one.prefix_body)
        self._record_rows.write(one.record for one in batch)
        for one in batch:
            for attempt in one.failed:
                self._add_failed(one.record.id, attempt)
        size = batch[-1].size
        session_rows.update_session(self._session_id, history_bytes=size, updated_ms=self._clock.now_ms())

    async def add_failed_attempts(self, message_id: str, failed: tuple[FailedAttempt, ...]) -> None:
        """Keep what failed calls cost when no message of theirs is committed."""

        def rows() -> None:
            check_lease(self._session_id, self._token)
            for attempt in failed:
                self._add_failed(message_id, attempt)

        await asyncio.shield(asyncio.ensure_future(self._store.write(rows, self._patience)))

    def _add_failed(self, message_id: str, attempt: FailedAttempt) -> None:
        message_rows.add_usage(
            session_id=self._session_id,
            turn_id=self._turn_id,
            message_id=message_id,
            provider_id=attempt.provider_id,
            model_id=attempt.model_id,
            agent=self._agent,
            kind="failed",
            usage=attempt.usage,
            cost_usd=attempt.cost_usd,
            at_ms=self._clock.now_ms(),
        )

    async def settle(self) -> None:
        """Wait until everything committed has its rows, a commit that was cut off included.

        Raises: what went wrong with a commit.
        """
        async with self._turnstile:
            await self._rows_written()
            self._begin_writing()
            await self._rows_written()


def check_lease(session_id: str, token: str) -> None:
    """Raise LeaseLostError if a session is not held under `token` any more; inside a transaction."""
    if not turn_rows.holds_lock(session_id, token):
        raise LeaseLostError(f"the lease of session {session_id} was lost; nothing more was written")
