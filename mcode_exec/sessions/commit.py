"""The one door through which a turn's facts become permanent.

History first (fsync), then the frame, rows after, all only while the lease
token still signs the session's lock.  Rows are projections of history records, secrets masked:
`finish_rows` makes those that a crash left unwritten, with the same functions.
A commit that was cancelled goes on to its end; the next one waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from msgspec import Struct

from mcode_exec.clock import Clock
from mcode_exec.errors import LeaseLostError
from mcode_exec.faults import fault
from mcode_exec.records.history import HistoryRecord, ToolResultBlock
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.projection import display_of, with_result
from mcode_exec.records.signal import TurnSignal
from mcode_exec.records.usage import Usage
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.history import CanonicalHistory
from mcode_exec.sessions.lines import Line
from mcode_exec.sessions.masking import masked
from mcode_exec.sessions.stream import SessionStream
from mcode_exec.sessions.transcript import calls_of
from mcode_exec.store import message_rows, queue_rows, session_rows, signal_rows, turn_rows
from mcode_exec.store.database import Patience, Store


class FailedAttempt(Struct, frozen=True, kw_only=True):
    """A model call, or an attempt of one, that the provider billed although it gave no answer."""

    provider_id: str
    model_id: str
    usage: Usage
    cost_usd: str | None


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
        self._redactor = redactor
        self._clock = clock
        #: commits are strictly one after the other, a cancelled one included
        self._turnstile = asyncio.Lock()
        #: message that holds each open call, by call id
        self._open_calls: dict[str, str] = {}
        self._last_user_id: str | None = None
        #: the failure that closed the door; every later commit meets it again
        self._broken: Exception | None = None
        #: what others had said to the turn when the newest record was committed, taken or not
        self.steers: tuple[TurnSignal, ...] = ()
        #: rows of the newest record, while they are being written
        self._rows: asyncio.Task[None] | None = None

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

        Its rows follow while the turn goes on; the next commit, and `settle`, wait
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
            self._rows = asyncio.ensure_future(self._write(record, failed, prefix_body, size))

    async def _write(
        self,
        record: HistoryRecord,
        failed: tuple[FailedAttempt, ...],
        prefix_body: bytes | None,
        size: int,
    ) -> None:
        try:
            await self._store.write(
                lambda: self._write_rows(record, failed, prefix_body, size), self._patience
            )
            fault("after-rows")
        except Exception as error:  # raised to whoever commits or settles next
            self._broken = error

    async def _rows_written(self) -> None:
        if self._rows is not None:
            await asyncio.wait([self._rows])
            self._rows = None
        if self._broken is not None:
            raise self._broken

    async def look(self) -> None:
        """Look what has been said to the turn since the newest commit.  Raises: LeaseLostError."""
        await self._store.read(self._look)

    def _look(self) -> None:
        """Whether the lease is still ours, and what was said to the turn: one read for both."""
        check_lease(self._session_id, self._token)
        self.steers = tuple(signal_rows.pending(self._turn_id, "steer"))

    def _write_rows(
        self,
        record: HistoryRecord,
        failed: tuple[FailedAttempt, ...],
        prefix_body: bytes | None,
        size: int,
    ) -> None:
        check_lease(self._session_id, self._token)
        if prefix_body is not None and record.prefix is not None:
            message_rows.put_prefix(record.prefix, prefix_body)
        write_record_rows(record, self._session_id, self._open_calls, self._last_user_id, self._redactor)
        if record.message.role == "user":
            self._last_user_id = record.id
        for attempt in failed:
            self._add_failed(record.id, attempt)
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


def check_lease(session_id: str, token: str) -> None:
    """Raise LeaseLostError if a session is not held under `token` any more; inside a transaction."""
    if not turn_rows.holds_lock(session_id, token):
        raise LeaseLostError(f"the lease of session {session_id} was lost; nothing more was written")


def write_record_rows(
    record: HistoryRecord,
    session_id: str,
    open_calls: dict[str, str],
    parent_id: str | None,
    redactor: Redactor,
) -> None:
    """The rows of one record; inside a write transaction.  Writing them twice changes nothing.

    `open_calls` maps call ids to the message that holds them; it is kept up here.
    """
    if record.message.role == "tool":
        for block in record.message.content:
            if isinstance(block, ToolResultBlock):
                _complete_call(session_id, block, open_calls, redactor)
        return
    # a prompt that is said again may be its own newest user message
    message = display_of(record, session_id, None if parent_id == record.id else parent_id)
    if message is None:
        return
    message_rows.put_message(masked(message, redactor))
    for call in calls_of(record.message):
        open_calls[call.id] = record.id
    if record.copied_from is not None:
        return  # it was said, and paid for, in another session
    if record.message.role == "user":
        # What brought these words here has done its work: the queue's item, or the steer.
        queue_rows.delete_by_turn(record.turn_id)
        signal_rows.consume_message(record.id, record.at_ms)
    meta = record.meta
    if meta is not None and meta.usage is not None and meta.provider_id and meta.model_id:
        message_rows.add_usage(
            session_id=session_id,
            turn_id=record.turn_id,
            message_id=record.id,
            provider_id=meta.provider_id,
            model_id=meta.model_id,
            agent=meta.agent,
            kind="answer",
            usage=meta.usage,
            cost_usd=meta.cost_usd,
            at_ms=record.at_ms,
        )


def _complete_call(
    session_id: str, result: ToolResultBlock, open_calls: dict[str, str], redactor: Redactor
) -> None:
    message_id = open_calls.get(result.call_id)
    if message_id is not None:
        found = message_rows.find_message(session_id, message_id)
        message = found[1] if found else None
    else:
        # Recovery: the call's message was written by a process that is gone.
        message = message_rows.last_message(session_id, "assistant")
    if message is not None:
        message_rows.put_message(masked(with_result(message, result), redactor))


class Projection:
    """Makes rows of records that stand in history already, in their order; masked like all others."""

    def __init__(self, session_id: str, redactor: Redactor, parent: DisplayMessage | None = None) -> None:
        """`parent` is the newest message of a person that has its row."""
        self._session_id = session_id
        self._redactor = redactor
        self._parent_id = parent.id if parent else None
        self._turn_id = parent.turn_id if parent else None
        self._open_calls: dict[str, str] = {}

    def write(self, records: Iterable[HistoryRecord]) -> None:
        """The rows of the next records; inside a write transaction."""
        for record in records:
            if record.turn_id != self._turn_id:  # as at the door, which is one turn's
                self._turn_id, self._parent_id = record.turn_id, None
            write_record_rows(record, self._session_id, self._open_calls, self._parent_id, self._redactor)
            if record.message.role == "user":
                self._parent_id = record.id


def finish_rows(lines: list[Line], session_id: str, history_bytes: int, redactor: Redactor) -> None:
    """Write the rows that a crash left between history and store; inside a write transaction."""
    parent = message_rows.last_message(session_id, "user")
    projection = Projection(session_id, redactor, parent)
    projection.write(line.record for line in lines)
    session_rows.update_session(session_id, history_bytes=history_bytes)
