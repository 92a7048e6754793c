"""The search index brought up to date, and asked.

Nothing of a turn ever writes here.  Whoever searches first looks what has
changed since somebody searched last (the stamps of sessions say so, and the
numbers of changes and messages where to look) and takes it in, in batches
that each are one short transaction: a search that is ended in the middle has
lost nothing, and another process that searches does the rest.  Each batch
reads the store after it holds the index, so that nobody puts an older state
over a newer one.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from mcode_exec import paths
from mcode_exec.errors import DiskFullError, McodeError, StoreBusyError, StoreFailedError
from mcode_exec.records.finding import Place, Words
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.search_changes import changes
from mcode_exec.sessions.searched_text import texts_of
from mcode_exec.sessions.words import spaced
from mcode_exec.store import search_rows, searched_rows
from mcode_exec.store.database import Store
from mcode_exec.store.search_file import SearchDamagedError, SearchFile
from mcode_exec.store.search_rows import Doc, Stamp

_T = TypeVar("_T")
Told = Callable[[str], None]

#: of one transaction
BATCH_DOCS = 4_000
BATCH_CHARS = 8_000_000
_BATCH_SESSIONS = 500
_FIRST_TOLD_S = 1.0
_TOLD_EVERY_S = 5.0
#: what a search may find in few enough sessions to look into each
MANY_HITS = 20_000
#: an index that is larger is not written anew for the sake of a deletion
_OPTIMIZED_BYTES = 64 * 1024 * 1024


class SearchIndex:
    """The index of one store, open.  `told` gets a sentence now and then while it takes long."""

    def __init__(self, store: Store, redactor: Redactor, told: Told) -> None:
        self._store = store
        self._redactor = redactor
        self._told = told
        self.patience = Patience(told)
        self._file = SearchFile(store.path)
        #: whether there is no room to take anything in
        self.is_frozen = False
        #: whether sessions were taken out whose words may still be in the file
        self._is_littered = False

    @property
    def path(self) -> str:
        return self._file.path

    async def open(self) -> None:
        """Raises: SearchDamagedError; StoreFailedError; StoreBusyError."""
        await self._store.read(self._file.open)

    async def bring_up_to_date(self) -> None:
        """Open it and take in what has changed; on a full disk it stays as it is, if there is one, and that is told.

        Raises: SearchDamagedError; StoreFailedError; StoreBusyError.
        """
        try:
            await self.open()
            await self.refresh()
        except DiskFullError as error:
            if not await self._is_whole():
                raise
            self.is_frozen = True
            self._told(f"{error.message}; what has changed since the last search is not looked through")

    async def _is_whole(self) -> bool:
        """Whether there is an index, and it was up to date once; then it is open."""
        try:
            is_there = self._file.is_open or await self._store.read(self._file.look)
            return is_there and bool(await self.read(search_rows.meta))
        except DiskFullError:
            return False

    async def close(self) -> None:
        await self._store.on_thread(self._file.close)

    async def discard(self) -> None:
        """Remove the index; it is empty when it is opened again.  Raises: StoreFailedError; StoreBusyError."""
        await self._store.read(self._file.discard)

    async def read(self, function: Callable[[SearchFile], _T]) -> _T:
        """What `function` finds in the index and the store, each as it is at one moment."""

        def job() -> _T:
            with self._file.reading():
                return function(self._file)

        return await self._store.read(job)

    async def refresh(self) -> None:
        """Take in what has changed.  Raises: SearchDamagedError; StoreFailedError; StoreBusyError."""
        marks, changed, messages = await changes(self)
        if marks is None:
            return
        taken_in = 0
        left = changed[::-1]
        while left:
            done, some = await self._store.read(partial(self._take_in, left[-_BATCH_SESSIONS:][::-1]))
            del left[len(left) - done :]
            taken_in += some
            if left:
                self.patience.tell(f"the search index takes in {messages:,} messages: {taken_in:,} so far")
        values: dict[str, int | str] = {
            "change": marks.change,
            "row": marks.row,
            "message_id": marks.message_id,
        }
        await self._store.read(partial(self._keep_marks, values))
        await self._clean()
        if self.patience.has_told:
            self._told(f"the search index has taken in {taken_in:,} messages")

    def _keep_marks(self, values: dict[str, int | str]) -> None:
        with self._file.transaction():
            search_rows.put_meta(self._file, values)

    # taking in

    def _take_in(self, ids: Sequence[str]) -> tuple[int, int]:
        """Index some sessions in one transaction: how many are done, and how many documents that were.

        One that is too large for a transaction is begun, and gone on with in the next.
        """
        file, batch = self._file, _Batch()
        with file.transaction():
            kept, now = search_rows.stamps_of(file, ids), searched_rows.stamps_of(ids)
            done = 0
            for session_id in ids:
                number, old = kept.get(session_id, (0, None))
                if session_id not in now:
                    if old is not None:
                        batch.deleted += [doc for doc, _ in search_rows.docs_of(file, number).values()]
                        search_rows.drop_stamp(file, number)
                        self._is_littered = True
                elif old != now[session_id][0]:
                    new, created_ms = now[session_id]
                    number = number or search_rows.begin_session(file, session_id)
                    if not self._take_in_session(number, old, new, created_ms, batch):
                        break
                    search_rows.put_stamp(file, number, new)
                done += 1
                if batch.is_full:
                    break
            search_rows.write_docs(file, batch.put, batch.deleted)
        return done, batch.messages

    def _take_in_session(
        self, number: int, old: Stamp | None, new: Stamp, created_ms: int, batch: _Batch
    ) -> bool:
        """Put what has changed of a session into the batch; False where that is full before it is all."""
        file = self._file
        kept = search_rows.docs_of(file, number)
        if old is None or old.title != new.title or 0 not in kept:
            self._put(batch, number, 0, 0, created_ms, {"title": new.title}, kept)
        now = searched_rows.revisions(new.session_id)
        if old is not None and old.newest_row == new.newest_row and old.newest_id != new.newest_id:
            kept = {row: (doc, -1) for row, (doc, _) in kept.items()}  # other messages under the same numbers
        batch.deleted += [doc for row, (doc, _) in kept.items() if row and row not in now]
        wanted = sorted(row for row, revision in now.items() if row not in kept or kept[row][1] != revision)
        for row, revision, message in searched_rows.messages_at(wanted):
            if batch.is_full:
                return False
            texts = {} if message is None else texts_of(message)
            at_ms = created_ms if message is None else message.created_ms
            self._put(batch, number, row, revision, at_ms, texts, kept)
            batch.messages += 1
        return True

    def _put(
        self,
        batch: _Batch,
        number: int,
        row: int,
        revision: int,
        at_ms: int,
        texts: Mapping[Place, str],
        kept: dict[int, tuple[int, int]],
    ) -> None:
        clean = {place: spaced(self._redactor.text(text)) for place, text in texts.items()}
        batch.add(
            Doc(
                doc=kept[row][0] if row in kept else search_rows.doc_of(at_ms, row or number),
                is_new=row not in kept,
                number=number,
                row=row,
                revision=revision,
                texts=clean,
            )
        )

    # asking

    async def look_again(self, session_ids: Iterable[str]) -> None:
        """Take sessions in anew whose messages are not what the index says."""
        ids = list(dict.fromkeys(session_ids))

        def blur() -> None:
            with self._file.transaction():
                for session_id in ids:
                    search_rows.blur(self._file, session_id)

        await self._store.read(blur)
        left = ids[::-1]
        while left:
            done, _ = await self._store.read(partial(self._take_in, left[-_BATCH_SESSIONS:][::-1]))
            del left[len(left) - done :]

    async def sessions_of(self, words: Words) -> list[str] | None:
        """Ids of all sessions in which the words stand; None where there are too many hits to collect."""

        def find(file: SearchFile) -> list[str] | None:
            numbers = search_rows.sessions_of_hits(file, words, MANY_HITS)
            return None if numbers is None else list(search_rows.ids_of(file, numbers).values())

        return await self.read(find)

    # deleting

    async def forget(self, session_ids: Sequence[str]) -> None:
        """Take deleted sessions out at once, and their words out of the file where that is quickly done.

        Raises: SearchDamagedError; StoreFailedError; StoreBusyError.
        """
        left = list(session_ids)[::-1]
        while left:
            done, _ = await self._store.read(partial(self._take_in, left[-_BATCH_SESSIONS:][::-1]))
            del left[len(left) - done :]
        await self._clean()

    async def _clean(self) -> None:
        """Take the words of what is gone out of the file: before SQLite 3.42 FTS5 only marks them as deleted."""
        if not self._is_littered:
            return
        self._is_littered = False

        def clean() -> None:
            if self._file.size_bytes <= _OPTIMIZED_BYTES:
                with self._file.transaction():
                    search_rows.optimize(self._file)
            search_rows.checkpoint(self._file)

        await self._store.read(clean)


class _Batch:
    """What one transaction writes."""

    def __init__(self) -> None:
        self.put: list[Doc] = []
        self.deleted: list[int] = []
        self.messages = 0
        self._chars = 0

    def add(self, doc: Doc) -> None:
        self.put.append(doc)
        self._chars += sum(map(len, doc.texts.values()))

    @property
    def is_full(self) -> bool:
        return (
            len(self.put) >= BATCH_DOCS or self._chars >= BATCH_CHARS or len(self.deleted) >= 4 * BATCH_DOCS
        )


class Patience:
    """Says how far something is, when it takes long: after a second, and then every five."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._next_s = time.monotonic() + _FIRST_TOLD_S
        self.has_told = False

    def tell(self, sentence: str) -> None:
        """Say `sentence`, if it is time for that."""
        if time.monotonic() >= self._next_s:
            self._told(sentence)
            self._next_s = time.monotonic() + _TOLD_EVERY_S
            self.has_told = True


