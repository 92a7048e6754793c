"""Taking another session's history along: what of it, and the copy that a new session begins with.

The source is read and never waited for: a history file is only appended to or
replaced as a whole, so that what was read once is one state of it, whatever
runs there meanwhile.  The copy has ids of its own session; call ids stay, and
with them every byte that a model is sent.  Rows are taken as they are, masked
long ago; those that the source has not written yet are projected from records.
Running the copy's steps, and finishing them after a death, is the executor's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct, structs

from mcode_exec.errors import BusyError, SessionDeletingError, SessionError, StoreFailedError
from mcode_exec.ids import copied_message_id, copied_turn_id, is_message_prefix
from mcode_exec.records.history import (
    FileBlock,
    GenerationHeader,
    HistoryRecord,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
)
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.operation import Inheritance
from mcode_exec.records.projection import display_of, with_results
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.files import make_dirs, read_file, sync_dir
from mcode_exec.sessions.layout import HistoryPaths, history_paths
from mcode_exec.sessions.lines import Line, parse, serialise
from mcode_exec.sessions.masking import masked
from mcode_exec.sessions.rounds import Cut, NoCutError, last_round, up_to
from mcode_exec.sessions.transcript import calls_of, missing_results
from mcode_exec.store import message_rows, session_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.store.message_rows import RawMessage
from mcode_exec.store.turn_rows import Lock

#: why mcode itself added a record to a copy
FORK = "fork"

_encode = msgspec.json.Encoder().encode


class Source(Struct, frozen=True, kw_only=True):
    """One state of the session that is copied, as far as it is taken."""

    session: Session
    paths: HistoryPaths
    #: what is taken, in its order
    records: tuple[HistoryRecord, ...]
    #: (id, encoded DisplayMessage) of the rows that belong to it, older generations included
    rows: tuple[tuple[str, bytes], ...]
    #: ids of messages whose rows are not, or not as the records have it, among them
    unwritten: frozenset[str]
    #: id of the last message of a person or the model that is taken
    at: str
    #: calls of the last message have no result, and get one that says so
    is_cut_short: bool

    def inheritance(self, notes: tuple[str, ...]) -> Inheritance:
        """What a manifest says of it."""
        return Inheritance(
            source_id=self.session.id,
            until=self.records[-1].id,
            completes=self.is_cut_short,
            notes=notes,
        )


async def read_source(
    store: Store,
    sessions_dir: str,
    session_id: str,
    *,
    at: str | None,
    is_held: Callable[[Lock], bool],
    resumed: Inheritance | None = None,
) -> Source:
    """What of a session is taken: up to message `at`, or the last whole round.

    `resumed`: as an earlier look had decided.  `is_held`: whether somebody alive holds a lock.
    Raises: SessionError, BusyError (a first round, or the calls of `at`, still run); HistoryCorruptError;
        StoreFailedError.
    """

    def look() -> tuple[Session, bool]:
        session = session_rows.find_session(session_id)
        if session is None:
            raise SessionError(f"session {session_id} is gone; nothing can be copied from it any more")
        if session.deleting_by is not None:
            raise SessionDeletingError(session_id)
        lock = turn_rows.find_lock(session_id)
        return session, lock is not None and lock.kind == "turn" and is_held(lock)

    before, ran_before = await store.read(look)
    if before.runtime != "pi-agent":
        raise SessionError(f"session {session_id} has no history yet; run it once before it is copied")
    if at is not None:
        text = at
        at = await store.read(lambda: _named(session_id, text))
    lines = await store.on_thread(lambda: _lines(sessions_dir, before))

    def rows() -> Source:
        # Looked at after the file: rows are never behind it but for what is being written now.
        session, runs_now = look()
        records = [line.record for line in lines]
        if resumed is not None:
            cut = _as_before(session, records, resumed)
        else:
            cut = _cut(session, records, at, is_running=ran_before or runs_now)
        taken = records[: cut.count]
        kept = _rows_of(session_id, taken, records[cut.count :])
        return Source(
            session=session,
            paths=history_paths(sessions_dir, session.history_relative_dir),
            records=tuple(taken),
            rows=tuple(kept),
            unwritten=_unwritten(lines[: cut.count], kept, records[cut.count :], session.history_bytes),
            at=next(record.id for record in reversed(taken) if record.message.role != "tool"),
            is_cut_short=cut.is_cut_short,
        )

    return await store.read(rows)


def _named(session_id: str, text: str) -> str:
    """The message an id or unique prefix names; inside a read."""
    if message_rows.row_of(session_id, text) is not None or not is_message_prefix(text):
        return text
    found = message_rows.ids_with_prefix(session_id, text)
    if len(found) > 1:
        raise SessionError(
            f"several messages of session {session_id} start with {text}; give more of its digits"
        )
    return found[0] if found else text


def _lines(sessions_dir: str, session: Session) -> list[Line]:
    path = history_paths(sessions_dir, session.history_relative_dir).messages
    try:
        data = read_file(path)
    except FileNotFoundError:
        if session.history_bytes:
            raise SessionError(
                f"the history of session {session.id} is gone: {path} does not exist; nothing can be copied"
            ) from None
        return []
    except OSError as error:
        raise StoreFailedError(f"{path} cannot be read: {error.strerror}") from error
    # A last line without its end is being written, or was torn; it is no record yet.
    return list(parse(data[: data.rfind(b"\n") + 1], path).lines) if data else []


def _as_before(session: Session, records: Sequence[HistoryRecord], resumed: Inheritance) -> Cut:
    count = next((n for n in range(len(records), 0, -1) if records[n - 1].id == resumed.until), 0)
    if not count:
        raise SessionError(f"session {session.id} has changed since a copy of it was begun")
    return Cut(count=count, is_cut_short=resumed.completes)


def _cut(session: Session, records: Sequence[HistoryRecord], at: str | None, *, is_running: bool) -> Cut:
    try:
        if at is None:
            return last_round(records, is_running=is_running)
        return up_to(records, at, is_running=is_running)
    except NoCutError as error:
        if error.reason == "no-message":
            raise SessionError(
                f"session {session.id} has no message {at} that it could be cut behind; "
                f"`mcode sessions show {session.id} --output-format json` shows the ids of its messages",
                code="message_not_found",
            ) from None
        if error.reason == "runs":
            raise BusyError(
                f"the calls of message {at} still run; try again later, or leave the message out: then the last "
                "whole round is taken"
            ) from None
        if is_running:
            raise BusyError(
                f"the first round of session {session.id} is still running; there is nothing to copy yet, "
                "try again later"
            ) from None
        raise SessionError(
            f"nothing in session {session.id} has been answered"
            + (f" before message {at}" if at is not None else "")
            + ": there is nothing to copy; run its prompt in a new session instead",
            code="nothing_to_fork",
        ) from None


def _rows_of(
    session_id: str, taken: Sequence[HistoryRecord], left: Sequence[HistoryRecord]
) -> list[tuple[str, bytes]]:
    """The rows of what is taken and of generations before it; inside a read."""
    last = next(
        (
            row
            for record in reversed(taken)
            if record.message.role != "tool"
            and (row := message_rows.row_of(session_id, record.id)) is not None
        ),
        0,
    )
    later = {record.id for record in left} - {record.id for record in taken}
    return [one for one in message_rows.raw_messages_up_to(session_id, last) if one[0] not in later]


def _unwritten(
    taken: Sequence[Line],
    rows: Sequence[tuple[str, bytes]],
    left: Sequence[HistoryRecord],
    history_bytes: int,
) -> frozenset[str]:
    """Messages whose rows a dead process, or one that is just at it, has not written; inside a read."""
    known = {message_id for message_id, _ in rows}
    #: said again behind the cut: the row has what was said then
    again = {record.id for record in left}
    found: set[str] = set()
    shown = ""
    for line in taken:
        if line.record.message.role != "tool":
            shown = line.record.id
        if line.end > history_bytes or shown not in known or shown in again:
            found.add(shown)
    return frozenset(found)


class _Ids:
    """The ids that a copy gives to messages and turns; each is worked out once."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._messages: dict[str, str] = {}
        self._turns: dict[str, str] = {}

    def message(self, message_id: str) -> str:
        found = self._messages.get(message_id)
        if found is None:
            found = self._messages[message_id] = copied_message_id(self._session_id, message_id)
        return found

    def turn(self, turn_id: str) -> str:
        found = self._turns.get(turn_id)
        if found is None:
            found = self._turns[turn_id] = copied_turn_id(self._session_id, turn_id)
        return found


