"""Statements that are rendered once: peewee takes longer to write a query down than SQLite to run it.

A statement is built by a function of marks, one for each value that differs from
call to call; what it renders to is kept for the life of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mcode_exec.store.tables import Sessions

#: stand in for values while a query is rendered; nothing that is ever stored looks like them
_TEXT, _INTEGER, _BLOB = "\0mark {}", -9_100_000_000_000_000_000, b"\0mark %d"


class Statement:
    """One query of one shape; `kinds` are the types of its values, in the order of `build`'s parameters."""

    def __init__(self, build: Callable[..., Any], *kinds: type) -> None:
        self._build = build
        self._kinds = kinds
        self._sql = ""
        #: for each parameter of the SQL the number of the value, or None and the constant
        self._parameters: list[tuple[int | None, Any]] = []

    def _render(self) -> None:
        marks = [_mark(kind, number) for number, kind in enumerate(self._kinds)]
        sql, parameters = self._build(*marks).sql()
        places = {mark: number for number, mark in enumerate(marks)}
        for value in parameters:
            plain = bytes(value) if isinstance(value, memoryview) else value
            number = places.get(plain) if isinstance(plain, str | int | bytes) else None
            self._parameters.append((number, None if number is not None else value))
        self._sql = sql

    def run(self, *values: Any) -> Any:
        """The cursor, after the statement has run."""
        if not self._sql:
            self._render()
        parameters = [constant if number is None else values[number] for number, constant in self._parameters]
        return Sessions._meta.database.execute_sql(self._sql, parameters)

    def count(self, *values: Any) -> int:
        """How many rows it changed."""
        return int(self.run(*values).rowcount)

    def run_each(self, rows: Iterable[Sequence[Any]]) -> None:
        """Run it for each of many rows of values, without a way back through peewee for each; in a transaction."""
        if not self._sql:
            self._render()
        places = self._parameters
        Sessions._meta.database.connection().executemany(
            self._sql,
            ([constant if number is None else row[number] for number, constant in places] for row in rows),
        )

    def tuples(self, *values: Any) -> list[tuple[Any, ...]]:
        return list(self.run(*values).fetchall())

    def dicts(self, *values: Any) -> list[dict[str, Any]]:
        """The rows by the names of their columns."""
        cursor = self.run(*values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def first(self, *values: Any) -> dict[str, Any] | None:
        rows = self.dicts(*values)
        return rows[0] if rows else None

    def exists(self, *values: Any) -> bool:
        return self.run(*values).fetchone() is not None


def _mark(kind: type, number: int) -> Any:
    if kind is str:
        return _TEXT.format(number)
    if kind is int:
        return _INTEGER - number
    return _BLOB % number


class Updates:
    """Updates of any columns of one row: a statement for each set of columns that was ever changed."""

    def __init__(
        self, build: Callable[[dict[str, Any], Any], Any], key: type, kind_of: Callable[[str], type]
    ) -> None:
        self._build = build
        self._key = key
        self._kind_of = kind_of
        self._statements: dict[tuple[str, ...], Statement] = {}

    def count(self, key: Any, changes: dict[str, Any]) -> int:
        """Set the columns where the key is `key`; how many rows that changed."""
        names = tuple(changes)
        statement = self._statements.get(names)
        if statement is None:
            statement = self._statements[names] = self._statement(names)
        return statement.count(key, *changes.values())

    def _statement(self, names: Sequence[str]) -> Statement:
        def build(key: Any, *values: Any) -> Any:
            return self._build(dict(zip(names, values, strict=True)), key)

        return Statement(build, self._key, *map(self._kind_of, names))