async def forget(store: Store, session_ids: Sequence[str]) -> None:
    """Take deleted sessions out of the index, if there is one; one that fails is removed for it.

    A busy index is left to whoever searches next.
    """
    if not session_ids or not os.path.lexists(paths.search_file(os.path.dirname(store.path))):
        return
    index = SearchIndex(store, Redactor(), lambda _: None)
    try:
        await index.open()
        await index.forget(session_ids)
    except StoreBusyError:
        pass
    except (SearchDamagedError, StoreFailedError):
        with contextlib.suppress(McodeError):
            await index.discard()
    finally:
        await index.close()


async def searching(
    store: Store, redactor: Redactor, told: Told, work: Callable[[SearchIndex], Awaitable[_T]]
) -> _T:
    """What `work` finds in the index, which is brought up to date for it; one that is damaged is made anew.

    Raises: StoreFailedError; StoreBusyError; what `work` raises.
    """
    index = SearchIndex(store, redactor, told)
    is_second = False
    while True:
        try:
            await index.bring_up_to_date()
            return await work(index)
        except SearchDamagedError as error:
            if is_second:
                raise StoreFailedError(
                    f"the search index {index.path} was made anew and cannot be used ({error})"
                ) from error
            told(f"the search index {index.path} cannot be used ({error}); it is made anew")
            is_second = True
            await index.discard()
        finally:
            await index.close()
