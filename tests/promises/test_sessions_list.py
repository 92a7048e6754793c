"""`mcode sessions list`: the sessions that fit, by their newest turn, page by page, whatever happens meanwhile."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from mcode_exec.store.migrations import APPLICATION_ID, MIGRATIONS
from tests.promises.test_sessions_continue import change, copy_row, started
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import say, status


def listed(mcode: Mcode, *flags: str, **how: Any) -> list[str]:
    """Ids, in the order of the list."""
    run = mcode.run("sessions", "list", *flags, "--output-format", "jsonl", **how).check()
    return [json.loads(line)["id"] for line in run.out.splitlines()]


def page(mcode: Mcode, *flags: str) -> tuple[list[str], str | None]:
    document = json.loads(mcode.run("sessions", "list", *flags, "--output-format", "json").check().out)
    return [row["id"] for row in document["sessions"]], document["nextCursor"]


def test_each_filter_leaves_what_it_says_and_all_together_too(mcode: Mcode, peer: Peer) -> None:
    peer.script(
        say("yes"), status(400, {"error": {"message": "no", "type": "invalid_request_error"}}), say("yes")
    )
    plain = started(mcode)
    mcode.exec("second", "--label", "ci=nightly", "--label", "team=a", "--title", "The second").check(4)
    failed = listed(mcode)[0]
    third = started(mcode, "--label", "ci=nightly")
    old = copy_row(mcode, plain, 1, activity_ms=1_000)
    task = copy_row(mcode, plain, 2, session_kind="task", visibility="hidden", parent_id=plain)
    cron = copy_row(mcode, plain, 3, session_kind="cron")
    archived = copy_row(mcode, plain, 4, archived_ms=5)
    hidden = copy_row(mcode, plain, 5, visibility="hidden")
    away = copy_row(mcode, plain, 6, workspace="/elsewhere", activity_ms=2_000)
    made = [plain, failed, third, old, task, cron, archived, hidden, away]

    assert listed(mcode) == [third, failed, plain, old]
    assert sorted(listed(mcode, "--all")) == sorted(made)
    assert listed(mcode, "--kind", "task") == [task]
    assert listed(mcode, "--kind", "cron", "--kind", "task") == [cron, task]
    assert listed(mcode, "--archived") == [archived]
    assert listed(mcode, "--hidden", "--kind", "conversation") == [hidden]
    assert listed(mcode, "--status", "error") == [failed]
    assert listed(mcode, "--status", "started") == []
    assert listed(mcode, "--since", "1d") == [third, failed, plain]
    assert listed(mcode, "--since", "1970-01-01T00:00:01") == [third, failed, plain, old]
    assert listed(mcode, "--label", "ci=nightly") == [third, failed]
    assert listed(mcode, "--label", "ci=nightly", "--label", "team=a", "--status", "error") == [failed]
    assert listed(mcode, "--label", "ci=other") == []
    assert listed(mcode, "--all", "--since", "1970-01-01T00:00:02.000", "--label", "ci=nightly") == [
        third,
        failed,
    ]
    assert listed(mcode, "--text", "first words") == [third, plain, old]
    assert listed(mcode, "--text", "second", "--status", "error") == [failed]
    assert listed(mcode, cwd="/") == []
    assert listed(mcode, "--cwd", "/") == []
    assert listed(mcode, "--cwd", f"{mcode.workspace}/.", cwd="/") == [third, failed, plain, old]


def test_pages_lead_through_all_once_while_new_sessions_come(mcode: Mcode) -> None:
    first = started(mcode)
    # three share one instant: a page may end among them
    made = [
        first,
        *(copy_row(mcode, first, number, activity_ms=5_000 + number // 4) for number in range(1, 12)),
    ]
    whole = listed(mcode)
    assert sorted(whole) == sorted(made)
    for limit in ("1", "4", "5"):
        found: list[str] = []
        flags: tuple[str, ...] = ()
        while True:
            ids, cursor = page(mcode, "--limit", limit, *flags)
            found += ids
            if cursor is None:
                break
            assert len(ids) == int(limit)
            copy_row(mcode, first, int(limit) * 100 + len(found), activity_ms=9_000_000_000_000)
            flags = ("--before", cursor)
        assert found == whole
        change(mcode, "DELETE FROM sessions WHERE activity_ms = 9000000000000")


def test_a_page_has_50_sessions_and_at_most_200(mcode: Mcode) -> None:
    first = started(mcode)
    connection = sqlite3.connect(mcode.data / "mcode.db")
    names = [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]
    columns = ", ".join("'mvs_' || printf('%032x', value)" if name == "id" else name for name in names)
    with connection:
        connection.execute(
            "WITH RECURSIVE numbers (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM numbers WHERE value < 250)"
            f" INSERT INTO sessions SELECT {columns} FROM sessions, numbers WHERE id = ?",
            (first,),
        )
    connection.close()
    assert len(listed(mcode)) == 50
    assert len(listed(mcode, "--limit", "200")) == 200
    run = mcode.run("sessions", "list", "--limit", "201").check(2)
    assert "200" in run.err
    mcode.run("sessions", "list", "--limit", "0").check(2)
    table = mcode.run("sessions", "list")
    assert len(table.out.splitlines()) == 51
    cursor = table.err.partition("--before ")[2].strip()
    assert len(listed(mcode, "--limit", "200", "--before", cursor)) == 200
    assert not set(listed(mcode)) & set(listed(mcode, "--before", cursor))


def test_every_format_carries_the_same_and_nothing_acts_on_a_terminal(mcode: Mcode, peer: Peer) -> None:
    session = started(mcode, "--title", "red \x1b[31m alert \u202e", "--label", "k=\x1b[2J")
    forms = {
        form: mcode.run("sessions", "list", "--output-format", form).check().out
        for form in ("table", "json", "jsonl", "csv")
    }
    assert not any(
        "\x1b" in text or "\u202e" in text for form, text in forms.items() if form in ("table", "csv")
    )
    (row,) = json.loads(forms["json"])["sessions"]
    assert json.loads(forms["jsonl"]) == row
    assert row["id"] == session
    assert row["labels"] == {"k": "\x1b[2J"}
    (cells,) = csv.DictReader(io.StringIO(forms["csv"]))
    assert list(cells) == list(row)
    assert cells["id"] == session
    assert session in forms["table"]


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--before", "nonsense"), "no cursor of this list"),
        (("--before", "5:"), "no cursor of this list"),
        (("--before", "²:x"), "no cursor of this list"),
        (("--before", "9" * 30 + ":x"), "no cursor of this list"),
        (("--since", "soon"), "--since"),
        (("--kind", "sketch"), "sketch"),
        (("--status", "fine"), "fine"),
        (("--label", "nightly"), "KEY=VALUE"),
        (("--text", "..."), "no word"),
        (("--text", ""), "nothing to search for"),
        (("--all", "--cwd", "/"), "cannot be combined"),
        (("--limit", "many"), "whole number"),
    ],
)
def test_a_bad_value_is_2_in_one_sentence(mcode: Mcode, flags: tuple[str, ...], told: str) -> None:
    run = mcode.run("sessions", "list", *flags).check(2)
    assert told in run.err
    assert "Traceback" not in run.err
    assert not mcode.data.exists()


def test_secrets_in_titles_are_masked(mcode: Mcode) -> None:
    secret = "hunter2-correct-horse"
    env = {"DEPLOY_TOKEN": secret}
    started(mcode, "--title", f"deploy with {secret}", env=env)
    for form in ("table", "json", "jsonl", "csv"):
        out = mcode.run("sessions", "list", "--output-format", form, env=env).check().out
        assert "deploy with" in out
        assert secret not in out


def test_a_giant_history_is_not_read_to_list_or_to_begin(mcode: Mcode, peer: Peer) -> None:
    """Both would stop at the FIFO that stands in its place."""
    session = started(mcode)
    history = mcode.session_dir(session) / "messages.jsonl"
    history.unlink()
    os.mkfifo(history)
    assert listed(mcode) == [session]
    assert started(mcode) != session


def test_a_store_of_an_older_version_keeps_its_sessions_and_is_brought_up_to_date_once(mcode: Mcode) -> None:
    """Sixteen that open it at once; what is there is found by the new indexes too."""
    session = started(mcode, "--label", "ci=nightly")
    (row,) = mcode.query("SELECT * FROM sessions")
    _make_older_store(mcode.data / "mcode.db", row)
    runs = [
        mcode.start("sessions", "list", "--label", "ci=nightly", "--output-format", "jsonl")
        for _ in range(16)
    ]
    for run in runs:
        assert json.loads(run.finish().check().out)["id"] == session
    applied = [found["name"] for found in mcode.query("SELECT name FROM schema_migrations ORDER BY name")]
    assert applied == [name for name, _ in MIGRATIONS]


def _make_older_store(database: Path, row: dict[str, Any]) -> None:
    """A store as it was before labels and trees had indexes, with one session."""
    for path in database.parent.glob(f"{database.name}*"):
        if not path.name.endswith(".lock"):
            path.unlink()
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("CREATE TABLE schema_migrations (name TEXT PRIMARY KEY, applied_ms INTEGER NOT NULL)")
    older = [one for one in MIGRATIONS if one[0] < "0005"]
    for name, script in older:
        connection.executescript(script)
        connection.execute("INSERT INTO schema_migrations VALUES (?, 1)", (name,))
    connection.execute(f"PRAGMA user_version = {len(older)}")
    names = [found[1] for found in connection.execute("PRAGMA table_info(sessions)")]
    connection.execute(
        f"INSERT INTO sessions ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
        [row[name] for name in names],
    )
    connection.close()


def test_where_nothing_was_ever_run_a_list_is_empty_and_makes_nothing(mcode: Mcode) -> None:
    for args in (("list",), ("list", "--text", "x"), ("search", "x"), ("tree",)):
        run = mcode.run("sessions", *args).check()
        assert run.out == ""
        assert run.err.count("\n") == 1
        for form, shape in (("jsonl", ""), ("json", "{")):
            assert mcode.run("sessions", *args, "--output-format", form).check().out.startswith(shape)
    assert not Path(mcode.data).exists()
