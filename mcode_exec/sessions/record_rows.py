"""Rows of history records: what people are shown, and what was paid.

One writer for the live turn, for what a crash left unwritten, for imports and
for copies: the same records make the same rows, secrets masked.  Functions run
inside a write transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcode_exec.records.history import HistoryRecord, ToolResultBlock
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.projection import display_of, with_results
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.lines import Line
from mcode_exec.sessions.masking import masked
from mcode_exec.sessions.transcript import calls_of
from mcode_exec.store import message_rows, queue_rows, session_rows, signal_rows


class RecordRows:
    """Writes the rows of one session's records, in their order.  Writing them twice changes nothing."""

    def __init__(self, session_id: str, redactor: Redactor, parent: DisplayMessage | None = None) -> None:
        """`parent` is the newest message of a person that has its row."""
        self._session_id = session_id
        self._redactor = redactor
        self._parent_id = parent.id if parent else None
        self._turn_id = parent.turn_id if parent else None
        #: message that holds each call of the newest message, by call id
        self._calls: dict[str, str] = {}

    def write(self, records: Iterable[HistoryRecord], *, skips: int = 0) -> None:
        """The rows of the next records but the first `skips`, which have theirs.

        A message is written once for all results that come together: an answer of
        hundreds of calls costs what its results are long, not its square.
        """
        results: dict[str | None, dict[str, ToolResultBlock]] = {}
        for number, record in enumerate(records):
            if record.turn_id != self._turn_id:
                self._turn_id, self._parent_id = record.turn_id, None
            if record.message.role == "tool":
                if number >= skips:
                    self._collect(record, results)
                continue
            self._complete(results)
            if number >= skips:
                self._write(record)
            if record.message.role == "user":
                self._parent_id = record.id
        self._complete(results)

    def _collect(self, record: HistoryRecord, results: dict[str | None, dict[str, ToolResultBlock]]) -> None:
        for block in record.message.content:
            if isinstance(block, ToolResultBlock):
                results.setdefault(self._calls.get(block.call_id), {})[block.call_id] = block

    def _complete(self, results: dict[str | None, dict[str, ToolResultBlock]]) -> None:
        for message_id, blocks in results.items():
            if message_id is None:
                # Recovery: the call's message was written by a process that is gone.
                message = message_rows.last_message(self._session_id, "assistant")
            else:
                found = message_rows.find_message(self._session_id, message_id)
                message = found[1] if found else None
            if message is not None:
                message_rows.put_message(masked(with_results(message, blocks), self._redactor))
        results.clear()

    def _write(self, record: HistoryRecord) -> None:
        # results follow their call at once: no other is asked for again
        self._calls = {call.id: record.id for call in calls_of(record.message)}
        # a prompt that is said again may be its own newest user message
        parent_id = None if self._parent_id == record.id else self._parent_id
        message = display_of(record, self._session_id, parent_id)
        if message is None:
            return
        message_rows.put_message(masked(message, self._redactor))
        if record.copied_from is not None:
            return  # it was said, and paid for, in another session
        if record.message.role == "user":
            # What brought these words here has done its work: the queue's item, or the steer.
            queue_rows.delete_by_turn(record.turn_id)
            signal_rows.consume_message(record.id, record.at_ms)
        meta = record.meta
        if meta is not None and meta.usage is not None and meta.provider_id and meta.model_id:
            message_rows.add_usage(
                session_id=self._session_id,
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


def finish_rows(lines: list[Line], session_id: str, history_bytes: int, redactor: Redactor) -> None:
    """Write the rows that a crash left between history and store."""
    parent = message_rows.last_message(session_id, "user")
    RecordRows(session_id, redactor, parent).write(line.record for line in lines)
    session_rows.update_session(session_id, history_bytes=history_bytes)
