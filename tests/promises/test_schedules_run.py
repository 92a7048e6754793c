"""`mcode schedule run-due`: each due time once, whoever calls, and what is told of how it ended."""

from __future__ import annotations

import json
import signal
import stat
from pathlib import Path

import pytest

from tests.support.jobs import Tasks, spec
from tests.support.mcode import KEY, Mcode
from tests.support.peer import Peer
from tests.support.schedules import add, history, lines, listed, run_due
from tests.support.steps import Gate, gated, say, status

ONE = "2026-05-04T01:00:10Z"
TWO = "2026-05-04T02:00:10Z"


def hook(mcode: Mcode, body: str = "") -> Path:
    """A failure command in a directory with a blank, which writes down what it gets."""
    path = mcode.root / "my hooks" / "tell"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{body}\nprintf '%s\\n' \"$@\" >> '{mcode.root}/args'\n"
                    f"env -0 >> '{mcode.root}/told'\nprintf 'END\\0' >> '{mcode.root}/told'\n")  # fmt: skip
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def told(mcode: Mcode) -> list[dict[str, str]]:
    """The variables of each call of the failure command."""
    path = mcode.root / "told"
    calls = path.read_text().split("END\0")[:-1] if path.exists() else []
    return [dict(one.split("=", 1) for one in call.split("\0") if "=" in one) for call in calls]


def test_eight_callers_at_once_run_each_due_time_once(mcode: Mcode, peer: Peer) -> None:
    names = [f"s{number}" for number in range(4)]
    for name in names:
        add(mcode, name, "--catch-up", "all").check()
    tasks = Tasks()
    peer.script(tasks)
    callers = [mcode.start("schedule", "run-due", "--now", TWO, "--output-format", "jsonl") for _ in range(8)]
    runs = [one.finish(60) for one in callers]
    assert [run.code for run in runs] == [0] * 8, [run.err for run in runs]
    over = [(one["schedule"], one["dueAt"]) for run in runs for one in lines(run)]
    assert sorted(over) == sorted(
        (name, f"2026-05-04T0{hour}:00:00+00:00") for name in names for hour in (1, 2)
    )
    assert tasks.asked == dict.fromkeys(names, 2)


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ({}, 0),
        ({"b": status(400)}, 4),
        ({"a": status(400), "b": status(400)}, 4),
        ({"a": status(400), "b": status(401)}, 9),
    ],
)
def test_the_exit_code_is_that_of_all_runs_that_did_not_succeed(
    mcode: Mcode, peer: Peer, steps: dict[str, object], code: int
) -> None:
    mcode.configure(retry="max_retries = 0")
    peer.script(Tasks(**steps))
    for name in ("a", "b", "c"):
        add(mcode, name).check()
    run = run_due(mcode, ONE).check(code)
    assert run.out == ""
    assert sorted(line.split(":")[1].strip() for line in run.err.splitlines()) == sorted(steps)
    assert run_due(mcode, "2026-05-04T01:01:10Z").check().err == "", "it is told once"
    assert {name: row["lastStatus"] for name, row in listed(mcode).items()} == {
        name: "failed" if name in steps else "succeeded" for name in ("a", "b", "c")
    }


def test_a_spec_that_is_gone_or_broken_when_it_is_due_fails_and_says_so(mcode: Mcode, peer: Peer) -> None:
    gone, broken = spec(mcode, "a", name="gone.toml"), spec(mcode, "a", name="broken.toml")
    for path in (gone, broken):
        add(mcode, path.stem, path).check()
    gone.unlink()
    broken.write_text("[[tasks]]\nid = 1\nprompt = ")
    run = run_due(mcode, ONE).check(2)
    assert "gone.toml cannot be read: No such file or directory" in run.err
    assert "broken.toml:3" in run.err
    assert peer.calls == []
    assert history(mcode, "gone") == [("05-04T01:00", "failed", 2)]
    gone.write_text('[[tasks]]\nid = "a"\nprompt = "again"\n')
    run_due(mcode, TWO).check(2)
    assert history(mcode, "gone")[-1] == ("05-04T02:00", "succeeded", 0)


