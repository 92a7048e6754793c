"""A store as it stands, for who only looks: no file is made, and nothing in one is changed.

A database that is not there yet is seen as an empty one, and one of an older
schema through a migrated copy; both live in memory.
"""

from __future__ import annotations

import os
from urllib.parse import quote

import peewee

from mcode_exec.clock import Clock
from mcode_exec.errors import StoreFailedError
from mcode_exec.store import migrations, reserve, tables, trouble


def look(path: str, clock: Clock) -> peewee.SqliteDatabase:
    """The database at `path`, connected for reading by this thread.

    Raises: StoreFailedError for a file that is not ours; peewee's errors.
    """
    database = None
    if os.path.exists(path):
        try:
            database = _connected(_address(path), path)
        except peewee.OperationalError:
            if not is_whole_on_full_disk(path):
                raise
            database = _connected(unshared(path), path)
    if database is None or migrations.check_identity(database, path) != migrations.VERSION:
        database = _in_memory(database, path, clock)
    tables.bind(database)
    return database


def _connected(address: str, path: str) -> peewee.SqliteDatabase:
    """Connected, and read from once: what cannot be read is known by then."""
    database = peewee.SqliteDatabase(address, uri=True, autoconnect=False)
    database.connect()
    try:
        migrations.check_identity(database, path)
    except BaseException:
        database.close()
        raise
    return database


def is_whole_on_full_disk(path: str) -> bool:
    """Whether there is no room for SQLite's shared memory, and nothing in the log that it would be needed for."""
    try:
        has_log = os.path.getsize(path + "-wal") > 0
    except OSError:
        has_log = False
    return not has_log and trouble.is_disk_full(os.path.dirname(path))


def follow(path: str) -> peewee.SqliteDatabase | None:
    """Likewise for who looks again and again; None where there is nothing yet.

    Raises: StoreFailedError for a file that is not ours, or of an older schema; peewee's errors.
    """
    if not os.path.exists(path):
        return None
    database = peewee.SqliteDatabase(_address(path, is_followed=True), uri=True, autoconnect=False)
    database.connect()
    try:
        is_known = _is_known(database, path)
    except BaseException:
        database.close()
        raise
    if not is_known:
        database.close()
        return None
    tables.bind(database)
    return database


def check_schema(path: str) -> None:
    """Raise StoreFailedError if a newer mcode has changed the tables of the open store since; inside a read."""
    migrations.check_identity(tables.Sessions._meta.database, path)


def _is_known(database: peewee.SqliteDatabase, path: str) -> bool:
    """Whether there is a store of our schema; False where nothing was written yet."""
    version = _version(database, path)
    if 0 < version < migrations.VERSION:
        if _is_migrating(path):
            raise peewee.OperationalError("database is locked by a migration")
        version = _version(database, path)  # it may just have ended
    if 0 < version < migrations.VERSION:
        raise StoreFailedError(
            f"{path} was written by an older mcode (schema {version}, this one has {migrations.VERSION}); "
            "`mcode recover` brings it up to date"
        )
    return version > 0


def _version(database: peewee.SqliteDatabase, path: str) -> int:
    with database.atomic("DEFERRED"):  # else what is being made may look like another program's
        return migrations.check_identity(database, path)


def _is_migrating(path: str) -> bool:
    import fcntl

    try:
        descriptor = os.open(reserve.lock_file(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _address(path: str, *, is_followed: bool = False) -> str:
    # without its side files nobody has it open, and SQLite would make them only to look
    is_open = os.path.exists(path + "-wal") or os.path.exists(path + "-shm")
    # what others will write is seen through side files only; where none can be made, nobody writes either
    makes_them = is_followed and os.access(os.path.dirname(path), os.W_OK)
    return f"file:{quote(path)}?mode=ro" if is_open or makes_them else unshared(path)


def unshared(path: str) -> str:
    """A database as SQLite opens it where nobody else has it open, and no side file can be made."""
    return f"file:{quote(path)}?immutable=1"


def _in_memory(original: peewee.SqliteDatabase | None, path: str, clock: Clock) -> peewee.SqliteDatabase:
    copy = peewee.SqliteDatabase(":memory:", autoconnect=False)
    copy.connect()
    if original is not None:
        original.connection().backup(copy.connection())
        original.close()
    migrations.migrate(copy, migrations.check_identity(copy, path), clock.now_ms())
    return copy
