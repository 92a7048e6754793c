"""`mcode projects`: what sessions are grouped by, and workspaces that were moved."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_when_busy import JSON, busy_session, echo
from tests.support.mcode import Mcode, git, make_repository
from tests.support.peer import Peer
from tests.support.steps import forever

Make = Callable[..., str]


@pytest.fixture
def made(mcode: Mcode, peer: Peer) -> Make:
    """Runs a turn in a directory, which is made if need be; the id of its session."""
    peer.script(forever(echo))

    def make(directory: Path, *flags: str, code: int = 0) -> str:
        directory.mkdir(parents=True, exist_ok=True)
        run = mcode.exec("words", *JSON, *flags, cwd=directory).check(code)
        session: str = run.result["sessionId"]
        return session

    return make


def projects(mcode: Mcode, *flags: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(mcode.run("projects", "list", *flags, *JSON).check().out)[
        "projects"
    ]
    return found


def relocate(mcode: Mcode, old: Path | str, new: Path | str, *flags: str, code: int = 0) -> Any:
    run = mcode.run("projects", "relocate", old, new, *flags, *JSON).check(code)
    return json.loads(run.out) if run.code == 0 else run.err


def workspaces(mcode: Mcode) -> dict[str, str]:
    return {row["id"]: row["workspace"] for row in mcode.query("SELECT id, workspace FROM sessions")}


def test_a_repository_is_one_project_wherever_it_is_checked_out(
    mcode: Mcode, tmp_path: Path, made: Make
) -> None:
    one = make_repository(tmp_path / "one")
    git(tmp_path, "clone", "-q", str(one), "two")
    made(one)
    second = made(tmp_path / "two")
    made(tmp_path / "plain")
    repository, plain = projects(mcode)
    assert (repository["kind"], repository["sessions"], repository["workspaces"]) == ("git", 2, 2)
    assert repository["identity"] == git(one, "rev-list", "--max-parents=0", "HEAD")
    assert repository["workspace"] == workspaces(mcode)[second]
    assert (plain["kind"], plain["identity"]) == ("workspace", str(tmp_path / "plain"))
    for name in (repository["id"], repository["id"][:14], str(tmp_path / "two")):
        told = json.loads(mcode.run("projects", "show", name, *JSON).check().out)
        assert told["project"]["id"] == repository["id"]
        assert [(row["workspace"], row["exists"]) for row in told["workspaces"]] == [
            (str(one), True),
            (str(tmp_path / "two"), True),
        ]
    assert json.loads(mcode.run("projects", "show", *JSON, cwd=one).check().out)["project"] == repository
    for name in ("prj_00000000", str(mcode.workspace)):
        assert "project_not_found" in mcode.run("projects", "show", name).check(4).err


def test_projects_come_page_by_page_and_empty_ones_when_asked_for(
    mcode: Mcode, tmp_path: Path, made: Make
) -> None:
    sessions = [made(tmp_path / name) for name in "cab"]
    first = json.loads(mcode.run("projects", "list", "--limit", "2", *JSON).check().out)
    rest = projects(mcode, "--after", first["nextCursor"])
    names = [row["identity"].rpartition("/")[2] for row in (*first["projects"], *rest)]
    assert names == ["a", "b", "c"]
    mcode.run("sessions", "delete", *sessions[:2]).check()
    assert [row["sessions"] for row in projects(mcode)] == [1]
    assert [row["sessions"] for row in projects(mcode, "--all")] == [0, 1, 0]
    assert "no cursor" in mcode.run("projects", "list", "--after", "x").check(2).err


def test_a_moved_workspace_goes_on_by_list_continue_key_and_request(
    mcode: Mcode, peer: Peer, tmp_path: Path, made: Make
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    keyed = made(old, "--session-key", "nightly")
    asked = made(old, "--request-id", "r1")
    newest = made(old)
    old.rename(new)
    told = relocate(mcode, old, new)
    assert (told["type"], told["sessions"], told["keys"]) == ("projects.relocate", 3, [])
    assert set(workspaces(mcode).values()) == {str(new)}
    out = mcode.run("sessions", "list", *JSON, cwd=new).check().out
    assert [row["id"] for row in json.loads(out)["sessions"]] == [newest, asked, keyed]
    assert made(new, "--continue") == newest
    # the model hears of it, once
    assert f"is now {new}; before, it was {old}" in peer.last.text
    assert made(new, "--continue") == newest
    assert peer.last.text.count("is now") == 1
    assert made(new, "--session-key", "nightly") == keyed
    again = mcode.exec("words", "--request-id", "r1", *JSON, cwd=new).check().result
    assert (again["sessionId"], again["replayed"]) == (asked, True)
    assert [row["identity"] for row in projects(mcode)] == [str(new)]
    assert made(old, "--session-key", "nightly") != keyed


def test_a_run_in_the_new_place_says_how_the_sessions_come_along(
    mcode: Mcode, tmp_path: Path, made: Make
) -> None:
    old, new = tmp_path / "the old", tmp_path / "new"
    session = made(old)
    old.rename(new)
    message = mcode.exec("x", "--session", session, *JSON, cwd=new).check(4).result["error"]["message"]
    assert f"`mcode projects relocate '{old}' {new}`" in message
    relocate(mcode, old, new)
    mcode.exec("x", "--session", session, cwd=new).check()


def test_a_moved_checkout_keeps_its_project(mcode: Mcode, tmp_path: Path, made: Make) -> None:
    old, new = make_repository(tmp_path / "old"), tmp_path / "new"
    (old / "sub").mkdir()
    top, below = made(old, "--session-key", "k"), made(old / "sub")
    (before,) = projects(mcode)
    old.rename(new)
    relocate(mcode, old, new)
    assert workspaces(mcode) == {top: str(new), below: str(new / "sub")}
    (after,) = projects(mcode)
    assert (after["id"], after["sessions"]) == (before["id"], 2)
    run = mcode.exec("x", "--session-key", "k", *JSON, cwd=new).check()
    assert run.result["sessionId"] == top
    assert "moves from" not in run.err


def test_a_directory_that_became_a_repository_is_found_by_what_it_is_now(
    mcode: Mcode, tmp_path: Path, made: Make
) -> None:
    session = made(tmp_path / "old", "--session-key", "k")
    (tmp_path / "old").rename(tmp_path / "new")
    make_repository(tmp_path / "new")
    relocate(mcode, tmp_path / "old", tmp_path / "new")
    assert made(tmp_path / "new", "--session-key", "k") == session
    assert [row["kind"] for row in projects(mcode)] == ["git"]


def test_what_lies_in_it_moves_along_and_what_is_only_called_alike_does_not(
    mcode: Mcode, tmp_path: Path, made: Make
) -> None:
    base = tmp_path / "base"
    names = ("app", "app/sub", "app/sub/deep", "app/gone", "app-2", "app.bak", "application", "ap")
    sessions = {name: made(base / name, "--session-key", "k") for name in names}
    (base / "app" / "gone").rmdir()
    (base / "app").rename(base / "moved")
    told = relocate(mcode, base / "app", base / "moved")
    assert told["sessions"] == 4
    found = workspaces(mcode)
    for name, session in sessions.items():
        is_moved = name == "app" or name.startswith("app/")
        where = base / ("moved" + name.removeprefix("app")) if is_moved else base / name
        assert found[session] == str(where), name
    for name in ("app", "app/sub", "app/sub/deep"):
        assert made(base / ("moved" + name.removeprefix("app")), "--session-key", "k") == sessions[name]


def test_a_link_in_the_old_place_and_links_on_the_way_do_not_matter(
    mcode: Mcode, tmp_path: Path, made: Make
) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    (real / "app").mkdir(parents=True)
    link.symlink_to(real)
    session = made(link / "app")
    assert workspaces(mcode)[session] == str(real / "app")
    (real / "app").rename(tmp_path / "new")
    (real / "app").symlink_to(tmp_path / "new")
    relocate(mcode, f"{link}/app/", f"{tmp_path}/x/../new/.")
    assert workspaces(mcode)[session] == str(tmp_path / "new")
    assert made(link / "app", "--continue") == session
    assert "one directory" in relocate(mcode, link / "app", tmp_path / "new", code=2)


def test_moved_there_and_back_nothing_is_told(mcode: Mcode, peer: Peer, tmp_path: Path, made: Make) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    session = made(old, "--session-key", "k")
    old.rename(new)
    relocate(mcode, old, new)
    new.rename(old)
    relocate(mcode, new, old)
    assert made(old, "--continue") == session
    assert "is now" not in peer.last.text
    assert made(old, "--session-key", "k") == session


@pytest.mark.parametrize("keeper", ["moved", "there"])
def test_a_key_that_two_sessions_would_have_stops_it_until_somebody_says_whose_it_is(
    mcode: Mcode, tmp_path: Path, made: Make, keeper: str
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    first = made(old, "--session-key", "nightly")
    other = made(old, "--session-key", "mine")
    old.rename(new)
    second = made(new, "--session-key", "nightly")
    err = relocate(mcode, old, new, code=4)
    assert "session_key_conflict" in err
    assert first in err
    assert second in err
    assert set(workspaces(mcode).values()) == {str(old), str(new)}
    told = relocate(mcode, old, new, "--keys", keeper)
    assert told["keys"] == [{"sessionKey": "nightly", "sessionId": first, "otherId": second}]
    assert made(new, "--session-key", "nightly") == (first if keeper == "moved" else second)
    assert made(new, "--session-key", "mine") == other


def test_a_request_that_is_known_in_the_new_place_stays_what_it_is_there(
    mcode: Mcode, tmp_path: Path, made: Make
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    first = made(old, "--request-id", "r")
    old.rename(new)
    second = made(new, "--request-id", "r")
    relocate(mcode, old, new)
    assert made(new, "--request-id", "r") == second
    assert made(new, "--request-id", "r", "--session", first) == first


@pytest.mark.parametrize("point", ["after-requests:2", "after-relocated:1", "after-relocated:2"])
def test_killed_in_the_middle_the_same_command_goes_on(
    mcode: Mcode, tmp_path: Path, made: Make, point: str
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    sessions = {
        name: made(old / name, "--session-key", "k", "--request-id", f"r{name}") for name in ("a", "b", "c")
    }
    old.rename(new)
    died = mcode.run("projects", "relocate", old, new, env={"MCODE_FAULT": point})
    assert died.code == -signal.SIGKILL
    relocate(mcode, old, new)
    for name, session in sessions.items():
        assert made(new / name, "--session-key", "k") == session
        again = mcode.exec("words", "--request-id", f"r{name}", *JSON, cwd=new / name).check().result
        assert (again["sessionId"], again["replayed"]) == (session, True)


def test_a_running_turn_goes_on_and_belongs_to_the_new_place_after_it(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    session, first, gate = busy_session(mcode, peer)
    new = tmp_path / "new"
    new.mkdir()
    run = mcode.run("projects", "relocate", mcode.workspace, new).check()
    assert "is still there" in run.err
    gate.open()
    assert first.finish().check().result["status"] == "succeeded"
    assert workspaces(mcode) == {session: str(new)}


def test_a_dry_run_changes_nothing(mcode: Mcode, tmp_path: Path, made: Make) -> None:
    made(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    before = workspaces(mcode)
    told = relocate(mcode, tmp_path / "old", tmp_path / "new", "--dry-run")
    assert (told["isDryRun"], told["sessions"]) == (True, 1)
    assert workspaces(mcode) == before


def test_what_cannot_be_meant_is_said_and_changes_nothing(mcode: Mcode, tmp_path: Path, made: Make) -> None:
    old = tmp_path / "old"
    made(old)
    (old / "in").mkdir()
    (tmp_path / "file").touch()
    before = workspaces(mcode)
    assert "lies in" in relocate(mcode, old, old / "in", code=2)
    assert "one directory" in relocate(mcode, old, old, code=2)
    assert "not a directory" in relocate(mcode, old, tmp_path / "nowhere", code=2)
    assert "not a directory" in relocate(mcode, old, tmp_path / "file", code=2)
    assert "no session belongs to" in relocate(mcode, tmp_path / "ol", tmp_path, code=4)
    mcode.run("projects", "relocate", "", tmp_path).check(2)
    assert workspaces(mcode) == before


def test_a_list_of_projects_is_served_by_indexes(mcode: Mcode, tmp_path: Path, made: Make) -> None:
    made(tmp_path / "a")
    with sqlite3.connect(mcode.data / "mcode.db") as store:
        for sql in (
            "SELECT workspace, COUNT(*), MAX(activity_ms) FROM sessions WHERE project_id = 'x' GROUP BY workspace",
            "SELECT id FROM sessions WHERE activity_ms < 5 AND archived_ms IS NOT NULL ORDER BY activity_ms, id",
            "SELECT id FROM sessions WHERE activity_ms < 5 ORDER BY activity_ms, id LIMIT 5",
        ):
            plan = " ".join(row[3] for row in store.execute("EXPLAIN QUERY PLAN " + sql))
            assert "USING" in plan, plan
            assert "TEMP B-TREE" not in plan, plan


def test_a_session_that_a_turn_moves_is_in_the_project_of_its_new_place(
    mcode: Mcode, tmp_path: Path, made: Make
) -> None:
    session = made(tmp_path / "one")
    (tmp_path / "two").mkdir()
    mcode.exec("x", "--session", session, "--cwd", tmp_path / "two").check()
    assert [(row["identity"], row["sessions"]) for row in projects(mcode)] == [(str(tmp_path / "two"), 1)]


def test_a_session_in_a_worktree_goes_on_there_when_git_has_been_told(
    mcode: Mcode, tmp_path: Path, made: Make
) -> None:
    old, new = make_repository(tmp_path / "old"), tmp_path / "new"
    session = made(old, "--worktree")
    (row,) = mcode.query("SELECT run_location FROM sessions")
    worktree = json.loads(row["run_location"])["path"]
    old.rename(new)
    run = mcode.run("projects", "relocate", old, new).check()
    repair = f"git -C {new} worktree repair {worktree}"
    assert repair in run.err
    git(new, "worktree", "repair", worktree)
    again = mcode.exec("x", "--continue", *JSON, cwd=new).check().result
    assert (again["sessionId"], again["worktree"]["path"]) == (session, worktree)
    assert [project["kind"] for project in projects(mcode)] == ["git"]
