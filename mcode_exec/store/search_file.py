"""The search index: a database beside the store's that can be thrown away and made anew.

Owns the file, its schema and its failures.  What is in it is a projection of
`messages` and `sessions`; nothing is only there.  One that is damaged or of
another version is `SearchDamagedError` to whoever uses it, who discards it and
begins again.  It is used on the store thread, inside a read of the store, and
its own transactions are as short as the store's: another process waits for
none longer than for a batch.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from typing import Any

from mcode_exec import paths
from mcode_exec.errors import DiskFullError, StoreFailedError
from mcode_exec.store import looking, reserve, trouble

#: "mcos"
_APPLICATION_ID = 0x6D636F73
#: rises with every change of the schema, and of what of a message is searched
_VERSION = 1
_WAIT_S = 0.25  # as the store's own: longer waits are tried again from outside

# `found` has the words; `docs` says which message a document is of.  A document's number grows with the
# time of its message, so that the newest hits are the first that FTS5 comes to.  `session` is a word like
# others: the hits of some sessions are found without a look at those of all.
_SCHEMA = """
CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE stamps (
    number INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, messages INTEGER NOT NULL,
    newest_row INTEGER NOT NULL, newest_revision INTEGER NOT NULL, newest_id TEXT NOT NULL);
CREATE TABLE docs (
    doc INTEGER PRIMARY KEY, session INTEGER NOT NULL, row INTEGER NOT NULL, revision INTEGER NOT NULL);
CREATE UNIQUE INDEX docs_session ON docs (session, row);
CREATE VIRTUAL TABLE found USING fts5 (
    session, title, prompt, answer, tool, columnsize = 0, tokenize = "unicode61 remove_diacritics 2");
"""
#: bytes of words that are gathered before they are written; SQLite's default makes many small pieces
_GATHERED_BYTES = 16 * 1024 * 1024


class SearchDamagedError(Exception):
    """The index cannot be used as it is: it is to be discarded and made anew."""


class SearchFile:
    """The open index; made, opened and closed on the store thread."""

    def __init__(self, database_file: str) -> None:
        self.path = paths.search_file(os.path.dirname(database_file))
        self._lock_file = reserve.lock_file(database_file)
        self._connection: sqlite3.Connection | None = None
        #: of the file that is or was open: what others have put in its place is not discarded
        self._inode = 0

    def open(self) -> None:
        """Open the index, or make an empty one.

        Raises: SearchDamagedError; StoreFailedError; sqlite3.OperationalError when it is busy.
        """
        self.close()
        with self._locked(fcntl.LOCK_SH), self._translated():
            try:
                self._make()
                self._connection = sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)
                self._prepare(self._connection)
            except BaseException:
                self.close()
                raise

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA secure_delete = on").fetchall()  # what is taken out is overwritten
        if _identity(connection) == (_APPLICATION_ID, _VERSION):
            return
        if _has_tables(connection) or _identity(connection) != (0, 0):
            raise SearchDamagedError("it is of another version of mcode")
        connection.execute("PRAGMA journal_mode = wal")
        with self.transaction():
            if not _has_tables(connection):  # else another process was quicker
                self._make_schema(connection)

    def look(self) -> bool:
        """Open what is there as it stands, for reading alone, without any room; False where no index is.

        Raises: SearchDamagedError; StoreFailedError; sqlite3.OperationalError when it is busy.
        """
        self.close()
        if not os.path.isfile(self.path) or os.path.islink(self.path):
            return False
        if not looking.is_whole_on_full_disk(self.path):
            return False
        with self._translated():
            address = looking.unshared(self.path)
            self._connection = sqlite3.connect(address, isolation_level=None, uri=True)
            return _identity(self._connection) == (_APPLICATION_ID, _VERSION)

    def _make(self) -> None:
        """Make the file, if there is none, with our mode: SQLite gives its side files the mode of the main one."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreFailedError(
                f"the search index {self.path} cannot be used: {error.strerror}; move it away, it is made anew"
            ) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise StoreFailedError(
                    f"the search index {self.path} is no file; move it away, it is made anew"
                )
            os.fchmod(descriptor, 0o600)
            self._inode = status.st_ino
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Nobody puts another file in the place of one that is just being opened."""
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise sqlite3.OperationalError("database is locked: it is being opened") from error
        try:
            yield
        finally:
            os.close(descriptor)

    @staticmethod
    def _make_schema(connection: sqlite3.Connection) -> None:
        for statement in _SCHEMA.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.execute("INSERT INTO found (found, rank) VALUES ('hashsize', ?)", (_GATHERED_BYTES,))
        with contextlib.suppress(sqlite3.OperationalError):  # before SQLite 3.42 there is no such thing
            connection.execute("INSERT INTO found (found, rank) VALUES ('secure-delete', 1)")
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def close(self) -> None:
        """Safe to call twice, and on an index that could not be opened."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def discard(self) -> None:
        """Remove the file that was open; whoever else has it goes on with it until its end.

        Raises: StoreFailedError; sqlite3.OperationalError when it is busy.
        """
        self.close()
        with self._locked(fcntl.LOCK_EX):
            try:
                if os.lstat(self.path).st_ino != self._inode:
                    return  # another process has made it anew already
                for ending in ("-wal", "-shm", "-journal", ""):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(self.path + ending)
            except FileNotFoundError:
                return
            except OSError as error:
                raise StoreFailedError(
                    f"the search index {self.path} cannot be removed: {error.strerror}"
                ) from error

    def run(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """The rows of one statement."""
        assert self._connection is not None
        with self._translated():
            return self._connection.execute(sql, parameters).fetchall()

    def run_many(self, sql: str, rows: Any) -> None:
        assert self._connection is not None
        with self._translated():
            self._connection.executemany(sql, rows)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """One IMMEDIATE transaction: all of it or nothing."""
        assert self._connection is not None
        with self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    @property
    def size_bytes(self) -> int:
        """As it is on disk, without what is not merged into it yet."""
        try:
            return os.path.getsize(self.path)
        except OSError:
            return 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """One consistent read."""
        assert self._connection is not None
        with self._translated():
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Failures of this file as what they mean; a busy one is left as it is, and tried again by the store."""
        try:
            yield
        except sqlite3.Error as error:
            if trouble.is_busy(error):
                raise
            text = str(error)
            if "fts5" in text and "no such module" in text:
                raise StoreFailedError(
                    "searching needs SQLite with FTS5, and the SQLite of this Python has none; "
                    "use a Python whose sqlite3 module has it"
                ) from error
            if "is full" in text or trouble.is_disk_full(os.path.dirname(self.path)):
                raise DiskFullError(
                    f"the disk that holds {self.path} is full; free some space and search again"
                ) from error
            if "readonly" in text or "unable to open" in text:
                raise StoreFailedError(
                    f"the search index {self.path} cannot be written ({text}); check its owner and permissions"
                ) from error
            raise SearchDamagedError(text) from error


def _identity(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def _has_tables(connection: sqlite3.Connection) -> bool:
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return bool(tables)
