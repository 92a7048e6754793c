"""The open store: one thread that owns the connection, and the only two doors to a transaction.

`read` runs a function in a deferred transaction, `write` in an IMMEDIATE one;
both take place on the store thread, so that the event loop never waits in
SQLite.  A busy database is retried here, in Python, abortably, for 10 s in all
(SQLite's own wait would block signals).  A cancelled `write` may still commit:
the caller asks again with the same ids.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import peewee

from mcode_exec import paths
from mcode_exec.abort import AbortScope
from mcode_exec.clock import Clock
from mcode_exec.errors import InvocationError, McodeError, StoreBusyError, StoreFailedError
from mcode_exec.faults import fault
from mcode_exec.plurals import counted
from mcode_exec.store import migrations, reserve, tables, trouble

T = TypeVar("T")

BUSY_S = 10.0  # seconds a busy store is waited for; then STORE_BUSY
HURRY_S = 1.0  # seconds an aborted turn waits for a busy store, in all
_SQLITE_WAIT_S = 0.25  # longest wait inside SQLite, during which the store thread is deaf
_SMALLEST_PAGE = 512  # bytes; SQLite takes a shorter file for an empty one and writes over it
_RETRY_S = (0.005, 0.01, 0.02, 0.05, 0.1)  # pauses between tries; the last repeats


class Patience:
    """How long one turn waits for a busy store: as long as anybody, but briefly once it is aborted."""

    def __init__(self, abort: AbortScope) -> None:
        self._abort = abort
        self._until_s: float | None = None

    def is_over(self, now_s: float) -> bool:
        """Whether the turn has been aborted and has waited for HURRY_S since it noticed."""
        if not self._abort.is_tripped:
            return False
        if self._until_s is None:
            self._until_s = now_s + HURRY_S
        return now_s >= self._until_s


class StoreThread:
    """Runs functions one after the other on a thread of its own."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: a process that must end never waits for a blocked disk.
        self._thread = threading.Thread(target=self._run, name="mcode-store", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run `function` on the thread; its result or error arrives on the calling loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def deliver(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def job() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = function()
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(deliver, result, error)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more

        self._jobs.put(job)
        return future

    def stop(self) -> None:
        self._jobs.put(None)


class Store:
    """An open, migrated database.  Make it with `Store.open`."""

    def __init__(self, path: str, database: peewee.SqliteDatabase, thread: StoreThread, clock: Clock) -> None:
        self.path = path
        #: histories of the sessions that the store knows
        self.sessions_dir = paths.sessions_dir(os.path.dirname(path))
        self._database = database
        self._thread = thread
        self._clock = clock
        self._is_closed = False
        self.is_read_only = False

    @classmethod
    async def open(cls, path: str, clock: Clock) -> Store:
        """Open (and make or migrate) the database at `path`, in a directory that exists.

        Raises: StoreFailedError for a file that cannot be used; StoreBusyError.
        """
        thread = StoreThread()
        database = peewee.SqliteDatabase(
            path,
            pragmas={"busy_timeout": int(_SQLITE_WAIT_S * 1000), "synchronous": "full", "foreign_keys": 0},
            autoconnect=False,
            timeout=_SQLITE_WAIT_S,
            check_same_thread=True,
        )
        store = cls(path, database, thread, clock)
        tables.bind(database)
        try:
            await store._retry(lambda: _open(database, path, clock))
        except BaseException:
            await store.close()
            raise
        return store

    @classmethod
    async def open_read_only(cls, path: str | None, clock: Clock) -> Store:
        """What is at `path`, or an empty store where nothing is or may be; no file is made or changed.

        Raises: StoreFailedError, StoreBusyError.
        """
        from mcode_exec.store.looking import look

        thread = StoreThread()
        store = cls(path or ":memory:", peewee.SqliteDatabase(None), thread, clock)
        try:
            store._database = await store._retry(lambda: look(store.path, clock))
            store.is_read_only = True
        except BaseException:
            thread.stop()
            raise
        return store

    @classmethod
    async def follow(cls, path: str, clock: Clock) -> Store | None:
        """What is at `path`, for reading while others write; None where no store is yet.

        Raises: StoreFailedError, StoreBusyError.
        """
        from mcode_exec.store.looking import follow

        thread = StoreThread()
        store = cls(path, peewee.SqliteDatabase(None), thread, clock)
        database = None
        try:
            database = await store._retry(lambda: follow(path))
        finally:
            if database is None:
                thread.stop()
        if database is None:
            return None
        store._database, store.is_read_only = database, True
        return store

    async def close(self) -> None:
        """Close the connection; safe to call twice."""
        if not self._is_closed:
            self._is_closed = True
            # Cancelled or not, the connection is closed before the thread ends: jobs keep their order.
            closing = self._thread.submit(self._database.close)
            self._thread.stop()
            await closing

    async def read(self, function: Callable[[], T]) -> T:
        """Run `function` in one consistent read."""

        def job() -> T:
            with self._database.atomic("DEFERRED"):
                return function()

        return await self._retry(job)

    async def write(self, function: Callable[[], T], patience: Patience | None = None) -> T:
        """Run `function` in one IMMEDIATE transaction: all of it or nothing.

        Cancellation: the transaction may still commit; ask again with the same ids.
        """

        def job() -> T:
            with self._database.atomic("IMMEDIATE"):
                return function()

        return await self._retry(job, patience)

    async def data_version(self) -> int:
        """A number that changes when another connection has changed the database."""

        def job() -> int:
            (version,) = self._database.execute_sql("PRAGMA data_version").fetchone()
            return int(version)

        return await self._retry(job)

    async def guarded(
        self, check: Callable[[], None], function: Callable[[], T], patience: Patience | None = None
    ) -> T:
        """Run `function` on the store thread right after `check` has passed in a read of its own.

        Only the check is tried again when the store is busy: `function` runs at most once.
        """

        def job() -> T:
            with self._database.atomic("DEFERRED"):
                check()
            return function()

        return await self._retry(job, patience)

    async def on_thread(self, function: Callable[[], T]) -> T:
        """Run `function` on the store thread, outside a transaction (file work that keeps its order)."""
        return await self._thread.submit(function)

    async def _retry(self, job: Callable[[], T], patience: Patience | None = None) -> T:
        started_s = self._clock.monotonic_s()
        attempt = 0
        while True:
            try:
                return await self._thread.submit(job)
            except (peewee.DatabaseError, peewee.InterfaceError, sqlite3.Error) as raised:
                error = trouble.first_cause(raised)
                if not trouble.is_busy(error):
                    raise trouble.failure_of(error, self.path) from error
                now_s = self._clock.monotonic_s()
                waited_s = now_s - started_s
                if waited_s >= BUSY_S or (patience is not None and patience.is_over(now_s)):
                    raise StoreBusyError(
                        f"the store {self.path} was locked by another process for {waited_s:.0f} s; "
                        "try again later"
                    ) from error
            except OSError as error:
                raise trouble.failure_of(error, self.path) from error
            except UnicodeEncodeError as error:
                # Only what somebody handed in can hold it: nothing that was read does.
                raise InvocationError(
                    f"{_shown(error)} is no text that can be kept: it holds half a surrogate pair"
                ) from error
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise StoreFailedError(
                    f"the store {self.path} holds a row that is damaged ({error}); "
                    "move it away or name another directory with --data-dir"
                ) from error
            await asyncio.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
            attempt += 1


def _shown(error: UnicodeEncodeError) -> str:
    text = error.object
    start = max(error.start - 20, 0)
    return ascii(text[start : error.end + 20])


def _open(database: peewee.SqliteDatabase, path: str, clock: Clock) -> None:
    """Connect, recognise, migrate; on the store thread.  May be tried again when busy."""
    if database.is_closed():
        # Made with our mode first: SQLite gives its side files the mode of the main one.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(descriptor, 0o600)
        size = os.fstat(descriptor).st_size
        os.close(descriptor)
        if 0 < size < _SMALLEST_PAGE:
            raise sqlite3.DatabaseError(f"file is not a database, it has {counted(size, 'byte')}")
        database.connect()
    try:
        if migrations.check_identity(database, path) == migrations.VERSION:
            return
        _migrate_exclusively(database, path, clock)
    except (McodeError, peewee.DatabaseError):
        database.close()
        raise


def _migrate_exclusively(database: peewee.SqliteDatabase, path: str, clock: Clock) -> None:
    """Migrate under a file lock; who comes second finds the work done.

    Switching to WAL does not honour the busy time-out, so it too happens under the lock.
    """
    import fcntl

    descriptor = os.open(
        reserve.lock_file(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        os.fchmod(descriptor, 0o600)  # whatever the umask
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise peewee.OperationalError("database is locked by a migration") from error
        database.execute_sql("PRAGMA journal_mode = wal")
        migrations.migrate(database, migrations.check_identity(database, path), clock.now_ms())
        fault("after-migration")
        # each migration has written pages of its own into the log: several times the size of a new store
        database.execute_sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        os.close(descriptor)