class Copy:
    """What a new session begins with."""

    def __init__(self, source: Source, session_id: str, notes: tuple[str, ...], at_ms: int) -> None:
        self._source = source
        self._session_id = session_id
        self._at_ms = at_ms
        self._ids = _Ids(session_id)
        taken = source.records
        if source.is_cut_short:
            taken = (*taken, *self._completed(taken))
        copied = [self._record(record) for record in taken]
        self.records = (*copied, *(self._note(number, note) for number, note in enumerate(notes)))
        header = GenerationHeader(generation=1, session_id=session_id, at_ms=at_ms, reason=FORK)
        #: the bytes of `messages.jsonl`
        self.data = serialise(header, self.records)

    def _completed(self, taken: tuple[HistoryRecord, ...]) -> list[HistoryRecord]:
        """Results of calls that were cut short, under ids that are the same whoever makes them."""
        return [
            structs.replace(record, id=f"{taken[-1].id}/{number}")
            for number, record in enumerate(missing_results(taken, self._at_ms))
        ]

    def _record(self, record: HistoryRecord) -> HistoryRecord:
        return structs.replace(
            record,
            id=self._ids.message(record.id),
            turn_id=self._ids.turn(record.turn_id),
            copied_from=record.id,
        )

    def _note(self, number: int, text: str) -> HistoryRecord:
        return HistoryRecord(
            id=self._ids.message(f"note {number}"),
            turn_id=self._ids.turn(FORK),
            at_ms=self._at_ms,
            message=Message(role="user", content=(TextBlock(text=text, synthetic=True),)),
            repair=FORK,
        )

    def rows(self, redactor: Redactor) -> list[RawMessage]:
        """The display messages, in their order."""
        made = self._projected(redactor)
        rows = []
        for message_id, data in self._source.rows:
            row = made.pop(self._ids.message(message_id), None)
            rows.append(self._carried(data) if row is None else row)
        return [*rows, *made.values()]

    def _carried(self, data: bytes) -> RawMessage:
        message = _carried_of(data)
        parent_id = message.parent_id
        return _raw(
            structs.replace(
                message,
                id=self._ids.message(message.id),
                session_id=self._session_id,
                turn_id=self._ids.turn(message.turn_id),
                parent_id=None if parent_id is None else self._ids.message(parent_id),
            )
        )

    def _projected(self, redactor: Redactor) -> dict[str, RawMessage]:
        """Of messages that the source has no fit rows for, and of what was added: rows made from records."""
        source = self._source
        count = len(source.records)
        wanted = {self._ids.message(one) for one in source.unwritten}
        if source.is_cut_short:
            wanted.add(self._ids.message(source.at))
        shown, parent_id = "", None
        made: dict[str, DisplayMessage] = {}
        results: dict[str, dict[str, ToolResultBlock]] = {}
        for number, record in enumerate(self.records):
            if record.message.role != "tool":
                shown = record.id
                if shown in wanted or number >= count:
                    message = display_of(record, self._session_id, None if parent_id == shown else parent_id)
                    assert message is not None
                    made[shown] = message
                if record.message.role == "user":
                    parent_id = record.id
            elif shown in made:
                for block in record.message.content:
                    if isinstance(block, ToolResultBlock):
                        results.setdefault(shown, {})[block.call_id] = block
        for shown, blocks in results.items():
            made[shown] = with_results(made[shown], blocks)
        return {key: _raw(masked(message, redactor)) for key, message in made.items()}

    def take_files(self, paths: HistoryPaths, data_dir: str) -> None:
        """Give the copy the attachments and whole outputs that it names: the same files, by links of its own.

        Those of another data directory are copied.  What the source has lost is missing here too.
        Raises: StoreFailedError.
        """
        source = self._source.paths
        is_ours = source.directory.startswith(data_dir.rstrip("/") + "/")
        digests = {
            block.digest
            for record in self.records
            for block in record.message.content
            if isinstance(block, ImageBlock | FileBlock)
        }
        outputs = {f"{call.id}.txt" for record in self.records for call in calls_of(record.message)}
        take = _link if is_ours else _copy
        _take(take, source.attachments, paths.attachments, digests, data_dir)
        _take(take, source.tool_outputs, paths.tool_outputs, outputs, data_dir)


