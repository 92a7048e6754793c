"""`--check`: a command that has to succeed after the answer, and what the agent and the caller hear of it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_queue import add, idle_session
from tests.support.mcode import KEY, Mcode
from tests.support.peer import Peer
from tests.support.steps import answer, call, forever, say

JSON = ("--output-format", "json")
STREAM = ("--output-format", "stream-json")

MEND = call("write", {"file_path": "fixed.txt", "content": "mended\n"})


def test_a_failure_goes_back_and_the_last_answer_counts(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(say("first try"), answer(say("I see."), MEND), say("second try"), say("and on"))
    check = "echo looked >>seen.txt; cat fixed.txt"
    run = mcode.exec("go", "--check", check, *STREAM, "-o", "answer.txt").check(0)
    result = run.result
    assert (mcode.workspace / "answer.txt").read_text() == "second try\n"
    assert (result["output"], result["steps"], result["toolCalls"]) == ("second try", 3, 1)
    took = result["check"].pop("durationMs")
    assert took >= 0
    assert result["check"] == {
        "status": "passed", "runs": 2, "exitCode": 0, "signal": None, "timedOut": False,
    }  # fmt: skip
    assert result["fileChanges"]["paths"] == ["fixed.txt", "seen.txt"], "what the check changed is the turn's"
    started, ended = run.of_type("check.started"), run.of_type("check.completed")
    assert [(one["number"], one["command"]) for one in started] == [(1, check), (2, check)]
    assert [(one["status"], one["exitCode"], one["attemptsLeft"]) for one in ended] == [
        ("failed", 1, 3),
        ("passed", 0, 2),
    ]
    assert "No such file" in ended[0]["output"]
    assert "exit code: 1" in ended[0]["output"]
    told = peer.calls[1].text
    assert "first try" in told
    assert check in told
    assert "fixed.txt: No such file" in told
    assert "the check failed (exit code 1): the agent is told, 3 attempts left" in run.err
    # the words of the check stand in history, and are nobody's prompt
    mcode.exec("-c", "next").check(0)
    assert "fixed.txt: No such file" in peer.last.text
    shown = json.loads(mcode.run("sessions", "show", result["sessionId"], *JSON).check().out)
    assert len(shown["questions"]) == 2
    assert "No such file" in mcode.run("sessions", "show", result["sessionId"], "--expand").check().out


@pytest.mark.parametrize(("attempts", "asked"), [("0", 1), ("2", 3)])
def test_after_the_last_attempt_the_run_fails(mcode: Mcode, peer: Peer, attempts: str, asked: int) -> None:
    peer.script(*(say(f"answer {number}") for number in range(1, asked + 1)), say("now I know"))
    check = f"echo 'broken by {KEY}' >&2; exit 3"
    run = mcode.exec("go", "--check", check, "--check-attempts", attempts, *JSON, "-o", "answer.txt").check(4)
    result = run.result
    assert (result["status"], result["output"]) == ("failed", None)
    assert result["partialOutput"] == f"answer {asked}"
    assert (len(peer.calls), result["check"]["runs"], result["check"]["exitCode"]) == (asked, asked, 3)
    error = result["error"]
    assert (error["code"], error["category"], error["retryable"]) == ("CHECK_FAILED", "runtime", False)
    assert error["message"].endswith("broken by *** exit code: 3")
    assert (KEY in run.out, KEY in run.err) == (False, False)
    assert not (mcode.workspace / "answer.txt").exists()
    (row,) = mcode.query("SELECT status, error_code FROM sessions")
    assert (row["status"], row["error_code"]) == ("error", "CHECK_FAILED")
    # the last failure too is known to whoever goes on, who asks for no check unless it is given again
    mcode.run("retry", result["sessionId"]).check(0)
    assert peer.last.text.count("</check-output>") == asked


@pytest.mark.parametrize(
    ("check", "facts", "told"),
    [
        ("sleep 60 & sleep 60", {"timedOut": True, "signal": 15}, "timed out after 1 s"),
        ("kill -9 $$", {"signal": 9, "exitCode": None}, "ended by signal 9 (SIGKILL)"),
        ("yes no-end", {"timedOut": True}, "bytes left out here"),
        ("./no-such-program", {"exitCode": 127}, "No such file"),
    ],
    ids=["hangs", "killed", "no-end", "not-found"],
)
def test_whatever_a_check_does_is_told(
    mcode: Mcode, peer: Peer, check: str, facts: dict[str, Any], told: str
) -> None:
    mcode.configure(tables='[timeouts]\ncommand = "1s"')
    peer.script(say("one"), say("two"))
    result = mcode.exec("go", "--check", check, "--check-attempts", "1", *JSON).check(4).result
    assert result["error"]["code"] == "CHECK_FAILED"
    assert result["check"].items() >= {**facts, "status": "failed", "runs": 2}.items()
    assert told in peer.last.text
    assert len(peer.last.body) < 300_000


def test_what_a_check_leaves_running_goes_with_it(mcode: Mcode, peer: Peer) -> None:
    """The next run of it meets nothing of the one before, and what the model left running is still there."""
    peer.script(call("bash", {"command": "sleep 301 & echo $! >model.pid"}), say("one"), say("two"))
    check = (
        "kill -0 $(cat model.pid) || exit 9; [ -e check.pid ] && { kill -0 $(cat check.pid) && exit 8; exit 0; }; "
        "sleep 302 & echo $! >check.pid; exit 1"
    )
    result = mcode.exec("go", "--check", check, *JSON).check(0).result
    assert result["check"]["runs"] == 2
    left = [one["command"] for one in result["leftoverProcesses"]]
    assert sorted(left) == ["sleep 301", "sleep 302"]


def test_a_check_that_cannot_be_started_ends_the_run_at_once(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "cd .. && mv work moved"}), say("done"))
    result = mcode.exec("go", "--check", "true", "--allow", "bash:*", *JSON).check(4).result
    assert result["error"]["code"] == "CHECK_FAILED"
    assert "could not be started" in result["error"]["message"]
    assert (len(peer.calls), result["check"]["exitCode"]) == (2, None)


@pytest.mark.parametrize(
    ("flags", "code", "status"),
    [
        (("--max-steps", "1", "--check", "exit 1"), 7, "failed"),
        (("--timeout", "3s", "--check", "sleep 60"), 6, "interrupted"),
    ],
    ids=["steps", "timeout"],
)
def test_limits_hold_for_a_check(
    mcode: Mcode, peer: Peer, flags: tuple[str, ...], code: int, status: str
) -> None:
    peer.script(say("the answer"))
    run = mcode.exec("go", *flags, *STREAM).check(code)
    assert run.result["check"]["status"] == status
    assert run.result["partialOutput"] == "the answer"
    assert [one["status"] for one in run.of_type("check.completed")] == [status]


def test_a_signal_ends_the_check_and_the_turn(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("the answer"), say("on"))
    running = mcode.start("exec", "go", "--check", "sleep 60 & sleep 60", *STREAM)
    running.wait_event("check.started")
    running.send(signal.SIGINT)
    run = running.finish()
    assert run.code == -signal.SIGINT
    assert (run.result["status"], run.result["check"]["status"]) == ("cancelled", "interrupted")
    assert mcode.survivors() == []
    mcode.exec("-c", "next").check(0)


def test_a_task_of_a_job_has_its_values_as_variables(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(say("done")))
    (mcode.workspace / "job.toml").write_text(
        """[vars]
