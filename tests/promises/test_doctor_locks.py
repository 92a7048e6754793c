"""doctor --locks says who holds what and why it is believed alive or dead, and changes nothing."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from tests.promises.test_recover import write
from tests.promises.test_when_busy import busy_session, items, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer


def locks(mcode: Mcode) -> list[dict[str, Any]]:
    run = mcode.run("doctor", "--locks", "--output-format", "json").check()
    found: list[dict[str, Any]] = json.loads(run.out)["locks"]
    return found


def test_nothing_is_held_where_nothing_ran(mcode: Mcode) -> None:
    run = mcode.run("doctor", "--locks").check()
    assert (run.out, "nothing is held" in run.err) == ("", True)
    assert not mcode.data.exists()


def test_a_living_a_late_and_a_dead_holder_are_told_apart(mcode: Mcode, peer: Peer) -> None:
    session, running, _ = busy_session(mcode, peer)
    (lock,) = locks(mcode)
    assert (lock["what"], lock["sessionId"], lock["kind"], lock["state"]) == (
        "lock",
        session,
        "turn",
        "alive",
    )
    assert lock["pid"] == running.pid
    assert "liveness file locked; lease good for" in lock["why"]
    waiting = mcode.start("exec", "w", "--session", session, "--when-busy", "wait")
    wait_until(lambda: items(mcode), "no place in line")
    held, place = locks(mcode)
    assert [(one["what"], one["state"]) for one in (held, place)] == [("lock", "alive"), ("place", "alive")]
    assert (place["pid"], place["host"]) == (waiting.pid, held["host"])
    (item,) = items(mcode)
    assert (place["itemId"], place["turnId"]) == (item["id"], item["turn_id"])
    assert place["sinceMs"] == item["created_ms"]
    table = mcode.run("doctor", "--locks").check().out
    assert table.splitlines()[0].split() == [
        "WHAT", "SESSION", "KIND", "TURN", "PID", "HOST", "SINCE", "LEASE", "UNTIL", "STATE", "WHY",
    ]  # fmt: skip
    for one in (waiting, running):
        one.send(signal.SIGSTOP)
    write(mcode, "UPDATE session_locks SET expires_boot_ms = 0")
    late = locks(mcode)[0]
    assert (late["state"], "by the boot clock" in late["why"]) == ("expired", True)
    write(mcode, "UPDATE session_locks SET boot_id = 'another'")
    assert "another boot, by the wall clock good" in locks(mcode)[0]["why"]
    for one in (waiting, running):
        one.kill()
        one.process.wait()
    # its pid is somebody's who lives
    write(mcode, "UPDATE session_locks SET pid = ?", os.getpid())
    assert [(one["what"], one["state"]) for one in locks(mcode)] == [("lock", "dead"), ("place", "dead")]
    assert "free" in locks(mcode)[0]["why"]
    (mcode.data / "run" / f"{lock['owner']}.lock").unlink()
    assert "missing" in locks(mcode)[0]["why"]
    assert len(mcode.query("SELECT * FROM session_locks")) == 1
    assert mcode.query("SELECT status FROM sessions") == [{"status": "started"}]


def test_claims_and_drainers_are_shown(mcode: Mcode, peer: Peer) -> None:
    session, running, gate = busy_session(mcode, peer)
    gate.open()
    running.finish().check()
    mcode.run("queue", "add", session, "later").check()
    died = mcode.run("queue", "drain", "--session", session, env={"MCODE_FAULT": "after-claim"})
    died.check(-signal.SIGKILL)
    found = locks(mcode)
    assert [(one["what"], one["state"]) for one in found] == [("claim", "dead"), ("drainer", "dead")]
    assert found[0]["itemId"].startswith("qi_")
    assert found[0]["pid"] == found[1]["pid"] is not None
    mcode.run("recover").check()
    assert locks(mcode) == []
