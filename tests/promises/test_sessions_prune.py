"""`mcode sessions prune`: old sessions go, whole ones only; what runs, waits or is young stays."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_delete import rows_of
from tests.promises.test_sessions_create import create
from tests.promises.test_sessions_life import ids
from tests.promises.test_when_busy import JSON, busy_session, echo, wait_until
from tests.support.mcode import Mcode, make_repository
from tests.support.peer import Peer
from tests.support.steps import forever

DAY_MS = 24 * 3600 * 1000


def made(mcode: Mcode, peer: Peer, *flags: str, **how: Any) -> str:
    peer.script(forever(echo))
    session: str = mcode.exec("x", *JSON, *flags, **how).check().result["sessionId"]
    return session


def age(mcode: Mcode, session: str, days: int, **columns: Any) -> str:
    """Make a session so old, as if the clock had gone on."""
    with sqlite3.connect(mcode.data / "mcode.db") as store:
        store.execute(
            "UPDATE sessions SET activity_ms = activity_ms - ? WHERE id = ?", (days * DAY_MS, session)
        )
        for name, value in columns.items():
            store.execute(f"UPDATE sessions SET {name} = ? WHERE id = ?", (value, session))
    return session


def prune(mcode: Mcode, *flags: str, code: int = 0, **how: Any) -> list[tuple[str, str]]:
    run = mcode.run("sessions", "prune", "--older-than", "90d", *flags, *JSON, **how).check(code)
    return [(row["sessionId"], row["outcome"]) for row in json.loads(run.out)["sessions"]]


def test_the_old_go_and_the_young_stay_and_usage_stays(mcode: Mcode, peer: Peer) -> None:
    oldest, old, young = (age(mcode, made(mcode, peer), days) for days in (200, 91, 89))
    before = mcode.run("usage", "--by", "model", *JSON).check().out
    assert prune(mcode) == [(oldest, "deleted"), (old, "deleted")]
    assert ids(mcode, "--all") == [young]
    assert rows_of(mcode, old) == {}
    assert len(mcode.session_dirs()) == 1
    assert mcode.run("usage", "--by", "model", *JSON).check().out == before
    assert prune(mcode) == []


def test_a_dry_run_says_what_would_go_and_changes_nothing(mcode: Mcode, peer: Peer) -> None:
    old = age(mcode, made(mcode, peer, "--title", "Old one"), 100)
    size = sum(file.stat().st_size for file in mcode.session_dir(old).rglob("*") if file.is_file())
    run = mcode.run("sessions", "prune", "--older-than", "90d", "--dry-run", *JSON).check()
    (row,) = json.loads(run.out)["sessions"]
    assert row["outcome"] == "would-delete"
    assert (row["sessionId"], row["title"], row["messages"], row["bytes"]) == (old, "Old one", 2, size)
    assert f"1 session would be deleted (2 messages, {size} B of files would be freed)" in run.err
    assert ids(mcode) == [old]
    assert mcode.session_dir(old).is_dir()
    table = mcode.run("sessions", "prune", "--older-than", "90d", "--dry-run").check().out
    assert "would-delete" in table
    assert prune(mcode) == [(old, "deleted")]


def test_what_the_filters_leave_out_stays(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    plain = age(mcode, made(mcode, peer), 104)
    archived = age(mcode, made(mcode, peer, "--label", "ci=nightly"), 103, archived_ms=1)
    labelled = age(mcode, made(mcode, peer, "--label", "ci=nightly", "--label", "b=2"), 102)
    elsewhere = age(mcode, made(mcode, peer, cwd=other), 101)
    cases = {
        ("--archived",): [archived],
        ("--label", "ci=nightly"): [archived, labelled],
        ("--label", "ci=nightly", "--label", "b=2"): [labelled],
        ("--label", "ci=never"): [],
        ("--cwd", str(other)): [elsewhere],
        ("--cwd", str(tmp_path)): [],
        ("--limit", "2"): [plain, archived],
        (): [plain, archived, labelled, elsewhere],
    }
    for flags, wanted in cases.items():
        assert prune(mcode, *flags, "--dry-run") == [(one, "would-delete") for one in wanted], flags
    run = mcode.run("sessions", "prune", "--older-than", "90d", "--limit", "1").check()
    assert "more are that old" in run.err
    assert prune(mcode, "--archived") == [(archived, "deleted")]
    assert set(ids(mcode, "--all")) == {labelled, elsewhere}


def test_a_running_session_is_kept_and_told(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    age(mcode, session, 100)
    assert prune(mcode, "--dry-run") == [(session, "kept")]
    run = mcode.run("sessions", "prune", "--older-than", "90d").check()
    assert "kept (running)" in run.out
    assert "1 kept, in use" in run.err
    gate.open()
    assert first.finish().check().result["status"] == "succeeded"
    assert prune(mcode) == []  # its turn has ended just now


def test_a_session_for_which_items_wait_is_kept(mcode: Mcode, peer: Peer) -> None:
    session = age(mcode, made(mcode, peer), 100)
    mcode.run("queue", "add", session, "later").check()
    assert prune(mcode) == [(session, "kept")]
    mcode.run("queue", "pause", session).check()
    assert prune(mcode) == [(session, "kept")]
    (item,) = mcode.query("SELECT id FROM queue_items")
    mcode.run("queue", "remove", item["id"]).check()
    assert prune(mcode) == [(session, "deleted")]


def test_a_session_that_somebody_drains_is_kept(mcode: Mcode, peer: Peer) -> None:
    session = age(mcode, made(mcode, peer), 100)
    drainer = mcode.start("queue", "drain", "--session", session, "--follow")
    wait_until(lambda: mcode.query("SELECT owner FROM queue_drainers"), "nobody drains")
    assert prune(mcode) == [(session, "kept")]
    drainer.send(signal.SIGINT)
    drainer.finish()
    assert prune(mcode) == [(session, "deleted")]


def test_a_session_is_as_old_as_what_belongs_to_it(mcode: Mcode, peer: Peer) -> None:
    parent, agent, side, fork = (made(mcode, peer) for _ in range(4))
    age(mcode, parent, 100)
    age(mcode, agent, 100, parent_id=parent, session_kind="task", visibility="hidden")
    age(mcode, side, 10, parent_id=agent, session_kind="peek", visibility="hidden")
    age(mcode, fork, 10, forked_from=parent)
    assert prune(mcode) == []
    age(mcode, side, 90)
    assert prune(mcode, "--dry-run") == [(parent, "would-delete")]
    assert prune(mcode) == [(parent, "deleted")]
    assert ids(mcode, "--all") == [fork]


def test_a_sub_agent_whose_parent_is_gone_goes_for_itself(mcode: Mcode, peer: Peer) -> None:
    agent = age(mcode, made(mcode, peer), 100, parent_id="mvs_" + "0" * 32, session_kind="task")
    assert prune(mcode) == [(agent, "deleted")]


def test_a_visible_child_is_a_session_of_its_own(mcode: Mcode, peer: Peer) -> None:
    parent = age(mcode, create(mcode), 100)
    child = create(mcode, "--parent", parent)
    assert prune(mcode) == [(parent, "deleted")]
    assert ids(mcode) == [child]


@pytest.mark.parametrize(
    "point", ["after-seal", "after-files", "after-rows", "after-deletion", "after-pruned"]
)
def test_killed_in_the_middle_it_leaves_whole_sessions_and_the_next_goes_on(
    mcode: Mcode, peer: Peer, point: str
) -> None:
    sessions = [age(mcode, made(mcode, peer), days) for days in (104, 103, 102)]
    young = made(mcode, peer)
    died = mcode.run("sessions", "prune", "--older-than", "90d", env={"MCODE_FAULT": f"{point}:2"})
    assert died.code == -signal.SIGKILL
    # the third was never touched: it goes on as if nothing had been
    if point != "after-pruned":
        mcode.exec("go on", "--session", sessions[2]).check()
        assert set(ids(mcode, "--all")) == {sessions[2], young}
        age(mcode, sessions[2], 102)
    assert prune(mcode) == [(sessions[2], "deleted")]
    assert ids(mcode, "--all") == [young]
    assert len(mcode.session_dirs()) == 1


def test_two_at_once_delete_each_session_once(mcode: Mcode, peer: Peer) -> None:
    sessions = {age(mcode, made(mcode, peer), 100 + number) for number in range(6)}
    young = made(mcode, peer)
    runs = [mcode.start("sessions", "prune", "--older-than", "90d", *JSON) for _ in range(3)]
    told = [row["sessionId"] for run in runs for row in json.loads(run.finish().check().out)["sessions"]]
    assert sorted(told) == sorted(sessions)
    assert ids(mcode, "--all") == [young]


def test_files_that_cannot_be_removed_are_said_and_the_others_go(mcode: Mcode, peer: Peer) -> None:
    first, second = (age(mcode, made(mcode, peer), days) for days in (101, 100))
    directory = mcode.session_dir(first)
    with sqlite3.connect(mcode.data / "mcode.db") as store:
        store.execute("UPDATE sessions SET history_relative_dir = '../away' WHERE id = ?", (first,))
    assert prune(mcode, code=74) == [(first, "failed"), (second, "deleted")]
    assert directory.is_dir()


def test_what_lies_behind_a_link_is_neither_counted_nor_removed(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    session = age(mcode, made(mcode, peer), 100)
    outside = tmp_path / "outside"
    mcode.session_dir(session).rename(outside)
    Path(mcode.data / "sessions").joinpath(*_relative(mcode, session)).symlink_to(outside)
    run = mcode.run("sessions", "prune", "--older-than", "90d", *JSON).check()
    (row,) = json.loads(run.out)["sessions"]
    assert (row["outcome"], row["bytes"]) == ("deleted", 0)
    assert (outside / "messages.jsonl").is_file()


def _relative(mcode: Mcode, session: str) -> list[str]:
    (row,) = mcode.query("SELECT history_relative_dir AS d FROM sessions WHERE id = ?", session)
    parts: list[str] = row["d"].split("/")
    return parts


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--older-than", "90"),
        ("--older-than", "0s"),
        ("--older-than", "x"),
        ("--older-than", "1d", "--limit", "0"),
    ],
)
def test_a_time_has_to_be_named_and_nothing_goes_without_one(
    mcode: Mcode, peer: Peer, flags: tuple[str, ...]
) -> None:
    session = age(mcode, made(mcode, peer), 1000)
    mcode.run("sessions", "prune", *flags).check(2)
    assert ids(mcode) == [session]


def test_without_a_store_there_is_nothing_to_prune_and_none_is_made(mcode: Mcode) -> None:
    assert prune(mcode) == []
    assert not (mcode.data / "mcode.db").exists()


def test_a_worktree_with_work_in_it_stays_and_is_told(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    clean, dirty = (age(mcode, made(mcode, peer, "--worktree"), days) for days in (101, 100))
    worktrees = {
        row["id"]: Path(json.loads(row["run_location"])["path"])
        for row in mcode.query("SELECT id, run_location FROM sessions")
    }
    (worktrees[dirty] / "new.txt").write_text("work")
    run = mcode.run("sessions", "prune", "--older-than", "90d", *JSON).check()
    told = {row["sessionId"]: row["notice"] for row in json.loads(run.out)["sessions"]}
    assert told[clean] is None
    assert str(worktrees[dirty]) in told[dirty]
    assert str(worktrees[dirty]) in run.err
    assert (worktrees[dirty] / "new.txt").read_text() == "work"
    assert not worktrees[clean].exists()
