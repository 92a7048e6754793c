"""A job run that is killed at any of its points: the same command again, and each task is over once."""

from __future__ import annotations

import json
import random
import signal
import time

import pytest

from tests.support.jobs import Tasks, records, spec
from tests.support.mcode import Mcode
from tests.support.peer import Peer

#: point -> whether the answer that the model had given by then is kept
POINTS = {
    "before-task-claim:2": True,
    "after-task-claim:2": True,
    "after-admission:2": True,
    "after-settlement:2": True,
    "before-task-end:2": True,
    "after-task-end:2": True,
    "before-run-end": True,
}
NAMES = ("a", "b", "c", "d")


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_this_point_runs_no_finished_task_twice_and_loses_none(
    mcode: Mcode, peer: Peer, point: str
) -> None:
    tasks = Tasks()
    peer.script(tasks)
    path = spec(mcode, *NAMES, {"id": "sum", "needs": list(NAMES), "prompt": "do <sum> {{ needs.a.output }}"})
    results = mcode.root / "out.jsonl"
    command = ("jobs", "run", path, "--run-id", "r", "--results", results, "--concurrency", "1")
    assert mcode.run(*command, env={"MCODE_FAULT": point}).code == -signal.SIGKILL
    mcode.run(*command).check()
    assert set(records(results)) == {*NAMES, "sum"}
    assert {one["status"] for one in records(results).values()} == {"succeeded"}
    assert tasks.asked == dict.fromkeys((*NAMES, "sum"), 1), "each was asked for once"
    rows = mcode.query("SELECT task_id, attempt, deaths FROM job_tasks WHERE deaths > 0")
    assert len(rows) == (1 if point in ("after-task-claim:2", "after-admission:2") else 0)


def test_a_task_during_which_the_runner_died_three_times_is_failed(mcode: Mcode, peer: Peer) -> None:
    peer.script(Tasks())
    path = spec(mcode, "a", "b")
    command = ("jobs", "run", path, "--run-id", "r", "--concurrency", "1")
    for _ in range(3):
        assert mcode.run(*command, env={"MCODE_FAULT": "after-task-claim"}).code == -signal.SIGKILL
    run = mcode.run(*command, "--output-format", "json").check(4)
    (failure,) = json.loads(run.out)["failures"]
    assert failure["taskId"] == "a"
    assert "died 3 times" in failure["error"]["message"]
    assert json.loads(run.out)["counts"]["succeeded"] == 1


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_a_results_file_that_was_torn_is_whole_after_the_next_run(mcode: Mcode, peer: Peer, cut: int) -> None:
    peer.script(Tasks())
    path, results = spec(mcode, "a", "b"), mcode.root / "out.jsonl"
    command = ("jobs", "run", path, "--run-id", "r", "--results", results)
    mcode.run(*command).check()
    whole = results.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    results.write_bytes(whole[: last + cut] if cut > 0 else whole[:-1])
    mcode.run(*command).check()
    assert results.read_bytes() == whole
    assert len(peer.calls) == 2


def kills(mcode: Mcode, peer: Peer, count: int, seed: int) -> None:
    rng = random.Random(seed)
    tasks = Tasks()
    peer.script(tasks)
    names = [f"t{number}" for number in range(30)]
    path, results = spec(mcode, *names, job={"concurrency": 4}), mcode.root / "out.jsonl"
    command = ("jobs", "run", path, "--run-id", "r", "--results", results)
    for _ in range(count):
        running = mcode.start(*command)
        time.sleep(rng.uniform(0.05, 0.6))
        running.kill()
        running.finish()
    run = mcode.run(*command)
    assert run.code in (0, 4), run
    found = records(results)
    assert set(found) == set(names)
    for record in found.values():
        is_dead = "died 3 times" in str(record["error"])
        assert record["status"] == "succeeded" or is_dead, record
    assert mcode.query("PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def test_killed_at_random_each_task_is_over_once(mcode: Mcode, peer: Peer) -> None:
    kills(mcode, peer, 6, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_random_for_long_each_task_is_over_once(mcode: Mcode, peer: Peer, seed: int) -> None:
    kills(mcode, peer, 20, seed)