area = "src"
[[tasks]]
id = "each"
prompt = "Review {{ item.path }}"
check = 'printf "%s in %s\\n" "$MCODE_ITEM_PATH" "$MCODE_VAR_AREA" >>seen.txt; [ "$MCODE_ITEM_PATH" != bad ]'
check_attempts = 0
matrix = { path = ["$(touch hit) a", "bad"] }
"""
    )
    mcode.run("jobs", "run", "job.toml", "--concurrency", "1").check(4)
    assert (mcode.workspace / "seen.txt").read_text() == "$(touch hit) a in src\nbad in src\n"
    assert not (mcode.workspace / "hit").exists()


def test_queued_items_have_no_check(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "later")
    mcode.exec("--session", session, "now", "--drain", "--check", "echo ran >>runs.txt").check(0)
    assert len(peer.calls) == 3
    assert (mcode.workspace / "runs.txt").read_text() == "ran\n"


def test_a_recording_gives_a_checks_words_back(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    peer.script(say("one"), say("two"))
    (mcode.workspace / "flag").touch()
    check = "echo ran >>runs.txt; rm flag && exit 1; exit 0"
    rec = tmp_path / "rec"
    made = mcode.exec("go", "--check", check, "--record", rec, *JSON).check(0).result
    mcode.configure(tables=f'[providers.tape]\napi = "replay"\npath = "{rec}"')
    again = mcode.exec("go", "--check", check, "--model", "tape/big-1", *JSON).check(0).result
    assert (again["output"], again["check"]["runs"]) == (made["output"], 2) == ("two", 2)
    assert (mcode.workspace / "runs.txt").read_text() == "ran\nran\n", "a replay runs no command"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--check", " "), "--check is empty"),
        (("--check-attempts", "2"), "--check-attempts needs --check"),
        (("--when-busy", "queue", "--check", "true"), "--when-busy queue and --check cannot be combined"),
    ],
    ids=["empty", "alone", "queued"],
)
def test_a_check_that_cannot_be_meant_is_refused(
    mcode: Mcode, peer: Peer, flags: tuple[str, ...], said: str
) -> None:
    assert said in mcode.exec("go", *flags).check(2).err
    assert peer.calls == []


def test_a_dry_run_shows_the_check_and_runs_nothing(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(say("never")))
    run = mcode.exec("go", "--check", "touch ran", "--dry-run", *JSON).check(0)
    assert json.loads(run.out)["invocation"]["check"] == {"command": "touch ran", "attempts": 3}
    assert not (mcode.workspace / "ran").exists()
