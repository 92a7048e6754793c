"""What becomes of one session of another program: new, changed since, deleted here, gone on here.

History is written before rows, without a lock while the session is not known
here yet, and under a maintenance lock where it is: no turn runs meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from mcode_exec.errors import BusyError, DiskFullError, StoreFailedError
from mcode_exec.executor.turn_plan import find_repository
from mcode_exec.faults import fault
from mcode_exec.ids import imported_session_id, is_alias
from mcode_exec.importers import losses as lost
from mcode_exec.importers.building import Boundary, Transcript
from mcode_exec.importers.losses import Losses
from mcode_exec.importers.source import Source, UnusableSessionError
from mcode_exec.records.history import FileBlock, HistoryRecord, ImageBlock
from mcode_exec.records.imported import ForeignSession, ImportedSession, ImportOutcome, ImportRow
from mcode_exec.records.session import Project, Session
from mcode_exec.redaction import Redactor
from mcode_exec.sessions import making, receiving
from mcode_exec.sessions.attachments import Attachments
from mcode_exec.sessions.layout import HistoryPaths, allot_dir, history_paths
from mcode_exec.sessions.receiving import HistoryWriter, Written
from mcode_exec.sessions.record_rows import RecordRows
from mcode_exec.sessions.removing import remove_files
from mcode_exec.sessions.titles import MAX_TITLE, is_default_title
from mcode_exec.store import import_rows, session_rows
from mcode_exec.turns.maintenance import maintenance
from mcode_exec.workspace import git

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

Told = Callable[[ImportedSession], None]

_ROOT_COMMIT_DIGITS = (40, 64)
_MOST_PATH = 4096  # characters; Linux's own limit of a path


class TakingIn:
    """One import's."""

    def __init__(self, runtime: Runtime, redactor: Redactor, told: Told, *, again: bool) -> None:
        self._runtime = runtime
        self._told = told
        #: the rows of the newest session while they are written, and what is told once they are
        self._writing: tuple[asyncio.Task[None], ImportedSession] | None = None
        self._store = runtime.store
        self._redactor = redactor
        self._again = again
        #: by workspace and what the source says of its repository
        self._projects: dict[tuple[str, str | None], Project] = {}

    async def take(self, source: Source, session: ForeignSession) -> None:
        """Take in what is new of one session.

        The rows of a short one are written while the next is read: `settle` waits for the last.
        Raises: StoreFailedError, StoreBusyError, also for the one before.
        """
        outcome = await self._take(source, session)
        if outcome is not None:
            await self.settle()
            self._told(outcome)

    async def settle(self) -> None:
        """Wait until the rows of the newest session are there.  Raises: StoreFailedError, StoreBusyError."""
        if self._writing is not None:
            (task, outcome), self._writing = self._writing, None
            await task
            self._told(outcome)

    async def _take(self, source: Source, session: ForeignSession) -> ImportedSession | None:
        if not is_alias(session.source_id):
            return _told(session, "failed", detail="its id is no name that a session can have")
        session_id = imported_session_id(session.origin, session.source_id)
        row, known, is_deleted = await self._store.read(
            lambda: (
                import_rows.find_import(session_id),
                session_rows.find_session(session_id),
                import_rows.has_tombstone(session_id),
            )
        )
        if known is None and is_deleted and not self._again:
            return _told(session, "deleted-here", detail="--again brings it back")
        if known is not None and known.deleting_by is not None:
            return _told(session, "deleted-here", session_id, detail="it is being deleted")
        if (
            known is not None
            and row is not None
            and row.state == "done"
            and row.fingerprint == session.fingerprint
        ):
            return _told(session, "unchanged", known)
        if known is not None and row is not None and _is_older_copy(session, known, row):
            return _told(session, "unchanged", known, detail=f"it was imported from {row.source}")
        try:
            if known is None or row is None:
                return await self._new(source, session, session_id)
            return await self._known(source, session, known, row)
        except UnusableSessionError as error:
            return _told(session, "failed", known, detail=str(error))
        except BusyError as error:
            return _told(session, "failed", known, detail=error.message)

    # a session that is not here yet

    async def _new(self, source: Source, session: ForeignSession, session_id: str) -> ImportedSession | None:
        relative_dir = allot_dir(session.created_ms, session_id)
        conversion = self._conversion(source, session, session_id, relative_dir, None)
        try:
            await asyncio.to_thread(conversion.run)
        except UnusableSessionError:
            await asyncio.to_thread(remove_files, self._runtime.sessions_dir, relative_dir)
            raise
        if not conversion.writer.records:
            await asyncio.to_thread(remove_files, self._runtime.sessions_dir, relative_dir)
            return _told(session, "empty", losses=conversion.losses)
        await asyncio.to_thread(conversion.publish)
        fault("after-import-history")
        await self.settle()  # it may be the parent of this one
        made = await self._made(session, session_id, relative_dir, conversion)
        row = self._row(session, session_id, conversion)
        held = conversion.writer.held
        if held is not None and len(held) <= receiving.BATCH:
            rows = receiving.receive_small(self._store, made, row, held, self._redactor)
            outcome = _told(session, "imported", made, conversion=conversion)
            self._writing = (asyncio.ensure_future(rows), outcome)
            return None
        await receiving.begin_receiving(self._store, made, row)
        async with maintenance(self._store, self._runtime.owner, session_id, self._runtime.clock):
            await self._write_rows(session_id, conversion.writer, skips=0)
            await receiving.end_receiving(self._store, made, row)
        return _told(session, "imported", made, conversion=conversion)

    # a session that was imported before

    async def _known(
        self, source: Source, session: ForeignSession, known: Session, row: ImportRow
    ) -> ImportedSession:
        history = history_paths(self._runtime.sessions_dir, known.history_relative_dir)
        if known.last_turn_id is not None or (row.state == "done" and _is_changed(known, row, history)):
            if row.state == "writing":  # a turn has finished its rows
                await receiving.end_receiving(
                    self._store, structs.replace(known, visibility="visible"),
                    structs.replace(row, state="done", history_bytes=known.history_bytes),
                )  # fmt: skip
            detail = "it went on here, and stays as it is; its source has changed since"
            return _told(session, "changed-here", known, detail=detail)
        async with maintenance(self._store, self._runtime.owner, known.id, self._runtime.clock):
            expected = (row.settled, row.digest) if row.state == "done" else (0, "")
            conversion = self._conversion(source, session, known.id, known.history_relative_dir, expected)
            await asyncio.to_thread(conversion.run)
            if not conversion.writer.records:
                conversion.writer.discard()
                return _told(session, "empty", known, losses=conversion.losses)
            written = conversion.written
            new = self._row(session, known.id, conversion)
            await self._store.write(lambda: self._reopen(known.id, structs.replace(new, state="writing")))
            await asyncio.to_thread(conversion.publish)
            fault("after-import-history")
            is_longer = written.is_as_expected and row.state == "done"
            if not is_longer:
                await receiving.drop_messages(self._store, known.id)
            await self._write_rows(known.id, conversion.writer, skips=row.settled if is_longer else 0)
            shown = structs.replace(
                known,
                visibility="hidden" if known.visibility == "hidden" and row.state == "done" else "visible",
                updated_ms=max(known.updated_ms, session.updated_ms),
                activity_ms=max(known.activity_ms, session.updated_ms),
            )
            await receiving.end_receiving(self._store, shown, new)
        is_same = is_longer and written.records == row.records
        return _told(session, "unchanged" if is_same else "updated", known, conversion=conversion)

    def _reopen(self, session_id: str, row: ImportRow) -> None:
        """Whoever opens the session from now on finishes its rows; inside a write transaction."""
        session_rows.update_session(session_id, history_bytes=0)
        import_rows.put_import(row)

    async def _write_rows(self, session_id: str, writer: HistoryWriter, *, skips: int) -> None:
        rows = RecordRows(session_id, self._redactor)
        records: Iterator[HistoryRecord] = (
            iter(writer.held) if writer.held is not None else writer.read_again()
        )
        batches = receiving.batches(records)
        done = 0
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            left = max(skips - done, 0)
            done += len(batch)
            await self._store.write(lambda batch=batch, left=left: rows.write(batch, skips=left))  # type: ignore[misc]
            fault("after-import-batch")

    # what it is made of

    def _conversion(
        self,
        source: Source,
        session: ForeignSession,
        session_id: str,
        relative_dir: str,
        expected: tuple[int, str] | None,
    ) -> _Conversion:
        history = history_paths(self._runtime.sessions_dir, relative_dir)
        return _Conversion(source, session, session_id, history, self._runtime.data, expected)

    async def _made(
        self, session: ForeignSession, session_id: str, relative_dir: str, conversion: _Conversion
    ) -> Session:
        workspace = _workspace(session.workspace)
        project = await self._project(workspace, session.repository)
        parent_id = await self._parent(session, conversion.losses)
        title, is_default = self._title(session, conversion.first_words)
        written = conversion.written
        made = making.new_session(
            project_id=project.id,
            workspace=workspace,
            title=title,
            title_is_default=is_default,
            now_ms=session.created_ms,
            session_kind="conversation" if parent_id is None else "task",
        )
        return structs.replace(
            made,
            id=session_id,
            history_relative_dir=relative_dir,
            updated_ms=session.updated_ms,
            activity_ms=session.updated_ms,
            archived_ms=session.archived_ms,
            origin=session.origin,
            parent_id=parent_id,
            status=session.status,
            history_bytes=written.history_bytes,
        )

    async def _parent(self, session: ForeignSession, losses: Losses) -> str | None:
        """The session that delegated this one, if it is here."""
        if session.parent_source_id is None:
            return None
        parent_id = imported_session_id(session.origin, session.parent_source_id)
        if await self._store.read(lambda: session_rows.find_session(parent_id)) is None:
            losses.count(lost.PARENT)
            return None
        return parent_id

    async def _project(self, workspace: str, repository: str | None) -> Project:
        """The project of a workspace, stored; where that is gone, what its source knew of the repository counts."""
        key = (workspace, repository)
        if key not in self._projects:
            found: str | None = None
            if os.path.isdir(workspace):
                root = await asyncio.to_thread(git.find_root, workspace)
                found, kept = await find_repository(self._store, root)
                if kept is not None and found is not None:
                    name, identity = kept, found
                    await self._store.write(lambda: session_rows.put_repository(name, identity))
            elif repository is not None and _is_commit(repository):
                found = repository
            project = making.project_of(workspace, found, self._runtime.clock.now_ms())
            self._projects[key] = await self._store.write(lambda: session_rows.ensure_project(project))
        return self._projects[key]

    def _title(self, session: ForeignSession, first_words: str | None) -> tuple[str, bool]:
        given = session.title if session.title and not is_default_title(session.title) else None
        title, is_default = making.title_of(
            self._redactor.text(given or first_words or ""), session.created_ms
        )
        if is_default and session.title and session.title.strip():
            return session.title.strip()[:MAX_TITLE], True
        return title, is_default

    def _row(self, session: ForeignSession, session_id: str, conversion: _Conversion) -> ImportRow:
        written = conversion.written
        return ImportRow(
            session_id=session_id,
            origin=session.origin,
            source_id=session.source_id,
            source=os.fsencode(session.source).decode("utf-8", "replace"),
            source_version=session.version,
            fingerprint=session.fingerprint,
            state="done",
            records=written.records,
            settled=written.settled,
            digest=written.digest,
            history_bytes=written.history_bytes,
            losses=conversion.losses.as_dict(),
            at_ms=self._runtime.clock.now_ms(),
        )


