"""The tables that peewee knows are those that the migrations make; every list query has its index."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peewee
import pytest

from mcode_exec.clock import SystemClock
from mcode_exec.records.finding import SessionFilter
from mcode_exec.store import (
    change_rows,
    listing_rows,
    message_rows,
    migrations,
    queue_rows,
    queue_state_rows,
    searched_rows,
    session_rows,
    signal_rows,
    tables,
    turn_rows,
)
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


#: steps of a plan that read no table themselves
_NO_TABLE = ("MULTI-INDEX OR", "SCAN CONSTANT ROW", "SCALAR SUBQUERY", "CORRELATED SCALAR SUBQUERY")


class Watched:
    """Runs queries and keeps how SQLite served each of them."""

    def __init__(self) -> None:
        self.plans: list[str] = []

    def __call__(self, work: Callable[[], Any]) -> None:
        database = tables.Sessions._meta.database
        run = database.execute_sql

        def explained(sql: str, params: Any = None, *rest: Any) -> Any:
            if sql.lstrip().startswith(("SELECT", "UPDATE", "DELETE")):
                plan = run("EXPLAIN QUERY PLAN " + sql, params).fetchall()
                self.plans += [f"{row[3]}   <- {sql}" for row in plan]
            return run(sql, params, *rest)

        database.execute_sql = explained
        try:
            work()
        finally:
            del database.execute_sql


def queries() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from list_queries()
    yield "continue", lambda: session_rows.newest_conversations("/w", 8)
    yield "prefix", lambda: session_rows.find_by_prefix("mvs_00000000")
    yield "key", lambda: session_rows.find_by_key("p", "k")
    yield "started", lambda: session_rows.unheld_started(1000)
    yield "project", lambda: session_rows.find_project("git", "x")
    yield "messages after", lambda: message_rows.messages_after("s", 5, 10)
    yield "messages before", lambda: message_rows.messages_before("s", 5, 10)
    yield "newest messages", lambda: message_rows.messages_before("s", None, 10)
    yield "changes of sessions", lambda: session_rows.changes_after(5, 10)
    yield "newest change", session_rows.newest_change
    yield "oldest change", session_rows.oldest_change
    yield "messages behind", lambda: message_rows.messages_behind("s", 5, 10, 1000)
    yield "message at", lambda: message_rows.message_at("s", 5, 1)
    yield "row before", lambda: message_rows.newest_row("s", before=5)
    yield "turns after", lambda: turn_rows.turns_after("s", 5, 10)
    yield "turn at", lambda: turn_rows.turn_at("s", 5)
    yield "turn named", lambda: turn_rows.turn_named("t")
    yield "newest turn", lambda: turn_rows.newest_sequence("s")
    yield "last message", lambda: message_rows.last_message("s", "user")
    yield "message", lambda: message_rows.find_message("s", "m")
    yield "lock", lambda: turn_rows.find_lock("s")
    yield "locks", lambda: turn_rows.page_locks("s", 1000)
    yield "newest receipts", lambda: turn_rows.newest_receipts("s", None, 50)
    yield "receipts before", lambda: turn_rows.newest_receipts("s", 5, 50)
    yield "changes", lambda: change_rows.find_changes("t")
    yield "changes of a session", lambda: change_rows.changes_of_session("s", 10)
    yield "turns beside", lambda: change_rows.beside("t", 5)
    yield "busy workspaces", change_rows.busy_workspaces
    yield "old changes", lambda: change_rows.old_changes(5, 250)
    yield "count of old changes", lambda: change_rows.count_old(5)
    yield "turns without changes", lambda: change_rows.without_row(["t"], 5)
    yield "named turns of a session", lambda: change_rows.turns_named("s", "turn_")
    yield "receipt", lambda: turn_rows.find_receipt("t")
    yield "request", lambda: turn_rows.find_request("scope", "id")
    yield from queue_queries()


FILTERS: dict[str, dict[str, Any]] = {
    "everything": {},
    "as usual": {"excluded_kinds": ("cron",), "is_archived": False, "is_hidden": False, "is_used": True},
    "of kinds": {"kinds": ("task", "peek")},
    "of a status": {"statuses": ("error",)},
    "of a status or deleting": {"statuses": ("started", "deleting")},
    "archived": {"is_archived": True},
    "hidden": {"is_hidden": True},
    "since": {"since_ms": 5},
    "labelled": {"labels": (("k", "v"), ("k2", "v2"))},
    "by everything": {
        "kinds": ("task",),
        "statuses": ("error", "deleting"),
        "is_archived": True,
        "is_hidden": True,
        "since_ms": 5,
        "labels": (("k", "v"),),
        "is_used": True,
    },
}


def list_queries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, values in FILTERS.items():
        for workspace in (None, "/w"):
            wanted = SessionFilter(workspace=workspace, **values)
            for before in (None, (5, "mvs_x")):
                yield (
                    f"sessions {name} of {workspace} before {before}",
                    lambda w=wanted, b=before: listing_rows.page_positions(w, b, 10),
                )
            yield f"sessions {name} of {workspace} by id", lambda w=wanted: listing_rows.of_ids(w, ["a", "b"])
            yield (
                f"positions {name} of {workspace} by id",
                lambda w=wanted: listing_rows.positions_of(w, ["a", "b"]),
            )
    yield "label", lambda: listing_rows.ids_with_label("k", "v", 10)
    yield "children", lambda: listing_rows.children("mvs_x", (5, "mvs_y"), 10)
    yield "above", lambda: listing_rows.above_of(["mvs_x", "mvs_y"])
    yield "prompts", lambda: message_rows.user_messages_before("s", None, 10)
    yield "prompts before", lambda: message_rows.user_messages_before("s", 5, 10)
    yield "first prompt", lambda: message_rows.first_user_message("s")
    yield "newest message of all", searched_rows.newest_message
    yield (
        "numbers",
        lambda: searched_rows.is_of_this_store(searched_rows.Marks(change=5, row=5, message_id="m")),
    )
    yield "message id", lambda: searched_rows.message_id_at(5)
    yield "stamps", lambda: searched_rows.page_stamps("mvs_x", 10)
    yield "stamps by id", lambda: searched_rows.stamps_of(["mvs_x", "mvs_y"])
    yield "existing", lambda: searched_rows.existing(["mvs_x", "mvs_y"])
    yield "running", lambda: searched_rows.started(10)
    yield "messages of all behind", lambda: searched_rows.sessions_behind(5, 10)
    yield "revisions", lambda: searched_rows.revisions("s")
    yield "messages at", lambda: list(searched_rows.messages_at([1, 2]))


def queue_queries() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "item", lambda: queue_rows.find_item("qi")
    yield "item by prefix", lambda: queue_rows.find_by_prefix("qi_0")
    yield "item by turn", lambda: queue_rows.find_by_turn("t")
    yield "item by key", lambda: queue_rows.find_by_dedupe_key("s", "k")
    yield "any items", lambda: queue_rows.has_items("s")
    yield "page of items", lambda: queue_rows.page_items("s", after=5, limit=10)
    yield "page of all items", lambda: queue_rows.page_all_items(after=5, limit=10)
    yield "line", lambda: queue_rows.line("s")
    yield "first delivered", lambda: queue_rows.first_delivered("s")
    yield "first queued", lambda: queue_rows.first_queued("s")
    yield "claimed", lambda: queue_rows.find_claimed("s")
    yield "waiters", lambda: queue_rows.waiters("s", None)
    yield "waiters before", lambda: queue_rows.waiters("s", 5)
    yield "delivered before", lambda: queue_rows.has_delivered_before("s", 5, 10)
    yield "items counted", lambda: queue_rows.count_items("s")
    yield "delivered counted", lambda: queue_rows.count_delivered("s")
    yield "place counted", lambda: queue_rows.place_of("s", 5)
    yield "item changed", lambda: queue_rows.update_item("qi", position=5)
    yield "claim", lambda: queue_rows.claim_item("qi", claim_owner="o")
    yield "item deleted", lambda: queue_rows.delete_item("qi")
    yield "delivered by turn", lambda: queue_rows.delete_by_turn("t")
    yield "delivered cleared", lambda: queue_rows.delete_delivered("s")
    yield "all claimed", lambda: queue_rows.claimed_items("s", 1000)
    yield "all waiting", lambda: queue_state_rows.waiting_items(("s", 5), 1000)
    yield "all drainers", lambda: queue_state_rows.all_drainers(("s", "o"), 1000)
    yield "all removals", lambda: queue_state_rows.old_removals("qi", 1000)
    yield "expired", lambda: queue_rows.expired_items(5, 1000)
    yield "sessions with items", lambda: queue_rows.sessions_with_items("s", 10)
    yield "pause", lambda: queue_state_rows.find_pause("s")
    yield "unpaused", lambda: queue_state_rows.delete_pause("s")
    yield "drainers", lambda: queue_state_rows.drainers("s")
    yield "drainer left", lambda: queue_state_rows.delete_drainer("s", "o")
    yield "woken", lambda: queue_state_rows.wake("s")
    yield "wake", lambda: queue_state_rows.find_wake("s")
    yield "removal", lambda: queue_state_rows.find_removal("qi")
    yield "removal taken", lambda: queue_state_rows.delete_removal("qi")
    yield "queue deleted", lambda: queue_state_rows.delete_all("s")
    yield "signal by key", lambda: signal_rows.find_by_key("s", "p", "k")
    yield "signals of a turn", lambda: signal_rows.pending("t")
    yield "steers of a turn", lambda: signal_rows.pending("t", "steer")
    yield "signal consumed", lambda: signal_rows.consume_message("m", 5)
    yield "signal settled", lambda: signal_rows.settle_signal("sig", "dropped", 5)
    yield "all pending signals", lambda: signal_rows.page_pending(5, 1000)
    yield "signals deleted", lambda: signal_rows.delete_all("s")


@pytest.mark.parametrize(
    ("name", "query"), list(queries()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_list_query_is_served_by_an_index(tmp_path: Path, name: str, query: Callable[[], Any]) -> None:
    watched = Watched()
    in_store(tmp_path, lambda: watched(query))
    assert watched.plans
    for plan in watched.plans:
        # what SQLite keeps itself has a row for each table
        is_small = "json_each" in plan or plan.startswith("SCAN sqlite_sequence")
        assert "USING" in plan or plan.startswith(_NO_TABLE) or is_small, plan
        assert "TEMP B-TREE" not in plan, plan


def test_a_list_is_entered_where_its_page_begins_not_at_its_top(tmp_path: Path) -> None:
    watched = Watched()
    in_store(tmp_path, lambda: watched(lambda: listing_rows.page_positions(SessionFilter(), (5, "x"), 10)))
    assert "SEARCH t1 USING COVERING INDEX sessions_activity (activity_ms<?)" in watched.plans[0]


@pytest.mark.parametrize(
    ("index", "query"),
    [
        ("sessions_continue", lambda: session_rows.newest_conversations("/w", 8)),
        ("messages_prompts", lambda: message_rows.user_messages_before("s", 5, 10)),
        ("sessions_tree", lambda: listing_rows.children("mvs_x", (5, "mvs_y"), 10)),
        ("sessions_started", lambda: searched_rows.started(10)),
    ],
)
def test_a_partial_index_serves_the_query_that_it_is_there_for(
    tmp_path: Path, index: str, query: Callable[[], Any]
) -> None:
    watched = Watched()
    in_store(tmp_path, lambda: watched(query))
    assert f"USING INDEX {index} " in watched.plans[0]


def test_labels_are_found_whenever_and_however_they_came(tmp_path: Path) -> None:
    """Those of a store that was made before labels had a table of their own, too."""
    connection = sqlite3.connect(tmp_path / "mcode.db", isolation_level=None)
    connection.execute(f"PRAGMA application_id = {migrations.APPLICATION_ID}")
    connection.execute("CREATE TABLE schema_migrations (name TEXT PRIMARY KEY, applied_ms INTEGER)")
    for _, script in migrations.MIGRATIONS[:4]:
        connection.executescript(script)
    connection.execute("PRAGMA user_version = 4")
    names = [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]
    nullable = {row[1] for row in connection.execute("PRAGMA table_info(sessions)") if not row[3]}
    labels = ('{"k":"v","n":"1"}', "{}", "no json", '{"k":"v"}')
    for number, text in enumerate(labels):
        values = [text if name == "labels" else None if name in nullable else "0" for name in names]
        values[0] = f"old{number}"
        connection.execute(f"INSERT INTO sessions VALUES ({', '.join('?' * len(names))})", values)
    connection.close()

    def found(label: str, value: str) -> list[str]:
        return sorted(listing_rows.ids_with_label(label, value, 10))

    def work() -> None:
        assert found("k", "v") == ["old0", "old3"]
        assert found("n", "1") == ["old0"]
        session_rows.update_session("old0", labels={"k": "w"})
        session_rows.update_session("old1", labels={"k": "v"})
        tables.Sessions.delete().where(tables.Sessions.id == "old3").execute()
        assert found("k", "v") == ["old1"]
        assert found("k", "w") == ["old0"]
        assert found("n", "1") == []

    in_store(tmp_path, work)
