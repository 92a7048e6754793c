"""`schedule run-due` that is killed at any of its points: each due time is run once, and told as it was."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.support.jobs import Tasks, spec
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.schedules import add, history, listed, run_due
from tests.support.steps import Gate, gated, say, status

ONE = "2026-05-04T01:00:10Z"
LATER = "2026-05-04T01:01:10Z"

#: point -> how the due time is told if nobody goes on with a run that had begun
POINTS = {
    "after-due-inserted": "succeeded",
    "before-due-claim": "succeeded",
    "after-due-claim": "succeeded",
    "after-due-began": "interrupted",
    "before-task-claim": "interrupted",
    "after-task-claim": "interrupted",
    "after-admission": "interrupted",
    "after-settlement": "succeeded",
    "before-task-end": "succeeded",
    "after-task-end": "succeeded",
    "before-run-end": "succeeded",
    "before-due-end": "succeeded",
    "after-due-end": "succeeded",
}


@pytest.mark.sample(13)
@pytest.mark.parametrize("policy", ["leave", "resume"])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_this_point_runs_nothing_twice_and_is_told(
    mcode: Mcode, peer: Peer, point: str, policy: str
) -> None:
    tasks = Tasks()
    peer.script(tasks)
    add(mcode, "a", "--when-interrupted", policy).check()
    assert run_due(mcode, ONE, env={"MCODE_FAULT": point}).code == -signal.SIGKILL
    if POINTS[point] == "interrupted":
        assert listed(mcode)["a"]["lastStatus"] == "interrupted", "also before anybody has settled it"
    expected = "succeeded" if policy == "resume" else POINTS[point]
    run = run_due(mcode, LATER).check(4 if expected == "interrupted" else 0)
    assert ("its process died while it ran" in run.err) == (expected == "interrupted")
    assert history(mcode, "a") == [("05-04T01:00", expected, 4 if expected == "interrupted" else 0)]
    assert tasks.asked["a"] == (0 if expected == "interrupted" else 1)
    assert run_due(mcode, LATER).check().err == "", "it is told once"


def test_a_run_that_is_killed_in_the_middle_goes_on_where_it_was(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    tasks = Tasks(b=[gated(say("slow"), gate), say("quick")])
    peer.script(tasks)
    add(mcode, "a", spec(mcode, "a", {"id": "b", "needs": ["a"]}), "--when-interrupted", "resume").check()
    running = mcode.start("schedule", "run-due", "--now", ONE)
    gate.wait_reached()
    running.kill()
    gate.open()
    run_due(mcode, LATER).check()
    assert history(mcode, "a") == [("05-04T01:00", "succeeded", 0)]
    assert tasks.asked == {"a": 1, "b": 2}


def test_a_run_whose_processes_die_again_and_again_is_interrupted_for_good(mcode: Mcode, peer: Peer) -> None:
    add(mcode, "a", "--when-interrupted", "resume").check()
    for _ in range(3):
        assert run_due(mcode, ONE, env={"MCODE_FAULT": "after-due-claim"}).code == -signal.SIGKILL
    run = run_due(mcode, ONE).check(4)
    assert "died while it began, 3 times" in run.err
    assert run_due(mcode, ONE).check().err == ""
    assert peer.calls == []


@pytest.mark.parametrize("point", ["before-due-end", "after-due-end", "before-failure-command"])
def test_a_failure_whose_process_died_is_still_told_to_its_command(
    mcode: Mcode, peer: Peer, point: str, tmp_path: Path
) -> None:
    peer.script(status(400))
    told = tmp_path / "told"
    add(mcode, "a", "--on-failure", f"sh -c 'echo \"$MCODE_SCHEDULE_STATUS\" >> {told}'").check()
    assert run_due(mcode, ONE, env={"MCODE_FAULT": point}).code == -signal.SIGKILL
    run_due(mcode, LATER)
    run_due(mcode, LATER).check()
    assert told.read_text() == "failed\n"
    assert history(mcode, "a") == [("05-04T01:00", "failed", 4)]


def kills(mcode: Mcode, peer: Peer, rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    tasks = Tasks()
    peer.script(tasks)
    names = [f"s{number}" for number in range(4)]
    for name in names:
        add(mcode, name, "--catch-up", "all", "--when-interrupted", "resume").check()
    for hour in range(1, rounds + 1):
        callers = [
            mcode.start("schedule", "run-due", "--now", f"2026-05-04T{hour:02}:00:10Z") for _ in range(2)
        ]
        time.sleep(rng.uniform(0.1, 0.8))
        for caller in callers:
            caller.kill()
            caller.finish()
    run_due(mcode, f"2026-05-04T{rounds:02}:01:10Z")
    for name in names:
        found = history(mcode, name)
        assert [due for due, _, _ in found] == [f"05-04T{hour:02}:00" for hour in range(1, rounds + 1)]
        assert {status for _, status, _ in found} <= {"succeeded", "interrupted", "failed"}
    assert mcode.query("PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def test_killed_at_random_each_due_time_is_over_once(mcode: Mcode, peer: Peer) -> None:
    kills(mcode, peer, 5, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_random_for_long_each_due_time_is_over_once(mcode: Mcode, peer: Peer, seed: int) -> None:
    kills(mcode, peer, 20, seed)