class _Conversion:
    """Reads one session into the files of its history; blocks."""

    def __init__(
        self,
        source: Source,
        session: ForeignSession,
        session_id: str,
        history: HistoryPaths,
        data_dir: str,
        expected: tuple[int, str] | None,
    ) -> None:
        self.losses = Losses()
        self.writer = HistoryWriter(history, session_id, data_dir, session.created_ms, expected)
        self._attachments = Attachments(history, data_dir)
        self._transcript = Transcript(session_id, self._keep, self.losses)
        self._source = source
        self._session = session
        self._messages_path = history.messages

    @property
    def first_words(self) -> str | None:
        return self._transcript.first_words

    @property
    def written(self) -> Written:
        return self.writer.written()

    def run(self) -> None:
        """Raises: UnusableSessionError, StoreFailedError."""
        try:
            for item in self._source.items(self._session, self._transcript):
                if isinstance(item, Boundary):
                    self.writer.end_generation()
                else:
                    self.writer.add(item)
        except OSError as error:
            self.writer.discard()
            raise self._failure(error) from error
        except BaseException:
            self.writer.discard()
            raise

    def publish(self) -> None:
        """Raises: StoreFailedError."""
        try:
            self.writer.publish()
        except OSError as error:
            self.writer.discard()
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> StoreFailedError:
        kind = DiskFullError if error.errno in (28, 122) else StoreFailedError
        return kind(f"{error.filename or self._messages_path} could not be used: {error.strerror}")

    def _keep(self, data: bytes, filename: str | None) -> ImageBlock | FileBlock | None:
        """Only what a provider would take: anything else would fail every later turn."""
        from mcode_exec.tools import images
        from mcode_exec.tools.failure import ToolFailure

        mime = images.mime_of(data[:16])
        if len(data) > images.MAX_RAW_BYTES or (mime is None and not data.startswith(b"%PDF-")):
            return None
        if mime is None:
            digest = self._attachments.keep(data)
            return FileBlock(digest=digest, mime="application/pdf", filename=filename)
        try:
            images.check_image(mime, data, "it")
        except ToolFailure:
            return None
        return ImageBlock(digest=self._attachments.keep(data), mime=mime, filename=filename)


