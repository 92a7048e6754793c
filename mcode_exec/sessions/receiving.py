"""Taking in a session that was made elsewhere: its history first, its rows after, through the functions all use.

What is compacted at the source is an earlier generation here: it is kept under
`snapshots/` and shown, and the active generation is what a model is sent.  The
files are written beside their places and renamed, one record at a time: however
long a session is, it is never held as a whole.  A session is hidden until its
rows are there; being killed in between leaves what the next import goes on with.

Functions block unless they are coroutines.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct

from mcode_exec.errors import StoreFailedError
from mcode_exec.faults import fault
from mcode_exec.records.history import GenerationHeader, HistoryRecord
from mcode_exec.records.imported import ImportRow
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.files import make_dirs, replace_file, sync_dir
from mcode_exec.sessions.history import FORMAT_VERSION
from mcode_exec.sessions.layout import HistoryPaths
from mcode_exec.sessions.lines import read_record
from mcode_exec.sessions.record_rows import RecordRows
from mcode_exec.store import import_rows, session_rows
from mcode_exec.store.database import Store

#: why the first generation of an imported session is there
IMPORT = "import"
#: records whose rows one transaction writes
BATCH = 100
_BATCH_BYTES = 1024 * 1024  # of records that one transaction writes
_HELD_BYTES = 4 * 1024 * 1024  # of records that are kept in memory instead of being read again
_BUFFER_BYTES = 256 * 1024

_encode = msgspec.json.Encoder().encode


class Written(Struct, frozen=True, kw_only=True):
    """What a `HistoryWriter` has made."""

    #: size of `messages.jsonl`
    history_bytes: int
    #: of all generations
    records: int
    settled: int
    digest: str
    #: messages of people and models
    messages: int
    #: the ids of the first so many records, as `expected` was asked for, have its digest
    is_as_expected: bool


class HistoryWriter:
    """Writes the generations of one session beside their places; `publish` puts them there."""

    def __init__(
        self,
        paths: HistoryPaths,
        session_id: str,
        data_dir: str,
        at_ms: int,
        expected: tuple[int, str] | None,
    ) -> None:
        self._paths = paths
        self._session_id = session_id
        self._data_dir = data_dir
        self._at_ms = at_ms
        self._expected = expected
        self._generation = 1
        self._in_generation = 0
        self._temporary = f"{paths.messages}.{os.getpid()}.tmp"
        self._descriptor = -1
        self._buffer = bytearray()
        self._size = 0
        #: (temporary, place) of generations that are over
        self._snapshots: list[tuple[str, str]] = []
        self._records = self._settled = self._messages = 0
        self._ids = hashlib.sha256()
        self._settled_digest = self._ids.hexdigest()
        self._is_as_expected = expected is None or expected[0] == 0
        #: everything written, while it is little
        self.held: list[HistoryRecord] | None = []
        self._held_bytes = 0

    @property
    def records(self) -> int:
        return self._records

    def add(self, record: HistoryRecord) -> None:
        """Write one record.  Raises: OSError."""
        if self._descriptor < 0:
            self._begin(None)
        if record.message.role == "assistant":
            # an answer may go on at its source: it and its results are written anew by a later import
            self._settled, self._settled_digest = self._records, self._ids.hexdigest()
        line = _encode(record) + b"\n"
        self._put(line)
        self._records += 1
        self._in_generation += 1
        self._messages += record.message.role != "tool"
        self._ids.update(record.id.encode() + b"\n")
        if record.message.role == "user":
            self._settled, self._settled_digest = self._records, self._ids.hexdigest()
        if self._expected is not None and self._records == self._expected[0]:
            self._is_as_expected = self._ids.hexdigest() == self._expected[1]
        self._hold(record, len(line))

    def _hold(self, record: HistoryRecord, size: int) -> None:
        self._held_bytes += size
        if self._held_bytes > _HELD_BYTES:
            self.held = None
        elif self.held is not None:
            self.held.append(record)

    def end_generation(self) -> None:
        """What was written is no longer sent to a model; nothing, if nothing was written.  Raises: OSError."""
        if not self._in_generation:
            return
        name = f"g{self._generation:012d}--{IMPORT}.jsonl"
        kept = f"{self._temporary}.{self._generation}"
        self._end()
        os.rename(self._temporary, kept)
        self._snapshots.append((kept, os.path.join(self._paths.snapshots, name)))
        self._generation += 1
        self._begin(name)

    def _begin(self, snapshot: str | None) -> None:
        make_dirs(self._paths.directory, self._data_dir)
        self._descriptor = os.open(
            self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        os.fchmod(self._descriptor, 0o600)
        self._size = self._in_generation = 0
        header = GenerationHeader(
            generation=self._generation,
            session_id=self._session_id,
            at_ms=self._at_ms,
            snapshot=snapshot,
            reason=IMPORT,
        )
        self._put(_encode(header) + b"\n")

    def _put(self, line: bytes) -> None:
        self._buffer += line
        self._size += len(line)
        if len(self._buffer) >= _BUFFER_BYTES:
            self._write()

    def _write(self) -> None:
        view = memoryview(bytes(self._buffer))
        self._buffer.clear()
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _end(self) -> None:
        self._write()
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1

    def written(self) -> Written:
        return Written(
            history_bytes=self._size,
            records=self._records,
            settled=self._settled,
            digest=self._settled_digest,
            messages=self._messages,
            is_as_expected=self._is_as_expected and (self._expected or (0, ""))[0] <= self._records,
        )

    def publish(self) -> None:
        """Put the files in their places so that they survive power loss.  Raises: OSError."""
        self._end()
        if self._snapshots:
            make_dirs(self._paths.snapshots, self._paths.directory)
        for kept, place in self._snapshots:
            os.rename(kept, place)
        if self._snapshots:
            sync_dir(self._paths.snapshots)
        manifest = {
            "format": FORMAT_VERSION,
            "sessionId": self._session_id,
            "createdMs": self._at_ms,
            "generation": self._generation,
        }
        replace_file(self._paths.manifest, _encode(manifest) + b"\n", durable=False)
        os.rename(self._temporary, self._paths.messages)
        sync_dir(self._paths.directory)
        self._snapshots = []

    def discard(self) -> None:
        """Remove what was not put into its place, and the directories that nothing lies in."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        for path in (self._temporary, *(kept for kept, _ in self._snapshots)):
            with suppress(OSError):
                os.unlink(path)

    def read_again(self) -> Iterator[HistoryRecord]:
        """Every record, from the files.  Raises: StoreFailedError."""
        directory = self._paths.snapshots
        places = [
            os.path.join(directory, f"g{one:012d}--{IMPORT}.jsonl") for one in range(1, self._generation)
        ]
        for place in (*places, self._paths.messages):
            try:
                with open(place, "rb") as file:
                    file.readline()
                    for line in file:
                        yield read_record(line)
            except (OSError, ValueError) as error:
                raise StoreFailedError(f"{place} cannot be read again: {error}") from error