def test_a_workspace_that_is_gone_fails_and_says_so(mcode: Mcode, peer: Peer) -> None:
    (mcode.root / "elsewhere").mkdir()
    add(mcode, "a", "--cwd", str(mcode.root / "elsewhere")).check()
    (mcode.root / "elsewhere").rmdir()
    assert "elsewhere" in run_due(mcode, ONE).check(2).err


def test_it_runs_where_it_was_added_with_what_it_was_given(mcode: Mcode, peer: Peer) -> None:
    add(mcode, "a", "--label", "k=v").check()
    elsewhere = mcode.root / "home"
    (record,) = lines(run_due(mcode, ONE, "--output-format", "jsonl", cwd=elsewhere).check())
    (row,) = mcode.query("SELECT workspace, session_kind, labels FROM sessions")
    assert (row["workspace"], row["session_kind"]) == (str(mcode.workspace), "cron")
    assert json.loads(row["labels"]) == {"k": "v"}
    assert (record["status"], record["exitCode"], record["attempt"]) == ("succeeded", 0, 1)


def test_a_failure_is_told_to_a_command_by_variables_alone(mcode: Mcode, peer: Peer) -> None:
    evil = "$(touch owned) `touch owned` %s ; touch owned"
    peer.script(status(400, {"type": "error", "error": {"type": "x", "message": evil}}))
    path = hook(mcode)
    command = f"'{path}' 'two words' '$HOME' {{{{ x }}}}"
    add(mcode, "a", "--on-failure", command, zone="Europe/Berlin").check()
    run = run_due(
        mcode, ONE, "--output-format", "jsonl", env={"SOME_TOKEN": "secret-12345", "PLAIN": "yes"}
    ).check(4)
    (variables,) = told(mcode)
    (record,) = lines(run)
    assert (mcode.root / "args").read_text().splitlines() == ["two words", "$HOME", "{{", "x", "}}"]
    assert {name.removeprefix("MCODE_SCHEDULE_"): value for name, value in variables.items()
            if name.startswith("MCODE_SCHEDULE_") and not name.endswith(("ERROR", "MS", "ID"))} == {
        "NAME": "a", "DUE": "2026-05-04T03:00:00+02:00", "STATUS": "failed", "EXIT_CODE": "4",
        "ERROR_CODE": "LLM_BAD_REQUEST", "WORKSPACE": str(mcode.workspace), "SPEC": "",
    }  # fmt: skip
    assert evil in variables["MCODE_SCHEDULE_ERROR"]
    assert variables["MCODE_SCHEDULE_RUN_ID"] == record["jobRunId"]
    assert variables["MCODE_SCHEDULE_SESSION_ID"] == record["sessionId"]
    assert variables["PLAIN"] == "yes"
    assert "SOME_TOKEN" not in variables
    assert KEY not in str(variables)
    assert record["hook"] == "0"
    assert not list(mcode.root.rglob("owned"))
    peer.script(say("fine"))
    run_due(mcode, TWO).check()
    assert len(told(mcode)) == 1, "a success is no failure"


def test_a_failure_command_that_fails_is_said_and_changes_nothing_else(mcode: Mcode, peer: Peer) -> None:
    peer.script(status(400))
    path = hook(mcode, "echo cannot page >&2; exit 3")
    add(mcode, "a", "--on-failure", f"'{path}'").check()
    run = run_due(mcode, ONE, "--output-format", "jsonl").check(4)
    assert "ended with 3: cannot page" in run.err
    assert lines(run)[0]["hook"] == "3"
    path.unlink()
    run = run_due(mcode, TWO, "--output-format", "jsonl").check(4)
    assert "cannot be started" in run.err
    assert lines(run)[0]["hook"] == "not started"


