"""SIGKILL at every step of a fork: afterwards there is the whole fork or none, and the source as it was."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_delete_full_disk import small_disk
from tests.promises.test_fork import JSON, conversation_of_two, everything_of, run_once, words
from tests.support.mcode import Mcode, git, make_repository
from tests.support.peer import Peer
from tests.support.pictures import png
from tests.support.steps import call, say

#: in the order in which a fork passes them
STEPS = [
    "after-fork-begun",
    "after-manifest",
    "after-fork-published",
    "after-fork-files",
    "after-fork-rows",
    "after-fork-copied",
]
KILLED = -signal.SIGKILL


def source_of(mcode: Mcode, peer: Peer) -> str:
    """A session with everything that a fork takes along."""
    (mcode.workspace / "a.png").write_bytes(png())
    peer.script(
        call("bash", {"command": "seq 30000"}) + call("bash", {"command": "echo two"}),
        say("first answer"),
        say("second answer"),
    )
    session = run_once(mcode, "first prompt", "--file", "a.png")
    mcode.exec("second prompt", "--session", session).check()
    return session


def others(mcode: Mcode, session: str) -> list[dict[str, Any]]:
    return mcode.query("SELECT * FROM sessions WHERE id != ?", session)


def check_nothing_is_left(mcode: Mcode, *session_ids: str) -> None:
    """No manifest, no lock, no session, row, file, worktree or branch beside those of `session_ids`."""
    assert mcode.query("SELECT * FROM operations") == []
    assert mcode.query("SELECT * FROM session_locks") == []
    assert {row["id"] for row in mcode.query("SELECT id FROM sessions")} == set(session_ids)
    assert {row["session_id"] for row in mcode.query("SELECT DISTINCT session_id FROM messages")} <= set(
        session_ids
    )
    assert {one.name[-36:] for one in mcode.session_dirs()} == set(session_ids)
    assert mcode.query("PRAGMA integrity_check") == [{"integrity_check": "ok"}]


@pytest.mark.parametrize("point", [*STEPS, "after-fork-visible"])
def test_a_fork_that_was_killed_is_finished_by_the_next_start(mcode: Mcode, peer: Peer, point: str) -> None:
    session = source_of(mcode, peer)
    before = everything_of(mcode, session)
    mcode.run("sessions", "fork", session, env={"MCODE_FAULT": point}).check(KILLED)
    report = json.loads(mcode.run("recover", *JSON).check().out)
    (made,) = others(mcode, session)
    assert made["visibility"] == "visible"
    check_nothing_is_left(mcode, session, made["id"])
    # opening the store, of which `recover` begins with, is enough; its report names what that did
    assert report["made"] == ([] if point == "after-fork-visible" else [made["id"]])
    assert words(mcode, made["id"]) == words(mcode, session)
    assert everything_of(mcode, session) == before
    assert sorted(one.name for one in mcode.session_dir(made["id"]).rglob("*") if one.is_file()) == sorted(
        one.name for one in mcode.session_dir(session).rglob("*") if one.is_file()
    )
    peer.script(say("on"))
    mcode.exec("go on", "--session", made["id"]).check()
    assert not peer.last.violations
    assert "second answer" in peer.last.text
    assert json.loads(mcode.run("recover", *JSON).check().out)["made"] == []


@pytest.mark.parametrize("point", [*STEPS, "after-admission"])
def test_a_fork_for_a_turn_that_was_never_admitted_goes_again(mcode: Mcode, peer: Peer, point: str) -> None:
    session = source_of(mcode, peer)
    before = everything_of(mcode, session)
    mcode.exec("go on", "--fork", session, env={"MCODE_FAULT": point}).check(KILLED)
    listed = mcode.run("sessions", "list", "--all", "--output-format", "jsonl").check().events
    if point == "after-admission":
        (made,) = others(mcode, session)
        assert (made["visibility"], made["status"]) == ("visible", "interrupted")
        check_nothing_is_left(mcode, session, made["id"])
    else:
        assert [one["id"] for one in listed] == [session]
        check_nothing_is_left(mcode, session)
    assert everything_of(mcode, session) == before


def test_a_kill_between_admission_and_showing_keeps_the_fork(mcode: Mcode, peer: Peer) -> None:
    session = source_of(mcode, peer)
    mcode.exec("go on", "--fork", session, env={"MCODE_FAULT": "before-fork-visible"}).check(KILLED)
    (made,) = others(mcode, session)
    assert (made["visibility"], made["status"]) == ("hidden", "started")
    mcode.run("sessions", "list").check()
    (made,) = others(mcode, session)
    assert (made["visibility"], made["status"]) == ("visible", "interrupted")
    check_nothing_is_left(mcode, session, made["id"])
    peer.script(say("went on"))
    mcode.exec("once more", "--session", made["id"]).check()
    assert not peer.last.violations


@pytest.mark.parametrize("point", STEPS)
def test_a_kill_while_the_last_kill_is_being_mended(mcode: Mcode, peer: Peer, point: str) -> None:
    session = source_of(mcode, peer)
    mcode.run("sessions", "fork", session, env={"MCODE_FAULT": "after-fork-begun"}).check(KILLED)
    if point != "after-fork-begun":  # a mended fork does not pass its beginning
        mcode.run("sessions", "list", env={"MCODE_FAULT": point}).check(KILLED)
        mcode.run("sessions", "list", env={"MCODE_FAULT": f"{point}:1"})  # killed once more, if it comes by
    mcode.run("sessions", "list").check()
    (made,) = others(mcode, session)
    check_nothing_is_left(mcode, session, made["id"])
    assert words(mcode, made["id"]) == words(mcode, session)


@pytest.mark.parametrize("point", ["after-fork-begun", "after-fork-published", "after-fork-rows"])
def test_a_fork_whose_source_is_gone_meanwhile_goes_too(mcode: Mcode, peer: Peer, point: str) -> None:
    session = source_of(mcode, peer)
    mcode.run("sessions", "fork", session, env={"MCODE_FAULT": point}).check(KILLED)
    with sqlite3.connect(mcode.data / "mcode.db") as store:
        store.execute("DELETE FROM sessions WHERE id = ?", (session,))
    mcode.run("sessions", "list").check()
    assert mcode.query("SELECT * FROM sessions") == []
    assert mcode.query("SELECT * FROM operations") == []
    assert [one.name[-36:] for one in mcode.session_dirs()] == [session]


@pytest.mark.parametrize("point", ["after-fork-removed", "after-queue", "after-rows"])
def test_a_kill_while_a_fork_is_taken_away_again(mcode: Mcode, peer: Peer, point: str) -> None:
    session = source_of(mcode, peer)
    mcode.exec("go on", "--fork", session, env={"MCODE_FAULT": "after-fork-copied"}).check(KILLED)
    mcode.run("sessions", "list", env={"MCODE_FAULT": point}).check(KILLED)
    mcode.run("sessions", "list").check()
    check_nothing_is_left(mcode, session)


def test_what_is_being_made_is_seen_by_nobody_and_admits_no_turn(mcode: Mcode, peer: Peer) -> None:
    session = source_of(mcode, peer)
    running = mcode.start("sessions", "fork", session, env={"MCODE_FAULT": "after-fork-published"})
    running.finish().check(KILLED)
    (made,) = others(mcode, session)
    assert made["visibility"] == "hidden"
    assert mcode.query("SELECT kind, session_id FROM session_locks") == [
        {"kind": "maintenance", "session_id": made["id"]}
    ]
    assert mcode.query("SELECT phase FROM operations") == [{"phase": "placed"}]


def worktrees_of(mcode: Mcode) -> list[str]:
    """Those that git knows, but for the repository itself."""
    found = git(mcode.workspace, "worktree", "list", "--porcelain").split("\n")
    return [line.removeprefix("worktree ") for line in found if line.startswith("worktree ")][1:]


@pytest.mark.parametrize(
    "point", ["after-fork-begun", "after-worktree", "after-fork-published", "after-fork-copied"]
)
def test_a_killed_fork_for_a_turn_takes_its_worktree_along(mcode: Mcode, peer: Peer, point: str) -> None:
    make_repository(mcode.workspace)
    session = source_of(mcode, peer)
    mcode.exec("go on", "--fork", session, "--worktree", env={"MCODE_FAULT": point}).check(KILLED)
    mcode.run("sessions", "list").check()
    check_nothing_is_left(mcode, session)
    assert worktrees_of(mcode) == []
    assert git(mcode.workspace, "branch", "--list", "mcode/*") == ""
    assert not list(Path(mcode.data).glob("worktrees/*"))


@pytest.mark.parametrize("point", ["after-fork-begun", "after-worktree"])
def test_a_killed_worktree_of_a_new_session_goes_again(mcode: Mcode, peer: Peer, point: str) -> None:
    make_repository(mcode.workspace)
    mcode.exec("go", "--worktree", env={"MCODE_FAULT": point}).check(KILLED)
    mcode.run("sessions", "list").check()
    check_nothing_is_left(mcode)
    assert worktrees_of(mcode) == []
    assert not list(Path(mcode.data).glob("worktrees/*"))


@pytest.mark.parametrize("point", ["after-worktree", "after-fork-published", "after-fork-copied"])
def test_a_killed_fork_with_a_worktree_is_finished_once_that_is_there(
    mcode: Mcode, peer: Peer, point: str
) -> None:
    make_repository(mcode.workspace)
    session = conversation_of_two(mcode, peer)
    mcode.run("sessions", "fork", session, "--worktree", env={"MCODE_FAULT": point}).check(KILLED)
    mcode.run("sessions", "list").check()
    made = others(mcode, session)
    if point == "after-worktree":  # it was not noted as done: no start is kept waiting for a checkout
        assert made == []
        assert worktrees_of(mcode) == []
        return
    check_nothing_is_left(mcode, session, made[0]["id"])
    (path,) = worktrees_of(mcode)
    peer.script(call("bash", {"command": "pwd"}), say("there"))
    mcode.exec("where?", "--session", made[0]["id"]).check()
    assert path in peer.last.text


@pytest.mark.parametrize("left_bytes", [50_000, 150_000, 300_000])
def test_a_disk_that_is_too_small_for_a_fork_keeps_nothing_of_it(
    mcode: Mcode, peer: Peer, left_bytes: int
) -> None:
    with small_disk(mcode):
        peer.script(say("long " * 40_000))
        session = run_once(mcode, "p")
        mcode.run("sessions", "list").check()
        free = os.statvfs(mcode.data).f_bavail * os.statvfs(mcode.data).f_frsize
        (mcode.data / "hog").write_bytes(b"x" * (free - left_bytes))
        for command in (("sessions", "fork", session), ("exec", "go on", "--fork", session)):
            run = mcode.run(*command).check(74)
            assert "full" in run.err or "space" in run.err
        (mcode.data / "hog").unlink()
        mcode.run("sessions", "list").check()
        check_nothing_is_left(mcode, session)
        peer.script(say("on"))
        mcode.exec("go on", "--fork", session).check()
        assert not peer.last.violations
