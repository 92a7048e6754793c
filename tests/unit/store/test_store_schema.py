"""The tables that peewee knows are those that the migrations make; every list query has its index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peewee
import pytest

from mcode_exec.clock import SystemClock
from mcode_exec.store import message_rows, session_rows, tables, turn_rows
from mcode_exec.store.database import Store

_TYPES = {
    peewee.TextField: "TEXT",
    peewee.BigIntegerField: "INTEGER",
    peewee.IntegerField: "INTEGER",
    peewee.AutoField: "INTEGER",
    peewee.BlobField: "BLOB",
}


def in_store(tmp_path: Path, work: Callable[[], Any]) -> Any:
    async def main() -> Any:
        store = await Store.open(str(tmp_path / "mcode.db"), SystemClock())
        try:
            return await store.write(work)
        finally:
            await store.close()

    return asyncio.run(main())


def rows(sql: str) -> list[tuple[Any, ...]]:
    return tables.tuples(tables.Sessions.raw(sql))


@pytest.mark.parametrize("table", tables.ALL_TABLES, ids=lambda table: table._meta.table_name)
def test_every_column_of_a_model_is_that_of_the_migrated_table(
    tmp_path: Path, table: type[tables.Table]
) -> None:
    meta = table._meta
    found = in_store(tmp_path, lambda: rows(f"PRAGMA table_info({meta.table_name})"))
    migrated = {name: (kind, bool(not_null), bool(key)) for _, name, kind, not_null, _, key in found}
    modelled = {}
    for field in meta.sorted_fields:
        kind = next(_TYPES[one] for one in type(field).__mro__ if one in _TYPES)
        is_key = bool(field.primary_key)
        is_row = isinstance(field, peewee.AutoField)
        modelled[field.column_name] = (kind, not field.null and not is_row, is_key)
    if meta.primary_key is False:
        migrated = {name: (kind, not_null, False) for name, (kind, not_null, _) in migrated.items()}
    assert list(modelled) == list(migrated)
    assert modelled == migrated


def test_every_table_of_the_database_has_a_model(tmp_path: Path) -> None:
    found = in_store(
        tmp_path,
        lambda: rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"),
    )
    assert {name for (name,) in found} == {table._meta.table_name for table in tables.ALL_TABLES}


class Watched:
    """Runs queries and keeps how SQLite served each of them."""

    def __init__(self) -> None:
        self.plans: list[str] = []

    def __call__(self, work: Callable[[], Any]) -> None:
        database = tables.Sessions._meta.database
        run = database.execute_sql

        def explained(sql: str, params: Any = None, *rest: Any) -> Any:
            if sql.startswith(("SELECT", "UPDATE", "DELETE")):
                plan = run("EXPLAIN QUERY PLAN " + sql, params).fetchall()
                self.plans += [f"{row[3]}   <- {sql}" for row in plan]
            return run(sql, params, *rest)

        database.execute_sql = explained
        try:
            work()
        finally:
            del database.execute_sql


def queries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for workspace in (None, "/w"):
        for before in (None, (5, "mvs_x")):
            for everything in (False, True):
                yield (
                    f"sessions of {workspace} before {before}, everything {everything}",
                    lambda w=workspace, b=before, e=everything: session_rows.page_sessions(
                        workspace=w, before=b, limit=10, everything=e
                    ),
                )
    yield "continue", lambda: session_rows.newest_conversations("/w", 8)
    yield "prefix", lambda: session_rows.find_by_prefix("mvs_00000000")
    yield "key", lambda: session_rows.find_by_key("p", "k")
    yield "started", lambda: session_rows.started_sessions(1000)
    yield "project", lambda: session_rows.find_project("git", "x")
    yield "messages after", lambda: message_rows.messages_after("s", 5, 10)
    yield "messages before", lambda: message_rows.messages_before("s", 5, 10)
    yield "newest messages", lambda: message_rows.messages_before("s", None, 10)
    yield "messages changed", lambda: message_rows.messages_changed("s", 5, 10)
    yield "last message", lambda: message_rows.last_message("s", "user")
    yield "message", lambda: message_rows.find_message("s", "m")
    yield "lock", lambda: turn_rows.find_lock("s")
    yield "receipt", lambda: turn_rows.find_receipt("t")
    yield "request", lambda: turn_rows.find_request("scope", "id")


@pytest.mark.parametrize(
    ("name", "query"), list(queries()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_list_query_is_served_by_an_index(tmp_path: Path, name: str, query: Callable[[], Any]) -> None:
    watched = Watched()
    in_store(tmp_path, lambda: watched(query))
    assert watched.plans
    for plan in watched.plans:
        assert "USING" in plan or plan.startswith("MULTI-INDEX OR"), plan
        assert "TEMP B-TREE" not in plan, plan
