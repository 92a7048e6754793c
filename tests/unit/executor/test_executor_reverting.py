"""Taking back what turns changed, and doing it again: all or nothing, and nothing that somebody else has changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mcode_exec.executor.inspect import opened
from mcode_exec.executor.reverting import Replaced, check_revert, reapply_turns, revert_turns
from mcode_exec.executor.runtime import Runtime
from mcode_exec.records.session import Session
from mcode_exec.sessions import finding
from mcode_exec.turns.maintenance import maintenance
from tests.promises.test_sessions_diff import diff, tree, turn
from tests.support.mcode import Mcode, make_repository
from tests.support.peer import Peer
from tests.support.steps import call, say

Work = Callable[[Runtime, Session], Awaitable[Any]]


def held(mcode: Mcode, work: Work) -> Any:
    """What `work` gives back, done while the only session is held, as its caller does."""

    async def run() -> Any:
        async with opened(str(mcode.data), mcode.environment()) as runtime:
            name = mcode.query("SELECT id FROM sessions ORDER BY created_ms LIMIT 1")[0]["id"]
            session = await finding.find_exact(runtime.store, name)
            async with maintenance(runtime.store, runtime.owner, session.id, runtime.clock):
                return await work(runtime, session)

    return asyncio.run(run())


def revert(mcode: Mcode, *turn_ids: str, force: bool = False) -> Replaced:
    found: Replaced = held(
        mcode, lambda runtime, session: revert_turns(runtime, session, turn_ids, force=force)
    )
    return found


def reapply(mcode: Mcode, *turn_ids: str, force: bool = False) -> Replaced:
    found: Replaced = held(
        mcode, lambda runtime, session: reapply_turns(runtime, session, turn_ids, force=force)
    )
    return found


@pytest.fixture(params=["git", "plain"])
def workspace(request: pytest.FixtureRequest, mcode: Mcode) -> Path:
    for name, data in (
        ("a.txt", b"a\n"),
        ("gone.bin", b"\0\1\xff"),
        ("run.sh", b"#!/bin/sh\n"),
        ("d/old", b"o\n"),
    ):
        path = mcode.workspace / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    (mcode.workspace / "link").symlink_to("a.txt")
    if request.param == "git":
        make_repository(mcode.workspace)
    return mcode.workspace


EVERYTHING = (
    "echo b >> a.txt; rm gone.bin; chmod +x run.sh; mv d/old d/moved; mkdir -p n/m; echo n > n/m/new;"
    " ln -sfn /etc/passwd link; ln -s a.txt another"
)


def test_everything_is_taken_back_and_done_again(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    before = tree(workspace)
    result = turn(mcode, peer, EVERYTHING)
    after = tree(workspace)
    assert before != after
    done = revert(mcode, result["turnId"])
    assert (done.is_done, done.conflicts) == (True, ())
    assert tree(workspace) == before
    assert not (workspace / "n").exists()
    assert diff(mcode, result["sessionId"])["files"] == []
    assert revert(mcode, result["turnId"]).paths == ()  # it is taken back already
    assert reapply(mcode, result["turnId"]).conflicts == ()
    assert tree(workspace) == after
    assert Path("/etc/passwd").read_bytes()  # and what a link leads to was never written


def test_several_turns_are_one(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    before = tree(workspace)
    first = turn(mcode, peer, "echo 1 >> a.txt; echo 1 > one")
    second = turn(mcode, peer, "echo 2 >> a.txt; rm one; echo 2 > two", "--session", first["sessionId"])
    after = tree(workspace)
    assert revert(mcode, second["turnId"], first["turnId"]).is_done
    assert tree(workspace) == before
    assert reapply(mcode, first["turnId"], second["turnId"]).is_done
    assert tree(workspace) == after


def test_a_file_that_has_changed_since_refuses_everything_until_it_is_forced(
    mcode: Mcode, peer: Peer, workspace: Path
) -> None:
    before = tree(workspace)
    result = turn(mcode, peer, "echo b >> a.txt; echo n > new")
    (workspace / "a.txt").write_text("mine\n")
    changed = tree(workspace)
    refused = revert(mcode, result["turnId"])
    assert not refused.is_done
    (conflict,) = refused.conflicts
    assert (conflict.path, conflict.can_force, conflict.turn_ids) == ("a.txt", True, (result["turnId"],))
    assert tree(workspace) == changed
    checked = held(mcode, lambda runtime, session: check_revert(runtime, session, [result["turnId"]]))
    assert checked == refused.conflicts
    assert revert(mcode, result["turnId"], force=True).is_done
    assert tree(workspace) == before


def test_what_a_later_turn_has_changed_is_a_conflict(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    first = turn(mcode, peer, "echo 1 >> a.txt")
    turn(mcode, peer, "echo 2 >> a.txt", "--session", first["sessionId"])
    assert [one.path for one in revert(mcode, first["turnId"]).conflicts] == ["a.txt"]


def test_what_somebody_changed_between_two_turns_is_a_conflict(
    mcode: Mcode, peer: Peer, workspace: Path
) -> None:
    first = turn(mcode, peer, "echo 1 >> a.txt")
    (workspace / "a.txt").write_text("mine\n")
    second = turn(mcode, peer, "echo 2 >> a.txt", "--session", first["sessionId"])
    assert diff(mcode, first["sessionId"])["files"][0]["changedBetween"]
    refused = revert(mcode, first["turnId"], second["turnId"])
    assert [one.reason for one in refused.conflicts] == ["something else changed it between these turns"]
    assert (workspace / "a.txt").read_text() == "mine\n2\n"


def test_nothing_is_written_through_a_link(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    outside = mcode.root / "outside"
    outside.mkdir()
    (outside / "f").write_text("theirs\n")
    result = turn(mcode, peer, "mkdir sub; echo x > sub/f; echo y > a.txt")
    (workspace / "sub" / "f").unlink()
    (workspace / "sub").rmdir()
    (workspace / "sub").symlink_to(outside)
    revert(mcode, result["turnId"], force=True)
    assert (outside / "f").read_text() == "theirs\n"
    reapply(mcode, result["turnId"], force=True)
    assert (outside / "f").read_text() == "theirs\n"
    assert os.readlink(workspace / "sub") == str(outside)


def test_a_file_of_others_in_a_directory_that_would_go_stays(
    mcode: Mcode, peer: Peer, workspace: Path
) -> None:
    result = turn(mcode, peer, "rm a.txt; mkdir a.txt; echo x > a.txt/x")
    (workspace / "a.txt" / "mine").write_text("m\n")
    refused = revert(mcode, result["turnId"])
    assert [(one.path, one.can_force) for one in refused.conflicts] == [("a.txt", False)]
    revert(mcode, result["turnId"], force=True)
    assert (workspace / "a.txt" / "mine").read_text() == "m\n"


def test_contents_that_are_gone_are_not_made_up(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    result = turn(mcode, peer, "echo b > a.txt")
    (pack,) = (mcode.session_dir() / "changes").iterdir()
    pack.write_bytes(pack.read_bytes()[:40])
    refused = revert(mcode, result["turnId"], force=True)
    assert [(one.path, one.can_force) for one in refused.conflicts] == [("a.txt", False)]
    assert (workspace / "a.txt").read_text() == "b\n"


def test_of_a_killed_turn_it_is_said_that_nothing_is_known(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    peer.script(call("bash", {"command": "echo x > x.txt"}), say("done"))
    mcode.exec("go", "--permission", "off", env={"MCODE_FAULT": "after-second-snapshot"})
    (row,) = mcode.query("SELECT turn_id FROM turn_changes")
    mcode.run("recover").check()
    refused = revert(mcode, row["turn_id"])
    assert [(one.path, one.can_force) for one in refused.conflicts] == [(None, True)]
    assert (workspace / "x.txt").exists()


def test_half_of_a_revert_is_finished_by_the_next(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    """Where a process died before it could note that it was done."""
    before = tree(workspace)
    result = turn(mcode, peer, "echo b >> a.txt; echo n > new")
    (workspace / "new").unlink()  # as far as it had come
    assert revert(mcode, result["turnId"]).conflicts == ()
    assert tree(workspace) == before


def test_the_mode_of_a_file_that_others_may_read_stays(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    (workspace / "a.txt").chmod(0o640)
    result = turn(mcode, peer, "echo b >> a.txt")
    assert revert(mcode, result["turnId"]).is_done
    assert (workspace / "a.txt").stat().st_mode & 0o777 == 0o640
