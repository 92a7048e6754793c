"""SQLite databases of other programs, opened so that nothing is written to them or left beside them.

One without a journal is opened immutable: no lock, no `-shm`, no recovery.
Where a write-ahead log or a hot journal lies beside it, what is committed is in
both files: then a private copy of them is opened, taken again if somebody wrote
meanwhile.  Ordinary tables only are read: a view of a stranger is a program.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from mcode_exec.importers.source import UnusableSourceError
from mcode_exec.importers.values import MAX_JSON_BYTES
from mcode_exec.paths import open_regular

_MAGIC = b"SQLite format 3\0"
_TRIES = 5  # to copy a database that is being written to
#: behind a database: what else holds its committed state
_JOURNALS = ("-wal", "-journal")

#: where private copies go; made at the first call
Scratch = Callable[[], str]


def is_sqlite(path: str) -> bool:
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


class ForeignDatabase:
    """One database, open for reading."""

    def __init__(self, path: str, scratch: Scratch) -> None:
        """Raises: UnusableSourceError."""
        self.path = path
        self._copy: str | None = None
        self._real = real = os.path.realpath(path)
        try:
            #: what an immutable database must go on being
            self._state = _state(real)
            if _journals(real):
                self._copy = real = _private_copy(real, scratch())
                uri = f"file:{urllib.parse.quote(real)}?mode=rw"
            else:
                uri = f"file:{urllib.parse.quote(real)}?mode=ro&immutable=1"
            # one thread at a time uses it, not always the same one
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_JSON_BYTES)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            self._connection.text_factory = _text
            for pragma in (
                "trusted_schema = OFF",
                "cell_size_check = ON",
                "mmap_size = 0",
                "temp_store = FILE",
            ):
                self._connection.execute(f"PRAGMA {pragma}")
            self._tables = {str(name) for (name,) in self._connection.execute(_TABLES)}
        except (OSError, sqlite3.Error) as error:
            self.remove_copy()
            raise UnusableSourceError(f"{path} cannot be read: {error}") from error
        self._columns: dict[str, frozenset[str]] = {}

    def close(self) -> None:
        self._connection.close()
        self.remove_copy()

    def remove_copy(self) -> None:
        if self._copy is not None:
            shutil.rmtree(os.path.dirname(self._copy), ignore_errors=True)
            self._copy = None

    @property
    def has_changed(self) -> bool:
        """Whether somebody has written while this was read without a copy: what was read may be of two states."""
        return self._copy is None and _state(self._real) != self._state

    def columns(self, table: str) -> frozenset[str]:
        """The columns of a table; none where there is no such table."""
        if table not in self._tables:
            return frozenset()
        if table not in self._columns:
            rows = self._connection.execute(f"PRAGMA table_info({_quoted(table)})")
            self._columns[table] = frozenset(str(row[1]) for row in rows)
        return self._columns[table]

    def has_rows(self, table: str) -> bool:
        if table not in self._tables:
            return False
        return self._connection.execute(f"SELECT 1 FROM {_quoted(table)} LIMIT 1").fetchone() is not None  # noqa: S608

    def count(self, table: str) -> int:
        if table not in self._tables:
            return 0
        (count,) = self._connection.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()  # noqa: S608
        return int(count)

    def index(self, table: str, *columns: str) -> str:
        """What to select from where `columns` are looked up, row by row: the table, or a private index of it.

        Sources differ in their indexes; without one each lookup would read the whole table.
        """
        quoted = _quoted(table)
        for _, name, *_ in self._connection.execute(f"PRAGMA index_list({quoted})").fetchall():
            info = self._connection.execute(f"PRAGMA index_info({_quoted(str(name))})").fetchall()
            if info and info[0][2] == columns[0]:
                return quoted
        ours = _quoted(f"mcode_{table}_{columns[0]}")
        names = ", ".join(_quoted(column) for column in columns)
        self._connection.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS {ours} AS SELECT rowid AS source_row, {names} FROM {quoted}"  # noqa: S608
        )
        self._connection.execute(
            f"CREATE INDEX IF NOT EXISTS temp.{_quoted(f'mcode_{table}_i')} ON {ours} ({names})"
        )
        return f"{ours} AS looked CROSS JOIN {quoted} ON {quoted}.rowid = looked.source_row"

    def rows(self, sql: str, *values: Any) -> Iterator[dict[str, Any]]:
        """Rows by the names of their columns, one at a time.  Raises: sqlite3.Error."""
        cursor = self._connection.execute(sql, values)
        names = [column[0] for column in cursor.description]
        for row in cursor:
            yield dict(zip(names, row, strict=True))


_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _journals(real: str) -> list[str]:
    """The journals that hold something, of those that may lie beside a database."""
    return [real + end for end in _JOURNALS if _size(real + end)]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _private_copy(real: str, scratch: str) -> str:
    """The path of a copy with its journals.  Raises: OSError; UnusableSourceError."""
    directory = os.path.join(scratch, os.urandom(8).hex())
    os.makedirs(directory, mode=0o700)
    target = os.path.join(directory, "copy.db")
    for _ in range(_TRIES):
        before = _state(real)
        for end in ("", *_JOURNALS):
            if end and not _size(real + end):
                continue
            with open(open_regular(real + end), "rb") as source, open(target + end, "wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
        if _state(real) == before:
            return target
        for end in _JOURNALS:
            if os.path.exists(target + end):
                os.unlink(target + end)
    shutil.rmtree(directory, ignore_errors=True)
    raise UnusableSourceError(
        f"{real} is written to all the time; close the program that it belongs to, and try again"
    )


def _state(real: str) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for end in ("", *_JOURNALS):
        try:
            status = os.stat(real + end)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return found
