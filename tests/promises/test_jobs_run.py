"""`mcode jobs run`: every task once, in its order, with one truthful end for all of them."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.jobs import Tasks, records, spec, states, summary
from tests.support.mcode import Mcode, git
from tests.support.peer import Peer
from tests.support.steps import Gate, call, gated, say, status

JSON = ("--output-format", "json")


def test_a_chain_goes_on_in_one_session_and_hands_its_outputs_on(mcode: Mcode, peer: Peer, api: str) -> None:
    path = spec(
        mcode,
        {
            "id": "apply",
            "needs": ["plan"],
            "prompt": "do <apply>: {{ needs.plan.output }}",
            "session": "from:plan",
        },
        {
            "id": "plan",
            "prompt": "do <plan> in {{ area }}",
            "title": "Plan of {{ area }}",
            "labels": {"k": "{{ area }}"},
        },
        {"id": "look", "needs": ["plan"], "prompt": "do <look>", "session": "fork:plan"},
        vars={"area": "src"},
    )
    peer.script(Tasks(plan=say("{{ area }}: first this")))
    results = mcode.root / "out.jsonl"
    run = mcode.run("jobs", "run", path, "--results", results, *JSON).check()
    found = records(results)
    assert next(iter(found)) == "plan"
    assert found["apply"]["sessionId"] == found["plan"]["sessionId"] != found["look"]["sessionId"]
    texts = {
        name: request.text
        for name, request in ((n, r) for r in peer.calls for n in found if f"do <{n}>" in r.text)
    }
    assert "do <apply>: {{ area }}: first this" in texts["apply"], "an output is no template"
    assert "do <plan> in src" in texts["look"], "a fork begins with what was said"
    assert summary(run)["counts"] == {
        "total": 3,
        "succeeded": 3,
        "unsuccessful": 0,
        "skipped": 0,
        "notRun": 0,
    }
    shown = json.loads(mcode.run("sessions", "list", *JSON, "--label", "k=src", "--kind", "cron").check().out)
    assert [one["title"] for one in shown["sessions"]][-1] == "Plan of src"
    assert mcode.exec("go on", "--continue").code == 4, "nobody's conversation"


@pytest.mark.parametrize(
    ("steps", "code", "counts"),
    [
        ({}, 0, (3, 0, 0)),
        ({"b": status(400)}, 4, (2, 1, 0)),
        ({"a": status(400), "b": status(400), "c": status(400)}, 4, (0, 3, 0)),
        ({"a": status(400), "b": say("")}, 9, (1, 2, 0)),
    ],
)
def test_the_exit_code_is_that_of_all_that_did_not_succeed(
    mcode: Mcode, peer: Peer, steps: dict[str, object], code: int, counts: tuple[int, int, int]
) -> None:
    mcode.configure(retry="max_retries = 0")
    peer.script(Tasks(**steps))
    run = mcode.run("jobs", "run", spec(mcode, "a", "b", "c"), *JSON).check(code)
    found = summary(run)
    assert (
        found["counts"]["succeeded"],
        found["counts"]["unsuccessful"],
        found["counts"]["skipped"],
    ) == counts
    assert (found["exitCode"], found["status"]) == (code, "failed" if code else "succeeded")
    assert [one["taskId"] for one in found["failures"]] == list(steps)


def test_what_needs_a_task_that_failed_is_skipped_unless_it_says_otherwise(mcode: Mcode, peer: Peer) -> None:
    peer.script(Tasks(lint=status(400)))
    path = spec(
        mcode,
        "lint",
        {"id": "ship", "needs": ["lint"]},
        {
            "id": "mend",
            "needs": ["lint"],
            "when": 'needs.lint.status == "failed"',
            "prompt": "do <mend> {{ needs.lint.error }}",
        },
        {"id": "cheer", "needs": ["lint"], "when": "needs.lint.status == 'succeeded'"},
        {
            "id": "report",
            "needs": ["ship", "mend"],
            "when": "true",
            "prompt": "do <report> {{ needs.ship.status }}",
        },
    )
    results = mcode.root / "out.jsonl"
    mcode.run("jobs", "run", path, "--results", results).check(4)
    found = records(results)
    assert {name: record["status"] for name, record in found.items()} == {
        "lint": "failed", "ship": "skipped", "mend": "succeeded", "cheer": "skipped", "report": "succeeded",
    }  # fmt: skip
    assert (found["ship"]["exitCode"], found["ship"]["reason"]) == (None, "lint, which it needs, is failed")
    assert any("do <report> skipped" in request.text for request in peer.calls)


def test_a_key_that_is_refused_ends_the_run_and_the_same_id_goes_on(mcode: Mcode, peer: Peer) -> None:
    tasks = Tasks(default=status(401))
    peer.script(tasks)
    path = spec(mcode, *(f"t{number}" for number in range(30)), job={"concurrency": 4})
    run = mcode.run("jobs", "run", path, "--run-id", "r", *JSON).check(77)
    found = summary(run)
    assert sum(tasks.asked.values()) <= 8
    assert found["counts"]["notRun"] >= 22
    assert "the provider refused" in found["stoppedBy"]
    assert states(mcode, "r")["t29"] == "not_run"
    tasks = Tasks()
    peer.script(tasks)
    run = mcode.run("jobs", "run", path, "--run-id", "r", *JSON).check(77)
    assert summary(run)["counts"]["notRun"] == 0
    mcode.run("jobs", "run", path, "--run-id", "r", "--retry-failed").check()
    assert set(tasks.asked.values()) == {1}, "each of them once"


def test_taken_up_again_what_may_pass_runs_again_and_what_is_over_does_not(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(retry="max_retries = 0")
    results = mcode.root / "out.jsonl"
    path = spec(mcode, "bad", "down", {"id": "slow", "timeout": "700ms"}, "good")
    gate = Gate()
    first = Tasks(bad=status(400), down=status(503), slow=gated(say("late"), gate))
    peer.script(first)
    mcode.run("jobs", "run", path, "--run-id", "r", "--results", results).check(9)
    gate.open()
    again = Tasks()
    peer.script(again)
    mcode.run("jobs", "run", path, "--run-id", "r", "--results", results).check(4)
    assert again.asked == {"down": 1, "slow": 1}
    found = records(results)
    assert {name: (one["status"], one["taskAttempt"]) for name, one in found.items()} == {
        "bad": ("failed", 1), "good": ("succeeded", 1), "down": ("succeeded", 2), "slow": ("succeeded", 2),
    }  # fmt: skip
    mcode.run("jobs", "run", path, "--run-id", "r", "--retry-failed").check()
    assert again.asked == {"down": 1, "slow": 1, "bad": 1}


def test_a_task_that_is_another_one_now_is_2_and_nothing_runs(mcode: Mcode, peer: Peer) -> None:
    path = mcode.workspace / "tasks.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"do <{n}>"}) + "\n" for n in range(1, 6)))
    mcode.run("jobs", "run", path, "--run-id", "r", "--only", "1", "--only", "2", "--only", "3").check()
    count = len(peer.calls)
    path.write_text("".join(json.dumps({"prompt": f"do <{n}>"}) + "\n" for n in (2, 3, 4, 5, 6)))
    run = mcode.run("jobs", "run", path, "--run-id", "r").check(2)
    assert f"{path}:1: task '1' is not what it was in job run r" in run.err
    assert len(peer.calls) == count == 3


def test_further_attempts_are_made_where_the_spec_wants_them(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(retry="max_retries = 0")
    tasks = Tasks(a=[status(503), status(503), say("at last")], b=status(503), c=[status(401)])
    peer.script(tasks)
    path = spec(mcode, {"id": "a", "retries": 2}, {"id": "b", "retries": 1}, job={"concurrency": 1})
    results = mcode.root / "out.jsonl"
    mcode.run("jobs", "run", path, "--results", results).check(69)
    assert tasks.asked == {"a": 3, "b": 2}
    assert [one["taskAttempt"] for one in records(results).values()] == [3, 2]


def test_a_sum_for_all_tasks_is_kept(mcode: Mcode, peer: Peer) -> None:
    tasks = Tasks(default=say("x" * 200))
    peer.script(tasks)
    path = spec(mcode, *(f"t{number}" for number in range(20)), job={"max_cost": 0.02, "concurrency": 3})
    run = mcode.run("jobs", "run", path, "--run-id", "r", *JSON).check(7)
    found = summary(run)
    assert 0 < found["costUsd"] <= 0.02
    assert found["counts"]["notRun"] + found["counts"]["unsuccessful"] + found["counts"]["succeeded"] == 20
    assert found["counts"]["succeeded"] >= 1
    assert "max_cost" in found["stoppedBy"] + str(found["failures"])


def test_a_second_run_of_a_job_is_left_to_the_first_and_a_second_runner_of_a_run_is_busy(
    mcode: Mcode, peer: Peer
) -> None:
    gate = Gate()
    tasks = Tasks(a=gated(say("done"), gate))
    peer.script(tasks)
    path = spec(mcode, "a", "b", "c", job={"name": "nightly", "concurrency": 1})
    first = mcode.start("jobs", "run", path, "--run-id", "r", *JSON)
    peer.wait_for(1)
    left = mcode.run("jobs", "run", path, *JSON).check()
    assert (summary(left)["status"], summary(left)["runId"]) == ("skipped", "r")
    assert "is under way in another process" in mcode.run("jobs", "run", path, "--run-id", "r").check(75).err
    helping = mcode.run("jobs", "run", path, "--run-id", "r", "--join", "--only", "b", "--only", "c").check()
    assert tasks.asked == {"a": 1, "b": 1, "c": 1}
    gate.open()
    assert summary(first.finish().check())["counts"]["succeeded"] == 3
    assert tasks.asked == {"a": 1, "b": 1, "c": 1}, helping


def test_a_run_is_cancelled_from_elsewhere_and_goes_on_later(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(Tasks(a=gated(say("done"), gate)))
    path = spec(mcode, "a", "b", job={"concurrency": 1})
    first = mcode.start("jobs", "run", path, "--run-id", "r", *JSON)
    peer.wait_for(1)
    mcode.run("jobs", "cancel", "r").check()
    found = summary(first.finish().check(4))
    assert (found["status"], found["stoppedBy"]) == ("cancelled", "it was cancelled")
    assert states(mcode, "r") == {"a": "cancelled", "b": "not_run"}
    gate.open()
    mcode.run("jobs", "run", path, "--run-id", "r").check()
    assert states(mcode, "r") == {"a": "succeeded", "b": "succeeded"}


def test_a_provider_that_takes_two_at_once_gets_all_of_them_done(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(retry='base_delay = "10ms"\nmax_retries = 1')
    running: list[int] = []

    def step(request: object) -> object:
        if len(running) >= 2:
            return status(
                429, {"error": {"type": "rate_limit_error", "message": "slow down"}}, {"retry-after": "0.2"}
            )
        running.append(1)

        threading.Timer(0.05, running.pop).start()
        return say("done")

    peer.script(step)
    path = spec(mcode, *(f"t{number}" for number in range(24)), job={"concurrency": 12})
    assert summary(mcode.run("jobs", "run", path, *JSON).check())["counts"]["succeeded"] == 24


def test_one_task_that_goes_wrong_leaves_the_others_alone(mcode: Mcode, peer: Peer) -> None:
    tasks = Tasks(
        a=call("read", {"file_path": "\0"}), b=[call("bash", {"command": "kill -9 $$"}), say("done")]
    )
    peer.script(tasks)
    path = spec(mcode, {"id": "a", "max_steps": 2}, {"id": "b", "allow": ["bash"]}, "c")
    results = mcode.root / "out.jsonl"
    mcode.run("jobs", "run", path, "--results", results).check(7)
    assert {name: one["status"] for name, one in records(results).items()} == {
        "a": "limit_exceeded", "b": "succeeded", "c": "succeeded",
    }  # fmt: skip


def test_each_task_with_a_worktree_has_one_and_tasks_that_write_take_turns_else(
    mcode: Mcode, peer: Peer, workspace: object
) -> None:
    repository: Path = workspace({"a.txt": "one\n"}, git=True, name="repo")  # type: ignore[operator]
    write = [call("write", {"file_path": "new.txt", "content": "x"}), say("written")]
    peer.script(Tasks(one=write, two=write))
    path = spec(
        mcode,
        *({"id": name, "worktree": True, "worktree_branch": "job/{{ task.id }}"} for name in ("one", "two")),
    )
    results = mcode.root / "out.jsonl"
    mcode.run("jobs", "run", path, "--results", results, cwd=repository).check()
    found = records(results)
    assert {name: one["worktree"]["branch"] for name, one in found.items()} == {
        "one": "job/one",
        "two": "job/two",
    }
    assert not (repository / "new.txt").exists()
    assert all((Path(one["worktree"]["path"]) / "new.txt").exists() for one in found.values())


def test_a_worktree_goes_when_nothing_in_it_is_left_to_do(
    mcode: Mcode, peer: Peer, workspace: object
) -> None:
    repository: Path = workspace({"a.txt": "one\n"}, git=True, name="repo")  # type: ignore[operator]
    commit = "echo 1 > new.txt; git add new.txt; git -c commit.gpgsign=false commit -qm new"
    peer.script(
        Tasks(
            commits=[call("bash", {"command": commit}), say("committed")],
            writes=[call("write", {"file_path": "new.txt", "content": "x"}), say("written")],
        )
    )
    tree = {"worktree": True, "worktree_branch": "job/{{ task.id }}"}
    names = ("looks", "commits", "writes", "begins", "kept")
    path = spec(
        mcode,
        *({"id": name, **tree} for name in names[:4]),
        {"id": "goes on", "needs": ["begins"], "session": "from:begins"},
        {"id": "kept", "session": "key:k", **tree},
        defaults={"permission": "full"},
    )
    results = mcode.root / "out.jsonl"
    mcode.run("jobs", "run", path, "--results", results, cwd=repository).check()
    found = records(results)
    there = {
        name: one["worktree"] and (one["worktree"]["branch"], Path(one["worktree"]["path"]).exists())
        for name, one in found.items()
    }
    assert there == {
        "looks": None,
        "commits": ("job/commits", False),
        "writes": ("job/writes", True),
        "begins": ("job/begins", True),
        "goes on": ("job/begins", True),
        "kept": ("job/kept", True),
    }
    branches = git(repository, "branch", "--list", "--format=%(refname:short)", "job/*").split()
    assert branches == ["job/begins", "job/commits", "job/kept", "job/writes"]
    assert git(repository, "show", "job/commits:new.txt") == "1"
    assert git(repository, "worktree", "list", "--porcelain").count("worktree ") == 4


def test_another_attempt_has_a_branch_of_its_own(mcode: Mcode, peer: Peer, workspace: object) -> None:
    repository: Path = workspace({"a.txt": "one\n"}, git=True, name="repo")  # type: ignore[operator]
    mcode.configure(retry="max_retries = 0")
    write = call("write", {"file_path": "new.txt", "content": "x"})
    peer.script(Tasks(one=[write, status(500), write, say("written")]))
    path = spec(mcode, {"id": "one", "worktree": True, "worktree_branch": "job/x", "retries": 1})
    results = mcode.root / "out.jsonl"
    mcode.run("jobs", "run", path, "--results", results, cwd=repository).check()
    (found,) = records(results).values()
    assert (found["taskAttempt"], found["worktree"]["branch"]) == (2, "job/x-2")
    assert git(repository, "branch", "--list", "--format=%(refname:short)", "job/*").split() == [
        "job/x",
        "job/x-2",
    ]


def test_validate_shows_the_plan_and_calls_nobody(mcode: Mcode, peer: Peer) -> None:
    path = spec(mcode, {"id": "a", "max_cost": 0.5, "retries": 1}, {"id": "b", "max_cost": 1, "needs": ["a"]})
    plan = json.loads(mcode.run("jobs", "validate", path, *JSON).check().out)
    assert ([task["taskId"] for task in plan["tasks"]], plan["maxCostUsd"]) == (["a", "b"], 2.0)
    assert "TASK" in mcode.run("jobs", "run", path, "--dry-run").check().out
    assert not peer.requests
    assert not mcode.data.exists()


def test_ci_gets_junit_annotations_and_a_summary(mcode: Mcode, peer: Peer) -> None:
    peer.script(
        Tasks(bad=status(400, {"error": {"message": "::set-output name=a::b\n::error::</testcase>]]>"}}))
    )
    path = spec(mcode, "good", "bad", {"id": "later", "needs": ["bad"]})
    report, page = mcode.root / "junit.xml", mcode.root / "summary.md"
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)}
    run = mcode.run("jobs", "run", path, "--junit", report, env=env).check(4)
    suite = ElementTree.fromstring(report.read_bytes())[0]
    assert {name: suite.attrib[name] for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3", "failures": "0", "errors": "1", "skipped": "1",
    }  # fmt: skip
    lines = [line for line in (run.out + run.err).splitlines() if line.startswith("::")]
    assert len(lines) == 1
    assert lines[0].startswith("::error title=job%3A bad::")
    assert "| bad | failed |" in page.read_text()


def test_a_results_file_that_cannot_be_written_is_refused_before_any_call(mcode: Mcode, peer: Peer) -> None:
    run = mcode.run("jobs", "run", spec(mcode, "a"), "--results", mcode.root / "no" / "out.jsonl")
    assert (run.code, len(peer.requests)) == (74, 0)
    assert "--results" in run.err


def test_a_signal_settles_what_runs_and_the_same_id_goes_on(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(Tasks(b=gated(say("done"), gate)))
    path = spec(mcode, "a", "b", "c", job={"concurrency": 1})
    run = mcode.start("jobs", "run", path, "--run-id", "r", *JSON)
    peer.wait_for(2)
    run.send(signal.SIGINT)
    ended = run.finish().check(-signal.SIGINT)
    found = summary(ended)
    assert (found["exitCode"], found["status"], found["stoppedBy"]) == (
        130,
        "cancelled",
        "it was stopped by SIGINT",
    )
    assert states(mcode, "r") == {"a": "succeeded", "b": "cancelled", "c": "not_run"}
    assert mcode.query("SELECT outcome FROM turn_receipts WHERE settled_ms IS NULL") == []
    gate.open()
    mcode.run("jobs", "run", path, "--run-id", "r").check()
    assert states(mcode, "r") == {"a": "succeeded", "b": "succeeded", "c": "succeeded"}


def test_a_run_waits_for_another_of_its_job_or_takes_its_place(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(Tasks(a=[gated(say("done"), gate), say("done")]))
    path = spec(mcode, "a", job={"name": "j", "on_overlap": "wait"})
    first = mcode.start("jobs", "run", path, "--run-id", "first", *JSON)
    peer.wait_for(1)
    waiting = mcode.start("jobs", "run", path, "--run-id", "second", *JSON)
    waiting.wait_err("waiting for run first of job j")
    gate.open()
    assert summary(first.finish().check())["counts"]["succeeded"] == 1
    assert summary(waiting.finish().check())["counts"]["succeeded"] == 1
    gate = Gate()
    peer.script(Tasks(a=[gated(say("done"), gate), say("done")]))
    first = mcode.start("jobs", "run", path, "--run-id", "third", *JSON)
    peer.wait_for(3)
    replacing = spec(mcode, "a", job={"name": "j", "on_overlap": "replace"}, name="other.toml")
    mcode.run("jobs", "run", replacing, *JSON).check()
    assert summary(first.finish().check(4))["status"] == "cancelled"
    gate.open()


def test_limits_of_a_job_end_it_and_say_so(mcode: Mcode, peer: Peer) -> None:
    peer.script(Tasks(default=status(400)))
    path = spec(mcode, *(f"t{number}" for number in range(9)), job={"max_failures": 2, "concurrency": 1})
    found = summary(mcode.run("jobs", "run", path, *JSON).check(4))
    assert (found["counts"]["unsuccessful"], found["counts"]["notRun"]) == (2, 7)
    assert "2 tasks did not succeed (max_failures)" in found["stoppedBy"]
    gate = Gate()
    peer.script(Tasks(default=gated(say("late"), gate)))
    path = spec(mcode, "a", "b", job={"timeout": "700ms", "concurrency": 1})
    found = summary(mcode.run("jobs", "run", path, *JSON).check(6))
    gate.open()
    assert (found["counts"]["unsuccessful"], found["counts"]["notRun"]) == (1, 1)


def test_a_model_of_the_command_line_is_every_tasks_model(mcode: Mcode, peer: Peer) -> None:
    mcode.run(
        "jobs", "run", spec(mcode, {"id": "a", "model": "fake/no-such"}), "--model", "fake/big-1"
    ).check()
    assert [request.json["model"] for request in peer.calls] == ["big-1"]


def test_sessions_are_kept_by_key_and_gone_on_with_by_id(mcode: Mcode, peer: Peer) -> None:
    path = spec(mcode, {"id": "a", "session": "key:nightly-{{ task.id }}"})
    results = mcode.root / "out.jsonl"
    mcode.run("jobs", "run", path, "--results", results).check()
    first = records(results)["a"]["sessionId"]
    mcode.run("jobs", "run", path, "--results", results).check()
    assert records(results)["a"]["sessionId"] == first
    path = spec(mcode, {"id": "b", "session": f"id:{first}"})
    mcode.run("jobs", "run", path, "--run-id", "r", "--results", results).check()
    assert records(results)["b"]["sessionId"] == first
    assert mcode.run("jobs", "results", "r").check().out_bytes == results.read_bytes()
    assert json.loads(mcode.run("jobs", "list", *JSON).check().out)["runs"][0]["runId"] == "r"
