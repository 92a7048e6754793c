"""mcode retry: a turn without an answer is said again, one that has done something goes on; the model hears it once."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_when_busy import busy_session, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.pictures import png
from tests.support.running import Running
from tests.support.steps import Gate, call, gated, hang, say, status

JSON = ("--output-format", "json")
REFUSED = status(400, {"error": {"message": "no", "type": "invalid_request_error"}})
REMINDER = "ended without a finished answer"
TWO_CALLS = call("bash", {"command": "echo one"}) + call("bash", {"command": "echo two"})


def only_session(mcode: Mcode) -> str:
    (row,) = mcode.query("SELECT id FROM sessions")
    session: str = row["id"]
    return session


def failed(mcode: Mcode, peer: Peer, *flags: str) -> str:
    """A session whose one turn failed before the model had said anything."""
    peer.script(REFUSED)
    mcode.exec("the prompt", *flags).check(4)
    return only_session(mcode)


def inspect(mcode: Mcode, session: str, *flags: str, code: int = 0, **how: Any) -> dict[str, Any]:
    run = mcode.run("retry", session, "--inspect", *flags, *JSON, **how).check(code)
    found: dict[str, Any] = json.loads(run.out)
    assert (found["schemaVersion"], found["type"], found["exitCode"]) == (1, "retry.inspect", code)
    return found


def user_rows(mcode: Mcode) -> list[str]:
    rows = mcode.query("SELECT id FROM messages WHERE role = 'user' ORDER BY row")
    return [row["id"] for row in rows]


def said_ids(mcode: Mcode) -> list[str]:
    return [line["id"] for line in mcode.history()[1:] if line["message"]["role"] == "user"]


def test_a_turn_without_an_answer_is_said_again_under_the_same_message(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    session = failed(mcode, peer)
    found = inspect(mcode, session)
    assert (found["mode"], found["prompt"], found["errorCode"]) == (
        "resubmit",
        "the prompt",
        "LLM_BAD_REQUEST",
    )
    peer.script(REFUSED)
    mcode.run("retry", session, *JSON).check(4)
    peer.script(say("answered"))
    run = mcode.run("retry", session, *JSON).check()
    assert run.result["output"] == "answered"
    assert peer.last.text.count("the prompt") == 1
    assert REMINDER not in peer.last.text
    assert not peer.last.violations
    assert len(set(said_ids(mcode))) == 1
    assert len(said_ids(mcode)) == 3
    assert len(user_rows(mcode)) == 1
    sources = mcode.query("SELECT source, outcome FROM turn_receipts ORDER BY sequence")
    assert [(row["source"], row["outcome"]) for row in sources] == [
        ("api", "failed"),
        ("retry", "failed"),
        ("retry", "completed"),
    ]
    turns = [line["turn_id"] for line in mcode.history()[1:] if line["message"]["role"] == "user"]
    assert len(set(turns)) == 3
    (row,) = mcode.query("SELECT turn_id, data FROM messages WHERE role = 'user'")
    assert (row["turn_id"], json.loads(row["data"])["turn_id"]) == (turns[2], turns[2])
    assert json.loads(row["data"]).get("parent_id") != user_rows(mcode)[0]
    # and the conversation goes on
    peer.script(say("more"))
    mcode.exec("next", "--session", session).check()
    assert peer.last.text.count("the prompt") == 1


def test_a_turn_that_has_done_something_goes_on(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(TWO_CALLS, REFUSED)
    mcode.exec("the prompt").check(4)
    session = only_session(mcode)
    found = inspect(mcode, session)
    assert (found["mode"], found["prompt"]) == ("continue", "the prompt")
    peer.script(REFUSED)
    mcode.run("retry", session).check(4)
    assert inspect(mcode, session)["mode"] == "continue"
    peer.script(say("finished"))
    run = mcode.run("retry", session, "--output-format", "stream-json").check()
    assert run.result["output"] == "finished"
    assert [event["code"] for event in run.of_type("notice")] == ["retry.continue"]
    assert peer.last.text.count("the prompt") == 1
    assert peer.last.text.count(REMINDER) == 1  # it was not answered the first time: it stands there once
    assert not peer.last.violations
    assert len(set(said_ids(mcode))) == 2


#: where a run of two calls and an answer dies, and what a retry makes of it
POINTS = {
    "after-prompt": "resubmit",
    "after-append:1": "resubmit",
    "after-rows:1": "resubmit",
    "before-append:2": "resubmit",
    "after-append:2": "continue",
    "after-rows:2": "continue",
    "before-append:3": "continue",
    "after-append:3": "continue",
    "before-append:4": "continue",
    "after-append:4": "continue",
    "before-append:5": "continue",
    "after-append:5": "continue",
    "before-settlement": "continue",
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("point", POINTS)
def test_after_a_kill_the_model_gets_the_prompt_once(mcode: Mcode, peer: Peer, point: str) -> None:
    mcode.may_leave_processes = True
    peer.script(TWO_CALLS, say("answered"))
    mcode.exec("the prompt", env={"MCODE_FAULT": point}).check(-signal.SIGKILL)
    session = only_session(mcode)
    found = inspect(mcode, session)
    assert (found["mode"], found["reason"], found["prompt"]) == (
        POINTS[point],
        "process-restart",
        "the prompt",
    )
    # the retry dies too, before it has said anything, and after it
    for again in ("after-admission", "before-append:1"):
        mcode.run("retry", session, env={"MCODE_FAULT": again}).check(-signal.SIGKILL)
    peer.script(say("went on"))
    assert mcode.run("retry", session, *JSON).check().result["output"] == "went on"
    assert peer.last.text.count("the prompt") == 1
    assert peer.last.text.count(REMINDER) == (POINTS[point] == "continue")
    assert not peer.last.violations
    assert mcode.query("SELECT status FROM sessions") == [{"status": "idle"}]
    assert mcode.query("SELECT * FROM session_locks") == []
    results = [message for message in mcode.messages() if message["role"] == "tool"]
    calls = {
        block["id"]
        for message in mcode.messages()
        for block in message["content"]
        if block["type"] == "tool_call"
    }
    assert {block["call_id"] for message in results for block in message["content"]} == calls


def test_a_prompt_that_was_never_kept_cannot_be_said_again(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("the prompt", env={"MCODE_FAULT": "after-admission"}).check(-signal.SIGKILL)
    session = only_session(mcode)
    assert inspect(mcode, session, code=4)["code"] == "prompt_not_kept"
    run = mcode.run("retry", session).check(4)
    assert "prompt_not_kept" in run.err
    assert f"mcode exec --session {session} PROMPT" in run.err


def test_a_queued_prompt_that_was_never_kept_is_in_the_queue_again(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("begun"))
    mcode.exec("begin").check()
    session = only_session(mcode)
    item = mcode.run("queue", "add", session, "later").check().out.strip()
    drain = ("queue", "drain", "--session", session)
    mcode.run(*drain, env={"MCODE_FAULT": "after-admission"}).check(-signal.SIGKILL)
    run = mcode.run("retry", session).check(4)
    assert item in run.err
    assert f"mcode queue drain --session {session}" in run.err
    peer.script(REFUSED)
    mcode.run(*drain).check(4)
    peer.script(say("late"))
    assert mcode.run("retry", session, *JSON).check().result["output"] == "late"
    assert peer.last.text.count("later") == 1


def started_tool(mcode: Mcode, peer: Peer, *flags: str) -> Running:
    mark = mcode.workspace / "mark"
    peer.script(call("bash", {"command": "touch mark; sleep 300"}))
    running = mcode.start("exec", "the prompt", "--permission", "full", *flags)
    wait_until(mark.exists, "no command")
    return running


@pytest.mark.parametrize(("flags", "code"), [((), 128 + signal.SIGTERM), (("--timeout", "3s"), 6)])
def test_a_tool_that_was_cut_short_keeps_its_result(
    mcode: Mcode, peer: Peer, flags: tuple[str, ...], code: int
) -> None:
    running = started_tool(mcode, peer, *flags)
    if not flags:
        running.send(signal.SIGTERM)
    ended = running.finish()
    assert ended.code in (code, 128 - code), ended.err
    peer.script(say("went on"))
    mcode.run("retry", only_session(mcode)).check()
    assert "touch mark" in peer.last.text
    assert REMINDER in peer.last.text
    assert not peer.last.violations


def test_a_tool_whose_process_was_killed_has_its_interrupted_result(mcode: Mcode, peer: Peer) -> None:
    running = started_tool(mcode, peer)
    running.kill()
    running.process.wait()
    peer.script(say("went on"))
    mcode.run("retry", only_session(mcode)).check()
    assert peer.last.text.count("interrupted: the process stopped") == 1
    assert not peer.last.violations


def test_an_answered_turn_is_nothing_to_retry(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("hi").check()
    session = only_session(mcode)
    found = inspect(mcode, session, code=4)
    assert (found["mode"], "was answered" in found["why"]) == ("none", True)
    run = mcode.run("retry", session, *JSON).check(4)
    assert run.result["error"]["code"] == "nothing_to_retry"
    assert "nothing to retry" in run.err
    assert len(peer.calls) == 1
    mcode.run("retry", "mvs_" + "0" * 32).check(4)


def test_a_running_turn_is_busy(mcode: Mcode, peer: Peer) -> None:
    session, running, gate = busy_session(mcode, peer)
    assert inspect(mcode, session, code=75)["mode"] == "busy"
    run = mcode.run("retry", session, *JSON).check(75)
    assert run.result["error"]["code"] == "session_busy"
    assert "--when-busy" not in run.err
    gate.open()
    running.finish().check()


def test_of_two_retries_at_once_one_runs(mcode: Mcode, peer: Peer) -> None:
    session = failed(mcode, peer)
    gate = Gate()
    peer.script(gated(say("first"), gate))
    first = mcode.start("retry", session, *JSON)
    gate.wait_reached()
    mcode.run("retry", session).check(75)
    gate.open()
    assert first.finish().check().result["output"] == "first"
    mcode.run("retry", session).check(4)


def snapshot(mcode: Mcode) -> dict[Path, str]:
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in mcode.data.rglob("*")
        if path.is_file() and not path.name.endswith("-shm")
    }


def test_inspection_changes_nothing(mcode: Mcode, peer: Peer) -> None:
    peer.script(TWO_CALLS, say("never"))
    mcode.exec("the prompt\nsecond line", env={"MCODE_FAULT": "after-append:3"}).check(-signal.SIGKILL)
    before = snapshot(mcode)
    session = only_session(mcode)
    found = inspect(mcode, session)
    assert (found["mode"], found["prompt"], found["attachments"]) == ("continue", "the prompt", [])
    assert "mode: continue" in mcode.run("retry", session, "--inspect").check().out
    assert snapshot(mcode) == before
    assert mcode.query("SELECT status FROM sessions") == [{"status": "started"}]


def test_after_a_refused_key_it_warns_and_runs(mcode: Mcode, peer: Peer) -> None:
    peer.script(status(401, {"error": {"message": "invalid api key", "type": "authentication_error"}}))
    mcode.exec("the prompt").check(77)
    session = only_session(mcode)
    assert "LLM_AUTH_ERROR" in inspect(mcode, session)["warning"]
    peer.script(say("answered"))
    run = mcode.run("retry", session).check()
    assert "the last attempt ended with LLM_AUTH_ERROR" in run.err
    assert run.out == "answered\n"


def attached(mcode: Mcode, peer: Peer) -> tuple[str, Path]:
    (mcode.workspace / "p.png").write_bytes(png())
    session = failed(mcode, peer, "--file", "p.png")
    (kept,) = (mcode.session_dir() / "attachments").iterdir()
    return session, kept


def test_attachments_are_sent_again(mcode: Mcode, peer: Peer, api: str) -> None:
    session, kept = attached(mcode, peer)
    (mcode.workspace / "p.png").unlink()
    first = peer.last.text
    assert inspect(mcode, session)["attachments"] == [
        {"name": "p.png", "mime": "image/png", "digest": kept.name, "isMissing": False}
    ]
    peer.script(say("seen"))
    mcode.run("retry", session).check()
    assert peer.last.json["messages" if "messages" in peer.last.json else "input"] == (
        json.loads(first).get("messages") or json.loads(first)["input"]
    )


def test_an_attachment_that_is_gone_is_named(mcode: Mcode, peer: Peer) -> None:
    session, kept = attached(mcode, peer)
    kept.unlink()
    assert inspect(mcode, session, code=4)["attachments"][0]["isMissing"]
    calls = len(peer.calls)
    run = mcode.run("retry", session, *JSON).check(4)
    assert run.result["error"]["code"] == "attachment_missing"
    assert "p.png" in run.err
    assert len(peer.calls) == calls


def test_a_request_id_keeps_its_meaning(mcode: Mcode, peer: Peer) -> None:
    session = failed(mcode, peer, "--request-id", "r1")
    peer.script(say("answered"))
    run = mcode.run("retry", session, *JSON).check()
    assert run.result["attempt"] == 2
    again = mcode.exec("the prompt", "--request-id", "r1", *JSON).check()
    assert (again.result["replayed"], again.result["output"]) == (True, "answered")
    assert peer.last.text.count("the prompt") == 1


def test_it_passes_a_queue_that_the_failure_has_paused(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("begun"))
    mcode.exec("begin").check()
    session = only_session(mcode)
    mcode.run("queue", "add", session, "waits").check()
    peer.script(REFUSED)
    mcode.exec("the prompt", "--session", session).check(4)
    assert mcode.query("SELECT reason FROM queue_pauses") == [{"reason": "turn-final-failure"}]
    peer.script(say("answered"))
    mcode.run("retry", session).check()
    assert "waits" not in peer.last.text


def test_what_was_said_to_the_turn_meanwhile_stands_there_once(mcode: Mcode, peer: Peer) -> None:
    session, running, _ = busy_session(mcode, peer)
    mcode.run("steer", session, "mind the gap", "--machine").check()
    running.send(signal.SIGTERM)
    running.finish()
    assert inspect(mcode, session)["mode"] == "resubmit"
    assert inspect(mcode, session)["prompt"] == "begin"
    peer.script(say("answered"))
    mcode.run("retry", session).check()
    assert peer.last.text.count("mind the gap") == 1
    assert peer.last.text.count('"begin"') == 1


def test_flags_of_exec_count(mcode: Mcode, peer: Peer) -> None:
    session = failed(mcode, peer)
    peer.script(call("bash", {"command": "true"}))
    run = mcode.run("retry", session, "--model", "fake/other-2", "--max-steps", "1", *JSON).check(7)
    assert peer.last.json["model"] == "other-2"
    assert run.result["limit"]["name"] == "steps"
    result = mcode.root / "result.json"
    peer.script(hang())
    mcode.run("retry", session, "--timeout", "2s", "--result", result).check(6)
    assert json.loads(result.read_text())["status"] == "timeout"
    for flag in ("--request-id", "--session", "--input"):
        mcode.run("retry", session, flag, "x").check(2)


def test_it_runs_where_the_session_belongs_and_moves_it_where_asked(mcode: Mcode, peer: Peer) -> None:
    session = failed(mcode, peer)
    elsewhere = mcode.root / "elsewhere"
    elsewhere.mkdir()
    peer.script(REFUSED)
    mcode.run("retry", session, cwd=elsewhere).check(4)
    assert mcode.query("SELECT workspace FROM sessions") == [{"workspace": str(mcode.workspace)}]
    peer.script(say("moved"))
    mcode.run("retry", session, "--cwd", ".", cwd=elsewhere).check()
    assert mcode.query("SELECT workspace FROM sessions") == [{"workspace": str(elsewhere)}]
    assert peer.last.text.count("the prompt") == 1
    assert "the workspace of this conversation is now" in peer.last.text
    assert not peer.last.violations


def test_a_workspace_that_is_gone_is_named_with_the_way_out(mcode: Mcode, peer: Peer) -> None:
    work = mcode.root / "gone"
    work.mkdir()
    peer.script(REFUSED)
    mcode.exec("the prompt", cwd=work).check(4)
    work.rmdir()
    run = mcode.run("retry", only_session(mcode)).check(4)
    assert "workspace_missing" in run.err
    assert "--cwd DIR" in run.err


def test_a_session_without_a_turn_has_nothing_to_retry(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("hi", env={"MCODE_FAULT": "after-session"}).check(-signal.SIGKILL)
    run = mcode.run("retry", only_session(mcode)).check(4)
    assert "no turn has run" in run.err
