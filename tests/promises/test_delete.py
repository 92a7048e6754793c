"""`mcode sessions delete`: sealed, stopped, gone; finished by the next start if it was killed."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_when_busy import busy_session, echo, items, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, forever, say

JSON = ("--output-format", "json")
TABLES = (
    "messages", "turn_receipts", "client_requests", "session_locks", "queue_items", "queue_pauses", "queue_wakes",
    "turn_signals",
)  # fmt: skip


def made(mcode: Mcode, peer: Peer, *flags: str) -> str:
    peer.script(call("bash", {"command": "seq 100000"}), say("done"), forever(echo))
    session: str = mcode.exec("x", *JSON, *flags).check().result["sessionId"]
    return session


def rows_of(mcode: Mcode, session: str) -> dict[str, int]:
    counts = {
        table: mcode.query(f"SELECT count(*) AS n FROM {table} WHERE session_id = ?", session)[0]["n"]
        for table in TABLES
    }
    return {table: count for table, count in counts.items() if count}


def usage(mcode: Mcode) -> Any:
    return json.loads(mcode.run("usage", "--by", "model", *JSON).check().out)


def test_everything_of_a_session_goes_and_its_usage_stays(mcode: Mcode, peer: Peer) -> None:
    session = made(mcode, peer, "--request-id", "r")
    other = made(mcode, peer)
    mcode.run("queue", "add", session, "later").check()
    before = usage(mcode)
    directory = mcode.session_dir(session)
    run = mcode.run("sessions", "delete", session, *JSON).check()
    record = {
        "sessionId": session, "outcome": "deleted", "exitCode": 0, "code": None, "message": None, "notice": None,
    }  # fmt: skip
    assert json.loads(run.out) == {
        "schemaVersion": 1,
        "type": "sessions.delete",
        "deleted": [session],
        "sessions": [record],
    }
    assert rows_of(mcode, session) == {}
    assert not directory.exists()
    assert [row["id"] for row in mcode.query("SELECT id FROM sessions")] == [other]
    assert mcode.session_dir(other).is_dir()
    assert usage(mcode) == before
    for command in (("sessions", "show"), ("sessions", "delete"), ("sessions", "watch")):
        assert "there is no session" in mcode.run(*command, session).check(4).err
    assert (
        mcode.exec("x", "--session", session, *JSON).check(4).result["error"]["code"] == "session_not_found"
    )
    fresh = mcode.exec("x", "--request-id", "r", *JSON).check().result
    assert (fresh["replayed"], fresh["attempt"]) == (False, 1)


def test_empty_days_go_with_the_last_session_of_them(mcode: Mcode, peer: Peer) -> None:
    mcode.run("sessions", "delete", made(mcode, peer)).check()
    assert list((mcode.data / "sessions").iterdir()) == []


def test_a_running_turn_is_stopped_first(mcode: Mcode, peer: Peer) -> None:
    session, first, _gate = busy_session(mcode, peer)
    waiting = mcode.start("exec", "w", "--session", session, "--when-busy", "wait", *JSON)
    wait_until(lambda: items(mcode), "no place in line")
    mcode.run("sessions", "delete", session).check()
    result = first.finish().check(4).result
    assert (result["status"], result["error"]["code"]) == ("cancelled", "TURN_ABORTED")
    assert "being deleted" in result["error"]["message"]
    assert waiting.finish().check(4).result["error"]["code"] in ("session_deleting", "session_not_found")
    assert mcode.query("SELECT id FROM sessions") == []


def test_a_turn_that_does_not_end_keeps_its_session(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    first.send(signal.SIGSTOP)
    run = mcode.run("sessions", "delete", session).check(75)
    assert "it was not deleted" in run.err
    assert mcode.query("SELECT deleting_by FROM sessions") == [{"deleting_by": None}]
    first.send(signal.SIGCONT)
    gate.open()
    assert first.finish().code in (0, 4)
    mcode.exec("go on", "--session", session).check()


@pytest.mark.parametrize("point", ["after-seal", "after-files", "after-deletion"])
def test_a_deletion_that_was_killed_is_finished_by_the_next_start(
    mcode: Mcode, peer: Peer, point: str
) -> None:
    session = made(mcode, peer)
    died = mcode.run("sessions", "delete", session, env={"MCODE_FAULT": point})
    assert died.code == -signal.SIGKILL
    refused = mcode.exec("x", "--session", session, *JSON).check(4).result["error"]["code"]
    assert refused in ("session_deleting", "session_not_found")
    mcode.run("sessions", "list").check()
    assert mcode.query("SELECT id FROM sessions") == []
    assert rows_of(mcode, session) == {}
    assert list((mcode.data / "sessions").iterdir()) == []


def test_sub_agents_go_along_and_forks_stay(mcode: Mcode, peer: Peer) -> None:
    parent, child, fork = (made(mcode, peer) for _ in range(3))
    with sqlite3.connect(mcode.data / "mcode.db") as store:
        store.execute(
            "UPDATE sessions SET parent_id = ?, session_kind = 'task' WHERE id = ?", (parent, child)
        )
        store.execute(
            "UPDATE sessions SET parent_id = ?, session_kind = 'peek' WHERE id = ?", (child, parent)
        )
        store.execute("UPDATE sessions SET forked_from = ? WHERE id = ?", (parent, fork))
        store.execute("UPDATE sessions SET origin = 'opencode' WHERE id = ?", (child,))
    run = mcode.run("sessions", "delete", parent, *JSON).check()
    assert sorted(json.loads(run.out)["deleted"]) == sorted([parent, child])
    assert [row["id"] for row in mcode.query("SELECT id FROM sessions")] == [fork]
    assert mcode.query("SELECT session_id, origin FROM tombstones") == [
        {"session_id": child, "origin": "opencode"}
    ]


def test_no_link_is_followed_out_of_the_data(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    session = made(mcode, peer)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    directory = mcode.session_dir(session)
    (directory / "link").symlink_to(outside)
    mcode.run("sessions", "delete", session).check()
    assert (outside / "kept").exists()
    other = made(mcode, peer)
    directory = mcode.session_dir(other)
    directory.rename(tmp_path / "moved")
    directory.symlink_to(tmp_path / "moved")
    run = mcode.run("sessions", "delete", other).check()
    assert f"{directory} was a link to {tmp_path / 'moved'}: the link is removed" in run.err
    assert "itself was not touched" in run.err
    assert (tmp_path / "moved" / "messages.jsonl").exists()
    assert not directory.is_symlink()


def test_a_name_that_is_no_session_keeps_no_other_one(mcode: Mcode, peer: Peer) -> None:
    sessions = [made(mcode, peer) for _ in range(2)]
    nobody = "mvs_" + "0" * 32
    run = mcode.run("sessions", "delete", nobody, *sessions, *JSON).check(4)
    told = json.loads(run.out)
    assert told["deleted"] == sessions
    assert [(one["sessionId"], one["outcome"], one["code"]) for one in told["sessions"]] == [
        (nobody, "not-found", "session_not_found"),
        *((session, "deleted", None) for session in sessions),
    ]
    assert mcode.query("SELECT id FROM sessions") == []
