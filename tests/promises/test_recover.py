"""mcode recover, and what looks again by itself: what dead processes left is ended, what lives is left alone."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

from tests.promises.test_when_busy import busy_session, echo, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, call, forever, gated, say

JSON = ("--output-format", "json")


def recover(mcode: Mcode) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(mcode.run("recover", *JSON).check().out)
    assert (found.pop("schemaVersion"), found.pop("type")) == (1, "recovery")
    return found


def done(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if value}


def write(mcode: Mcode, sql: str, *parameters: Any) -> None:
    connection = sqlite3.connect(mcode.data / "mcode.db", isolation_level=None, timeout=5)
    connection.execute(sql, parameters)
    connection.close()


def test_without_anything_dead_there_is_nothing_to_recover(mcode: Mcode) -> None:
    run = mcode.run("recover").check()
    assert run.out == "nothing to recover\n"
    assert not mcode.data.exists()
    mcode.exec("hi").check()
    assert mcode.run("recover").check().out == "nothing to recover\n"


def test_a_killed_turn_is_ended_once_with_the_command_it_had_running(mcode: Mcode, peer: Peer) -> None:
    mark = mcode.workspace / "pid"
    peer.script(call("bash", {"command": "setsid sh -c 'echo $$ > pid; sleep 300' & sleep 300"}))
    running = mcode.start("exec", "begin", "--permission", "full")
    wait_until(lambda: mark.exists() and mark.read_text().strip(), "no command")
    running.kill()
    running.process.wait()
    stray = int(mark.read_text())
    report = recover(mcode)
    assert (report["turns"], report["sessions"], report["deleting"]) == (1, 0, [])
    assert stray in report["strays"]
    wait_until(lambda: not Path(f"/proc/{stray}").exists() or _is_zombie(stray), "the command lives")
    assert mcode.query("SELECT status FROM sessions") == [{"status": "interrupted"}]
    assert mcode.query("SELECT outcome, reason FROM turn_receipts") == [
        {"outcome": "failed", "reason": "process-restart"}
    ]
    assert done(recover(mcode)) == {}


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_it_is_safe_beside_a_running_turn(mcode: Mcode, peer: Peer) -> None:
    session, running, gate = busy_session(mcode, peer)
    assert done(recover(mcode)) == {}
    gate.open()
    running.finish().check()
    assert mcode.query("SELECT status FROM sessions WHERE id = ?", session) == [{"status": "idle"}]


def test_a_session_that_says_started_without_anybody_is_interrupted(mcode: Mcode) -> None:
    mcode.exec("hi").check()
    write(mcode, "UPDATE sessions SET status = 'started'")
    run = mcode.run("recover").check()
    assert run.out == "1 session without a process set to `interrupted`\n"
    assert mcode.query("SELECT status FROM sessions") == [{"status": "interrupted"}]


def test_a_deletion_that_was_cut_short_is_finished_and_named(mcode: Mcode, peer: Peer) -> None:
    session, running, _ = busy_session(mcode, peer)
    running.kill()
    running.process.wait()
    write(mcode, "UPDATE session_locks SET kind = 'deletion', turn_id = NULL")
    write(mcode, "UPDATE sessions SET deleting_by = 'own_of_the_dead'")
    assert done(recover(mcode)) == {"deleting": [session]}
    assert mcode.query("SELECT id FROM sessions") == []
    assert mcode.query("SELECT kind FROM session_locks") == []


def test_a_lock_whose_pid_is_somebody_elses_by_now_is_dead_all_the_same(mcode: Mcode, peer: Peer) -> None:
    session, running, _ = busy_session(mcode, peer)
    running.kill()
    running.process.wait()
    write(mcode, "UPDATE session_locks SET pid = ?", os.getpid())
    peer.script(forever(echo))
    mcode.exec("next", "--session", session).check()


def test_a_long_run_ends_what_a_process_that_died_beside_it_left(mcode: Mcode, peer: Peer) -> None:
    dead, first, _ = busy_session(mcode, peer)
    gate = Gate()
    peer.script(gated(say("long"), gate))
    second = mcode.start("exec", "another")
    gate.wait_reached()
    first.kill()
    first.process.wait()
    left = "SELECT id FROM sessions WHERE status = 'interrupted'"
    wait_until(lambda: mcode.query(left), "nobody looked again", 30)
    gate.open()
    second.finish().check()
    assert mcode.query(left) == [{"id": dead}]


def test_a_stopped_process_whose_lease_has_run_out_writes_nothing_when_it_wakes(
    mcode: Mcode, peer: Peer
) -> None:
    session, sleeper, gate = busy_session(mcode, peer)
    sleeper.send(signal.SIGSTOP)
    mcode.exec("too early", "--session", session).check(75)
    # half an hour passes
    write(mcode, "UPDATE session_locks SET expires_boot_ms = 0, expires_ms = 0")
    peer.script(forever(echo))
    taken = mcode.exec("taken over", "--session", session, *JSON).check()
    assert taken.result["output"] == "echo taken over"
    before = mcode.history()
    sleeper.send(signal.SIGCONT)
    gate.open()
    run = sleeper.finish().check(75)
    assert run.result["error"]["code"] == "LEASE_LOST"
    assert mcode.history() == before
    assert mcode.query("SELECT outcome, reason FROM turn_receipts ORDER BY sequence") == [
        {"outcome": "failed", "reason": "process-restart"},
        {"outcome": "completed", "reason": None},
    ]
    assert mcode.query("SELECT status FROM sessions") == [{"status": "idle"}]


def test_everybody_is_pid_1_in_a_container_and_the_dead_one_is_known(mcode: Mcode, peer: Peer) -> None:
    inside = Mcode.__new__(Mcode)
    inside.__dict__.update(mcode.__dict__)
    inside.command = ["unshare", "-pf", "--kill-child", *mcode.command]
    if os.system("unshare -pf true 2>/dev/null"):
        return
    session, first, gate = busy_session(inside, peer)
    assert mcode.query("SELECT pid FROM session_locks") == [{"pid": 1}]
    inside.exec("busy", "--session", session).check(75)
    first.kill()
    first.process.wait()
    peer.script(say("after"))
    until = time.monotonic() + 10
    while (
        inside.exec("after", "--session", session).code == 75
    ):  # the kernel ends the namespace a moment later
        assert time.monotonic() < until
    gate.open()
