"""SIGKILL at every commit point and at random: the next run works, nothing acknowledged is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, call, drip, gated, hang, say
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES

#: every point, the later passes of those that a turn passes several times
POINTS = [
    "after-migration",
    "after-session",
    "after-admission",
    "after-opening",
    "after-manifest",
    "after-prompt",
    *(
        f"{point}:{count}"
        for point in ("before-append", "after-append", "after-rows")
        for count in (1, 2, 3, 4, 5)
    ),
    "before-settlement",
    "after-settlement",
]

TWO_CALLS = call("bash", {"command": "echo one"}) + call("bash", {"command": "echo two"})


def lines_of(mcode: Mcode) -> list[bytes]:
    """The whole lines of the only history; none before there is one."""
    found = list((mcode.data / "sessions").glob("*/*/*/*/messages.jsonl"))
    return found[0].read_bytes().split(b"\n")[:-1] if found else []


def check_store(mcode: Mcode) -> None:
    """The store and the history agree, and nothing is left over."""
    assert mcode.query("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    assert mcode.query("SELECT * FROM session_locks") == []
    assert mcode.query("SELECT * FROM turn_receipts WHERE settled_ms IS NULL") == []
    assert mcode.query("SELECT * FROM sessions WHERE status = 'started'") == []
    history = mcode.history()
    shown = [line["id"] for line in history[1:] if line["message"]["role"] != "tool"]
    assert [row["id"] for row in mcode.query("SELECT id FROM messages ORDER BY row")] == shown
    for row in mcode.query("SELECT data FROM messages WHERE role = 'assistant'"):
        parts = json.loads(row["data"])["parts"]
        assert [
            part for part in parts if part["type"] == "tool" and part["state"]["status"] == "pending"
        ] == []
    answers = [line["id"] for line in history[1:] if line["message"]["role"] == "assistant"]
    counted = [
        row["message_id"] for row in mcode.query("SELECT message_id FROM token_usage WHERE kind = 'answer'")
    ]
    assert sorted(counted) == sorted(answers)


@pytest.mark.sample(10)
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_this_point_leaves_a_session_that_goes_on(tmp_path: Path, peer: Peer, point: str) -> None:
    # each point under one of the formats, all three in turn
    api = (ANTHROPIC, CHAT, RESPONSES)[POINTS.index(point) % 3]
    mcode = Mcode(tmp_path, peer, api=api)
    mcode.may_leave_processes = True
    try:
        peer.script(TWO_CALLS, say("answered"))
        died = mcode.exec("the prompt", "--session-key", "k", env={"MCODE_FAULT": point})
        assert died.code == -signal.SIGKILL, died.err
        before = lines_of(mcode)
        peer.script(say("went on"))
        run = mcode.exec("go on", "--session-key", "k", "--output-format", "json").check()
        assert run.result["output"] == "went on"
        assert not peer.last.violations
        after = lines_of(mcode)
        assert after[: len(before)] == before
        if len(before) > 1:
            assert "the prompt" in peer.last.text
        assert len(mcode.query("SELECT id FROM sessions")) == 1
        check_store(mcode)
        text = peer.last.text
        calls_without_result = [
            line for line in mcode.messages() if line["role"] == "tool" and "interrupted" in json.dumps(line)
        ]
        told = text.count("interrupted: the process stopped") + text.count("not run: the process stopped")
        assert len(calls_without_result) == told
    finally:
        mcode.close()


@pytest.mark.parametrize("point", ["before-append:2", "after-append:3", "after-rows:4"])
def test_the_status_after_a_kill_is_interrupted_and_then_idle(
    mcode: Mcode, peer: Peer, api: str, point: str
) -> None:
    peer.script(say("first"), TWO_CALLS, say("answered"))
    session_id = mcode.exec("begin", "--output-format", "json").check().result["sessionId"]
    mcode.exec("--session", session_id, "more", env={"MCODE_FAULT": point}).check(-signal.SIGKILL)
    assert mcode.query("SELECT status FROM sessions") == [{"status": "started"}]
    # looking is enough to notice the death
    listed = mcode.run("sessions", "list", "--output-format", "jsonl").check()
    assert json.loads(listed.out.splitlines()[0])["status"] == "interrupted"
    assert mcode.query("SELECT status FROM sessions") == [{"status": "interrupted"}]
    assert mcode.query("SELECT outcome, reason FROM turn_receipts ORDER BY sequence DESC LIMIT 1") == [
        {"outcome": "failed", "reason": "process-restart"}
    ]
    peer.script(say("went on"))
    mcode.exec("--session", session_id, "go on").check()
    assert mcode.query("SELECT status FROM sessions") == [{"status": "idle"}]
    assert "begin" in peer.last.text
    check_store(mcode)


@pytest.mark.parametrize(
    "point", ["after-opening", "before-append", "after-append", "after-rows", "before-settlement"]
)
def test_a_kill_while_the_last_kill_is_being_repaired(mcode: Mcode, peer: Peer, point: str) -> None:
    peer.script(TWO_CALLS, say("answered"))
    mcode.exec("the prompt", "--session-key", "k", env={"MCODE_FAULT": "after-append:2"}).check(
        -signal.SIGKILL
    )
    for _ in range(3):
        peer.script(say("again"))
        mcode.exec("go on", "--session-key", "k", env={"MCODE_FAULT": point}).check(-signal.SIGKILL)
    peer.script(say("at last"))
    mcode.exec("go on", "--session-key", "k").check()
    assert not peer.last.violations
    check_store(mcode)


def one_random_kill(mcode: Mcode, peer: Peer, source: random.Random, number: int) -> bool:
    """One run that is killed somewhere; whether the kill came in time."""
    peer.script(
        drip(TWO_CALLS, 0.002),
        drip(call("write", {"file_path": f"f{number}", "content": "x" * 2000}), 0.002),
        drip(say(f"answer {number} " + "é" * 50), 0.002),
    )
    running = mcode.start("exec", f"prompt {number}", "--session-key", "k", "--output-format", "stream-json")
    time.sleep(source.uniform(0.1, 0.7))
    running.kill()
    run = running.finish()
    events = [json.loads(line) for line in run.out.split("\n")[:-1]]
    told = [event["item"]["id"] for event in events if event["type"] == "item.completed"]
    written = (
        {line.get("id") for line in mcode.history()} if mcode.session_dirs() and has_history(mcode) else set()
    )
    # what was told as completed is in history
    assert {one.rsplit(":", 1)[0] for one in told} <= written
    return run.code == -signal.SIGKILL


def has_history(mcode: Mcode) -> bool:
    paths = list((mcode.data / "sessions").glob("*/*/*/*/messages.jsonl"))
    if not paths:
        return False
    # what a reader would do with a torn tail the next run does; here it is only looked past
    data = paths[0].read_bytes()
    return data.endswith(b"\n")


def random_kills(mcode: Mcode, peer: Peer, seed: int, count: int) -> None:
    source = random.Random(seed)
    mcode.may_leave_processes = True
    killed, before = 0, []
    for number in range(count):
        killed += one_random_kill(mcode, peer, source, number)
        lines = lines_of(mcode)
        assert lines[: len(before)] == before, f"a committed message is gone after kill {number}"
        before = lines
        if number % 5 == 4:
            peer.script(say("fine"))
            mcode.exec("check", "--session-key", "k").check()
            assert not peer.last.violations
            check_store(mcode)
    assert killed
    assert all(not request.violations for request in peer.calls)


def test_random_kills(mcode: Mcode, peer: Peer) -> None:
    random_kills(mcode, peer, seed=4, count=15)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_random_kills(mcode: Mcode, peer: Peer, api: str) -> None:
    random_kills(mcode, peer, seed=int(time.time()), count=200)


def test_a_dead_owner_is_not_waited_for(mcode: Mcode, peer: Peer) -> None:
    peer.script(hang(), say("well"))
    running = mcode.start("exec", "x", "--session-key", "k")
    peer.wait_for(1)
    running.kill_group()
    running.finish()
    (lock,) = mcode.query("SELECT expires_boot_ms FROM session_locks")
    assert lock["expires_boot_ms"] > time.clock_gettime(time.CLOCK_BOOTTIME) * 1000 + 60_000
    run = mcode.exec("y", "--session-key", "k", "--output-format", "json").check()
    assert run.result["output"] == "well"


def wait_for_rows(mcode: Mcode, count: int) -> None:
    deadline_s = time.monotonic() + 20
    while mcode.query("SELECT count(*) AS n FROM messages")[0]["n"] < count:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    time.sleep(0.05)


@pytest.mark.parametrize("forged", ["live pid", "our pid", "another boot"])
def test_a_lock_row_is_judged_by_its_owners_lock_not_by_its_pid(
    mcode: Mcode, peer: Peer, forged: str
) -> None:
    peer.script(hang(), say("well"))
    running = mcode.start("exec", "x", "--session-key", "k")
    peer.wait_for(1)
    running.kill_group()
    running.finish()
    changes: dict[str, tuple[str, Any]] = {
        "live pid": ("UPDATE session_locks SET pid = ?", 1),
        "our pid": ("UPDATE session_locks SET pid = ?", os.getpid()),
        "another boot": ("UPDATE session_locks SET boot_id = ?", "00000000-0000"),
    }
    sql, value = changes[forged]
    with sqlite3.connect(mcode.data / "mcode.db") as connection:
        connection.execute(sql, (value,))
    connection.close()
    mcode.exec("y", "--session-key", "k").check()


def test_a_stopped_owner_whose_lease_ran_out_is_fenced_out_when_it_wakes(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    gate = Gate()
    peer.script(gated(say("from the zombie"), gate), say("from the taker"), say("third"))
    zombie = mcode.start("exec", "x", "--session-key", "k", "--output-format", "json")
    gate.wait_reached()
    wait_for_rows(mcode, 1)  # stopped inside a transaction it would hold the whole store
    os.kill(zombie.pid, signal.SIGSTOP)
    busy = mcode.exec("y", "--session-key", "k", "--output-format", "json").check(75)
    assert busy.result["error"]["code"] == "session_busy"
    with sqlite3.connect(mcode.data / "mcode.db") as connection:
        connection.execute("UPDATE session_locks SET expires_ms = 1, expires_boot_ms = 1")
    connection.close()
    taker = mcode.exec("y", "--session-key", "k", "--output-format", "json").check()
    assert taker.result["output"] == "from the taker"
    before = lines_of(mcode)
    gate.open()
    os.kill(zombie.pid, signal.SIGCONT)
    run = zombie.finish().check(75)
    assert run.result["error"]["code"] == "LEASE_LOST"
    assert (run.result["status"], run.result["retryable"], run.result["output"]) == ("failed", True, None)
    assert lines_of(mcode) == before
    assert b"from the zombie" not in b"\n".join(before)
    assert mcode.query("SELECT outcome, reason FROM turn_receipts ORDER BY sequence") == [
        {"outcome": "failed", "reason": "process-restart"},
        {"outcome": "completed", "reason": None},
    ]
    assert mcode.query("SELECT status FROM sessions") == [{"status": "idle"}]
    mcode.exec("z", "--session-key", "k").check()
    check_store(mcode)


def test_a_lock_row_that_is_deleted_during_a_tool_stops_the_turn(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(
        call("bash", {"command": "touch started; while [ ! -e go ]; do sleep 0.02; done; echo over"}),
        say("never"),
    )
    running = mcode.start("exec", "x", "--session-key", "k", "--output-format", "json")
    deadline_s = time.monotonic() + 20
    while not (mcode.workspace / "started").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    with sqlite3.connect(mcode.data / "mcode.db") as connection:
        connection.execute("DELETE FROM session_locks")
    connection.close()
    (mcode.workspace / "go").touch()
    run = running.finish().check(75)
    assert run.result["error"]["code"] == "LEASE_LOST"
    assert len(peer.calls) == 1
    assert mcode.query("SELECT * FROM session_locks") == []
    assert [message["role"] for message in mcode.messages()] == ["user", "assistant"]
    peer.script(say("well"))
    mcode.exec("y", "--session-key", "k").check()
    assert "interrupted: the process stopped" in peer.last.text
    check_store(mcode)


def test_in_pid_namespaces_a_killed_run_and_the_next_both_are_pid_1(mcode: Mcode, peer: Peer) -> None:
    import subprocess

    if subprocess.run(["unshare", "-pf", "--mount-proc", "true"], capture_output=True).returncode:
        pytest.skip("no pid namespaces here")
    mcode.command = ["unshare", "-pf", "--mount-proc", "--kill-child", *mcode.command]
    peer.script(hang(), say("well"))
    first = mcode.start("exec", "x", "--session-key", "k")
    peer.wait_for(1)
    assert mcode.query("SELECT pid FROM session_locks") == [{"pid": 1}]
    busy = mcode.exec("y", "--session-key", "k").check(75)
    assert "busy" in busy.err
    first.kill_group()
    first.finish()
    run = mcode.exec("y", "--session-key", "k", "--output-format", "json").check()
    assert run.result["output"] == "well"


def test_a_second_signal_ends_at_once_and_leaves_a_session_that_goes_on(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "trap '' INT TERM; echo up > up; sleep 30"}), say("well"))
    running = mcode.start("exec", "x", "--session-key", "k")
    deadline_s = time.monotonic() + 20
    while not (mcode.workspace / "up").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    mcode.may_leave_processes = True
    running.send(signal.SIGINT)
    time.sleep(0.4)
    running.send(signal.SIGINT)
    run = running.finish(10)
    assert run.code == -signal.SIGINT
    peer.script(say("well"))
    again = mcode.exec("y", "--session-key", "k", "--output-format", "json").check()
    assert again.result["output"] == "well"
    check_store(mcode)


def test_a_kill_in_the_middle_of_a_repair_leaves_a_session_that_goes_on(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("first"), say("second"), say("on"))
    session_id = mcode.exec("x", "--output-format", "json").check().result["sessionId"]
    mcode.exec("--continue", "y").check()
    path = mcode.session_dir() / "messages.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], b"42", *lines[2:]]))
    mcode.run("sessions", "verify", session_id, "--repair", env={"MCODE_FAULT": "after-repair"}).check(
        -signal.SIGKILL
    )
    assert len(mcode.query("SELECT * FROM session_locks WHERE kind = 'maintenance'")) == 1
    mcode.run("sessions", "list").check()
    # no turn died: the session says what it said before
    assert mcode.query("SELECT status FROM sessions") == [{"status": "idle"}]
    mcode.exec("--session", session_id, "go on").check()
    assert "first" in peer.last.text
    assert "second" in peer.last.text
    check_store(mcode)