def _is_older_copy(session: ForeignSession, known: Session, row: ImportRow) -> bool:
    """Whether this is what another source of the same session had before: programs leave old stores behind."""
    source = os.fsencode(session.source).decode("utf-8", "replace")
    return row.state == "done" and row.source != source and session.updated_ms <= known.updated_ms


def _workspace(said: str | None) -> str:
    """The directory that a session says it worked in, canonical where it is there; `/` where it says none."""
    if not said or not said.startswith("/") or len(said) > _MOST_PATH:
        return "/"
    path = os.path.normpath(said)
    return os.path.realpath(path) if os.path.isdir(path) else path


def _is_commit(text: str) -> bool:
    return len(text) in _ROOT_COMMIT_DIGITS and not text.strip("0123456789abcdef")


def _is_changed(known: Session, row: ImportRow, history: HistoryPaths) -> bool:
    """Whether something was done to the session's history here."""
    try:
        size = os.stat(history.messages).st_size
    except OSError:
        return False
    return not known.history_bytes == size == row.history_bytes


def _told(
    session: ForeignSession,
    outcome: ImportOutcome,
    here: Session | str | None = None,
    *,
    conversion: _Conversion | None = None,
    losses: Losses | None = None,
    detail: str | None = None,
) -> ImportedSession:
    made = here if isinstance(here, Session) else None
    losses = losses or (conversion.losses if conversion is not None else None)
    return ImportedSession(
        origin=session.origin,
        source_id=session.source_id[:128],
        source=os.fsencode(session.source).decode("utf-8", "replace"),
        outcome=outcome,
        session_id=here if isinstance(here, str) else None if made is None else made.id,
        title=session.title if made is None else made.title,
        workspace=session.workspace if made is None else made.workspace,
        messages=conversion.written.messages if conversion is not None else 0,
        losses={} if losses is None else losses.as_dict(),
        detail=detail,
    )
