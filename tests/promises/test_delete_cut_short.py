"""`mcode sessions delete` that cannot go on: nothing half done is forgotten, and nothing given up leaves a trace."""

from __future__ import annotations

import json
import signal
import sqlite3
from typing import Any

import pytest

from tests.promises.test_delete import JSON, made, rows_of
from tests.promises.test_when_busy import busy_session, items, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.running import Running
from tests.support.steps import Gate, call, say


def seals(mcode: Mcode) -> list[Any]:
    return [row["deleting_by"] for row in mcode.query("SELECT deleting_by FROM sessions")]


def make_child(mcode: Mcode, parent: str, child: str) -> None:
    with sqlite3.connect(mcode.data / "mcode.db") as store:
        store.execute(
            "UPDATE sessions SET parent_id = ?, session_kind = 'task' WHERE id = ?", (parent, child)
        )


def put_away(mcode: Mcode) -> None:
    """The year's directory becomes a link: nothing below it is removed."""
    (year,) = (mcode.data / "sessions").iterdir()
    year.rename(mcode.root / "away")
    year.symlink_to(mcode.root / "away")


def put_back(mcode: Mcode) -> None:
    (year,) = (mcode.data / "sessions").iterdir()
    year.unlink()
    (mcode.root / "away").rename(year)


def test_a_deletion_that_is_given_up_leaves_the_turn_and_every_session_as_they_were(
    mcode: Mcode, peer: Peer
) -> None:
    child = made(mcode, peer)
    session, first, gate = busy_another(mcode, peer)
    make_child(mcode, session, child)
    first.send(signal.SIGSTOP)
    mcode.run("sessions", "delete", session).check(75)
    assert seals(mcode) == [None, None]
    assert mcode.query("SELECT kind FROM session_locks") == [{"kind": "turn"}]
    gate.open()
    first.send(signal.SIGCONT)
    first.finish().check()
    mcode.exec("go on", "--session", child).check()


def busy_another(mcode: Mcode, peer: Peer) -> tuple[str, Running, Gate]:
    from tests.promises.test_when_busy import echo
    from tests.support.steps import forever, gated

    gate = Gate()
    peer.script(gated(say("first"), gate), forever(echo))
    running = mcode.start("exec", "begin", *JSON)
    gate.wait_reached()
    (row,) = mcode.query("SELECT session_id AS id FROM session_locks WHERE kind = 'turn'")
    written = "SELECT id FROM messages WHERE session_id = ?"
    wait_until(lambda: mcode.query(written, row["id"]), "the prompt's rows are not written")
    return row["id"], running, gate


def test_a_killed_deletion_stays_sealed_while_its_turn_goes_on_and_is_finished_behind_it(
    mcode: Mcode, peer: Peer
) -> None:
    session, first, _gate = busy_session(mcode, peer)
    first.send(signal.SIGSTOP)
    died = mcode.run("sessions", "delete", session, env={"MCODE_FAULT": "after-seal"})
    assert died.code == -signal.SIGKILL
    mcode.run("sessions", "list").check()
    assert mcode.exec("x", "--session", session, *JSON).check(4).result["error"]["code"] == "session_deleting"
    assert seals(mcode) != [None]
    first.send(signal.SIGCONT)
    assert first.finish().check(4).result["error"]["code"] == "TURN_ABORTED"
    mcode.run("sessions", "list").check()
    assert mcode.query("SELECT id FROM sessions") == []


def test_files_that_cannot_be_removed_are_said_and_keep_the_session_sealed(mcode: Mcode, peer: Peer) -> None:
    session = made(mcode, peer)
    put_away(mcode)
    run = mcode.run("sessions", "delete", session).check(74)
    assert "is no directory" in run.err
    assert session in run.err
    (year,) = (mcode.data / "sessions").iterdir()
    assert str(year) in run.err
    assert mcode.exec("x", "--session", session, *JSON).check(4).result["error"]["code"] == "session_deleting"
    assert mcode.exec("x", "--continue", *JSON).check(4).result["error"]["code"] == "session_not_found"
    assert list((mcode.root / "away").rglob("messages.jsonl"))
    put_back(mcode)
    finished = mcode.run("sessions", "delete", session).check()  # its start has finished it
    assert f"session {session} is deleted" in finished.err
    assert mcode.query("SELECT id FROM sessions") == []
    assert list((mcode.data / "sessions").iterdir()) == []