class _Carried(DisplayMessage, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A display message whose parts are taken along unread."""

    parts: msgspec.Raw  # type: ignore[assignment]


_carried_of = msgspec.json.Decoder(_Carried).decode


def _raw(message: DisplayMessage) -> RawMessage:
    return RawMessage(
        id=message.id,
        turn_id=message.turn_id,
        role=message.role,
        created_ms=message.created_ms,
        data=_encode(message),
    )


def _take(
    take: Callable[[str, str], None], source: str, target: str, wanted: set[str], data_dir: str
) -> None:
    """Link or copy those of `wanted` that stand in a directory into another."""
    found = sorted(_regular_files(source) & wanted) if wanted else []
    if not found:
        return
    try:
        make_dirs(target, data_dir)
        for name in found:
            take(os.path.join(source, name), os.path.join(target, name))
        sync_dir(target)
    except OSError as error:
        raise StoreFailedError(f"{target} could not be filled: {error.strerror}") from error


def _regular_files(directory: str) -> set[str]:
    try:
        with os.scandir(directory) as entries:
            return {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
    except OSError:
        return set()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return
    except OSError:
        _copy(source, target)  # a file system without hard links


def _copy(source: str, target: str) -> None:
    temporary = f"{target}.{os.getpid()}.tmp"
    shutil.copyfile(source, temporary, follow_symlinks=False)
    os.chmod(temporary, 0o600)
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.rename(temporary, target)


def batches(rows: Sequence[RawMessage], size: int) -> Iterable[tuple[int, Sequence[RawMessage]]]:
    """(number of the first, rows) of each batch."""
    return ((start, rows[start : start + size]) for start in range(0, len(rows), size))