def batches(records: Iterator[HistoryRecord]) -> Iterator[list[HistoryRecord]]:
    """Records whose rows are written together."""
    batch: list[HistoryRecord] = []
    size = 0
    for record in records:
        batch.append(record)
        size += sum(
            len(getattr(block, "text", "") or getattr(block, "content", ""))
            for block in record.message.content
        )
        if len(batch) >= BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def receive_small(
    store: Store,
    session: Session,
    row: ImportRow,
    records: list[HistoryRecord],
    redactor: Redactor,
) -> None:
    """Everything of a short session that is new here, in one transaction."""

    def transaction() -> None:
        session_rows.insert_session(session)
        import_rows.delete_tombstone(session.id)
        import_rows.put_alias(row.source_id, session.id)
        import_rows.put_import(row)
        RecordRows(session.id, redactor).write(records)

    await store.write(transaction)
    fault("after-import-rows")


async def begin_receiving(store: Store, session: Session, row: ImportRow) -> None:
    """Make a hidden session whose rows are still to be written."""

    def transaction() -> None:
        hidden = msgspec.structs.replace(session, visibility="hidden", history_bytes=0)
        session_rows.insert_session(hidden)
        import_rows.delete_tombstone(session.id)
        import_rows.put_alias(row.source_id, session.id)
        import_rows.put_import(msgspec.structs.replace(row, state="writing"))

    await store.write(transaction)


async def end_receiving(store: Store, session: Session, row: ImportRow) -> None:
    """Its rows are there: it is shown."""

    def transaction() -> None:
        session_rows.update_session(
            session.id,
            visibility=session.visibility,
            history_bytes=row.history_bytes,
            updated_ms=session.updated_ms,
            activity_ms=session.activity_ms,
            archived_ms=session.archived_ms,
        )
        import_rows.put_import(row)

    await store.write(transaction)


async def drop_messages(store: Store, session_id: str) -> None:
    """Take the rows of a session's messages away, some at a time."""
    while await store.write(lambda: session_rows.delete_rows(session_id, BATCH * 5)):
        pass