def test_a_process_that_could_not_finish_a_deletion_is_in_nobodys_way(mcode: Mcode, peer: Peer) -> None:
    session = made(mcode, peer)
    put_away(mcode)
    mcode.run("sessions", "delete", session).check(74)
    (mcode.data / "sessions" / "kept").mkdir()
    _, long, gate = busy_another(mcode, peer)
    (mcode.data / "sessions" / "kept").rmdir()
    link = next(one for one in (mcode.data / "sessions").iterdir() if one.is_symlink())
    link.unlink()
    (mcode.root / "away").rename(link)
    mcode.run("sessions", "list").check()
    assert mcode.query("SELECT id FROM sessions WHERE id = ?", session) == []
    gate.open()
    long.finish().check()


def test_what_was_deleted_is_said_although_the_next_one_is_busy(mcode: Mcode, peer: Peer) -> None:
    idle = made(mcode, peer)
    session, first, gate = busy_another(mcode, peer)
    first.send(signal.SIGSTOP)
    run = mcode.run("sessions", "delete", idle, session, *JSON).check(75)
    told = json.loads(run.out)
    assert told["deleted"] == [idle]
    assert [(one["sessionId"], one["outcome"], one["exitCode"]) for one in told["sessions"]] == [
        (idle, "deleted", 0),
        (session, "kept", 75),
    ]
    assert session in told["sessions"][1]["message"]
    first.send(signal.SIGCONT)
    gate.open()
    first.finish()


def test_a_session_and_its_sub_agent_may_be_named_together(mcode: Mcode, peer: Peer) -> None:
    parent, child = made(mcode, peer), made(mcode, peer)
    make_child(mcode, parent, child)
    run = mcode.run("sessions", "delete", parent, child, *JSON).check()
    assert sorted(json.loads(run.out)["deleted"]) == sorted([parent, child])


@pytest.mark.parametrize("point", ["after-stop", "after-queue", "after-rows"])
def test_a_kill_at_any_point_is_finished_by_the_next_start(mcode: Mcode, peer: Peer, point: str) -> None:
    session = made(mcode, peer)
    child = made(mcode, peer)
    make_child(mcode, session, child)
    mcode.run("queue", "add", session, "later").check()
    died = mcode.run("sessions", "delete", session, env={"MCODE_FAULT": point})
    assert died.code == -signal.SIGKILL
    mcode.run("recover").check()
    assert mcode.query("SELECT id FROM sessions") == []
    assert rows_of(mcode, session) == rows_of(mcode, child) == {}
    assert list((mcode.data / "sessions").iterdir()) == []


def test_who_stands_in_line_learns_that_the_session_is_deleted(mcode: Mcode, peer: Peer) -> None:
    session, first, _gate = busy_session(mcode, peer)
    waiting = [
        mcode.start("exec", f"w{n}", "--session", session, "--when-busy", "wait", *JSON) for n in range(3)
    ]
    wait_until(lambda: len(items(mcode)) == 3, "no places in line")
    for one in waiting:
        one.send(signal.SIGSTOP)  # they hear of it only when everything is gone
    mcode.run("sessions", "delete", session).check()
    for one in waiting:
        one.send(signal.SIGCONT)
    assert [one.finish().check(4).result["error"]["code"] for one in waiting] == ["session_deleting"] * 3
    first.finish().check(4)
    assert mcode.query("SELECT * FROM queue_removals") == []


def test_a_turn_may_delete_its_own_session(mcode: Mcode, peer: Peer) -> None:
    # its command ends with the turn that it stops, and the next start goes on from there
    command = f'{" ".join(mcode.command)} sessions delete "$(cat id)" --data-dir {mcode.data}'
    peer.script(call("bash", {"command": command}), say("never"))
    run = mcode.exec("x", "--session-id-file", "id", "--permission", "full", *JSON).check(4)
    assert run.result["error"]["code"] == "TURN_ABORTED"
    mcode.run("recover").check()
    assert mcode.query("SELECT id FROM sessions") == []


def test_ten_deleters_of_one_session_are_one(mcode: Mcode, peer: Peer) -> None:
    session, first, _gate = busy_session(mcode, peer)
    deleters = [mcode.start("sessions", "delete", session) for _ in range(10)]
    codes = [one.finish().code for one in deleters]
    assert sorted(codes) == [0] + [4] * 9
    first.finish().check(4)
    assert mcode.query("SELECT id FROM sessions") == []