def test_a_due_time_that_comes_while_one_runs_is_skipped(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(gated(say("slow"), gate), say("quick"))
    add(mcode, "a").check()
    first = mcode.start("schedule", "run-due", "--now", ONE)
    gate.wait_reached()
    assert listed(mcode)["a"]["lastStatus"] == "running"
    assert "is running" in mcode.run("schedule", "remove", "a").check(75).err
    second = run_due(mcode, TWO, "--output-format", "jsonl").check()
    (record,) = lines(second)
    assert (record["status"], record["exitCode"], second.err) == ("skipped", None, "")
    assert "was under way" in record["error"]["message"]
    gate.open()
    first.finish().check()
    assert [status for _, status, _ in history(mcode, "a")] == ["succeeded", "skipped"]


def test_a_due_time_that_waits_runs_when_the_other_is_over(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(gated(say("slow"), gate), say("quick"))
    add(mcode, "a", "--on-overlap", "wait").check()
    first = mcode.start("schedule", "run-due", "--now", ONE)
    gate.wait_reached()
    for now in (TWO, "2026-05-04T03:00:10Z"):
        run_due(mcode, now).check()
    gate.open()
    first.finish().check()
    assert history(mcode, "a") == [
        ("05-04T01:00", "succeeded", 0),
        ("05-04T02:00", "missed", None),
        ("05-04T03:00", "succeeded", 0),
    ]


def test_a_due_time_can_take_the_place_of_the_one_that_runs(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(gated(say("slow"), gate), say("quick"))
    add(mcode, "a", "--on-overlap", "replace").check()
    first = mcode.start("schedule", "run-due", "--now", ONE)
    gate.wait_reached()
    run_due(mcode, TWO).check()
    first.finish().check(4)
    assert history(mcode, "a") == [("05-04T01:00", "cancelled", 4), ("05-04T02:00", "succeeded", 0)]


def test_a_run_by_hand_of_the_same_job_is_an_overlap_too(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(gated(say("slow"), gate), say("quick"))
    path = spec(mcode, "a")
    add(mcode, "a", path).check()
    by_hand = mcode.start("jobs", "run", path)
    gate.wait_reached()
    (record,) = lines(run_due(mcode, ONE, "--output-format", "jsonl").check())
    assert record["status"] == "skipped"
    gate.open()
    by_hand.finish().check()


def test_a_slow_schedule_holds_no_other_up(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(Tasks(slow=gated(say("slow"), gate)))
    add(mcode, "slow", "--max-cost", "1").check()
    add(mcode, "quick", "--max-cost", "2").check()
    caller = mcode.start("schedule", "run-due", "--now", ONE)
    gate.wait_reached()
    while listed(mcode)["quick"]["lastStatus"] != "succeeded":
        assert caller.process.poll() is None
    gate.open()
    caller.finish().check()


def test_what_becomes_due_while_another_runs_does_not_wait_for_another_call(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(Tasks(slow=gated(say("slow"), gate)))
    add(mcode, "slow").check()
    caller = mcode.start("schedule", "run-due", "--now", ONE, "--look-every", "100ms")
    gate.wait_reached()
    # as time goes by for the caller, which has been told where it begins
    add(mcode, "late", cron="* * * * *", now="2026-05-04T00:59:00Z").check()
    while listed(mcode)["late"]["lastStatus"] != "succeeded":
        assert caller.process.poll() is None
    gate.open()
    caller.finish().check()


@pytest.mark.parametrize(("policy", "after"), [("leave", "cancelled"), ("resume", "succeeded")])
def test_a_signal_ends_what_runs_and_the_policy_says_whether_it_is_over(
    mcode: Mcode, peer: Peer, policy: str, after: str
) -> None:
    gate = Gate()
    tasks = Tasks(b=[gated(say("slow"), gate), say("quick")])
    peer.script(tasks)
    add(mcode, "a", spec(mcode, "a", {"id": "b", "needs": ["a"]}), "--when-interrupted", policy).check()
    running = mcode.start("schedule", "run-due", "--now", ONE)
    gate.wait_reached()
    running.send(signal.SIGTERM)
    gate.open()
    running.finish().check(-signal.SIGTERM)
    run_due(mcode, "2026-05-04T01:01:10Z").check()
    ((_, found, code),) = history(mcode, "a")
    assert (found, code) == (after, 0 if after == "succeeded" else 143)
    assert tasks.asked == {"a": 1, "b": 2 if policy == "resume" else 1}


def test_nothing_is_made_of_an_empty_directory_but_the_store(mcode: Mcode) -> None:
    run = run_due(mcode, ONE, "--output-format", "json").check()
    assert json.loads(run.out)["runs"] == []
    assert run.err == ""
