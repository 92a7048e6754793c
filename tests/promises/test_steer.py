"""`mcode steer`, and `exec --when-busy steer`: words for a turn that runs, once each, lost never."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_events import check_stream, schemas  # noqa: F401 - a fixture
from tests.promises.test_when_busy import busy_session, echo, items, prompts, wait_until
from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer
from tests.support.pictures import png
from tests.support.running import Running
from tests.support.steps import Gate, answer, call, drip, forever, gated, say, status

JSON = ("--output-format", "json")
LINES = ("--output-format", "stream-json")


def steer(mcode: Mcode, session: str, text: str, *flags: str, code: int = 0) -> Run:
    return mcode.run("steer", session, text, *JSON, *flags).check(code)


def signals(mcode: Mcode) -> list[dict[str, Any]]:
    return mcode.query("SELECT * FROM turn_signals ORDER BY row")


def turn_id(mcode: Mcode) -> str:
    (row,) = mcode.query("SELECT turn_id FROM session_locks")
    found: str = row["turn_id"]
    return found


def newest(request: Any) -> Any:
    """Answers as `echo` does, also where the newest thing is a tool's result."""
    content = request.messages[-1]["content"]
    said = [block["text"] for block in content if block["type"] == "text"] if content else []
    return say("echo " + (said[-1] if said else "a result"))


def in_a_tool(mcode: Mcode, peer: Peer, *flags: str) -> tuple[str, Running, Path]:
    """A session whose turn runs a command that ends when the returned file is there."""
    go = mcode.root / "go"
    peer.script(call("bash", {"command": f"until [ -e {go} ]; do sleep 0.02; done"}), forever(newest))
    running = mcode.start("exec", "begin", *(flags or LINES))
    wait_until(lambda: mcode.survivors() and _has_shell(mcode), "no command runs")
    (row,) = mcode.query("SELECT id FROM sessions")
    return row["id"], running, go


def _has_shell(mcode: Mcode) -> bool:
    return any("until" in line and "mcode_exec" not in line for _, line in mcode.survivors())


def test_words_during_a_tool_are_taken_before_the_next_call(mcode: Mcode, peer: Peer) -> None:
    session, running, go = in_a_tool(mcode, peer)
    said = steer(mcode, session, "look left")
    assert said.result["status"] == "steered"
    assert said.result["turnId"] == turn_id(mcode)
    assert said.result["sessionId"] == session
    assert not said.result["replayed"]
    assert len(peer.calls) == 1
    go.touch()
    run = running.finish().check()
    assert run.result["output"] == "echo look left"
    (taken,) = run.of_type("steer.accepted")
    assert (taken["text"], taken["turnId"]) == ("look left", said.result["turnId"])
    assert prompts(mcode) == ["begin", "look left"]
    (row,) = signals(mcode)
    assert row["state"] == "consumed"
    shown = mcode.run("sessions", "show", session).check().out
    assert "user · steer" in shown
    assert "look left" in shown


def test_the_sentence_is_on_stderr_and_stdout_is_empty(mcode: Mcode, peer: Peer) -> None:
    session, running, go = in_a_tool(mcode, peer)
    run = mcode.run("steer", session[:14], "x", cwd=mcode.root).check()
    assert run.out == ""
    assert f"handed to turn {turn_id(mcode)}" in run.err
    events = mcode.run("steer", session, "y", *LINES).check().events
    assert [event["type"] for event in events] == ["exec.started", "exec.completed"]
    assert events[-1]["turnId"] == turn_id(mcode)
    go.touch()
    running.finish().check()
    assert prompts(mcode) == ["begin", "x", "y"]


def test_a_person_too_late_for_the_last_step_waits_in_the_queue(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    steer(mcode, session, "too late")
    gate.open()
    run = first.finish().check()
    assert run.result["output"] == "first"
    assert prompts(mcode) == ["begin"]
    (item,) = items(mcode)
    assert f"'too late') wait in the queue as {item['id']}" in run.err
    assert item["source"] == "steer"
    (row,) = signals(mcode)
    assert (row["state"], row["item_id"]) == ("requeued", item["id"])
    mcode.run("queue", "drain", "--session", session).check()
    assert prompts(mcode) == ["begin", "too late"]
    assert signals(mcode)[0]["state"] == "requeued"


def test_a_machine_holds_the_close_and_the_last_answer_counts(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    steer(mcode, session, "deployed", "--machine", "--producer", "ci")
    steer(mcode, session, "and a person")
    gate.open()
    result = first.finish().check().result
    assert result["output"] == "echo and a person"
    assert result["steps"] == 2
    assert prompts(mcode) == ["begin", "deployed", "and a person"]
    assert items(mcode) == []


@pytest.mark.parametrize("cut", [False, True])
def test_a_machine_s_words_behind_the_last_look_are_taken_before_the_turn_is_settled(
    mcode: Mcode, peer: Peer, cut: bool
) -> None:
    gate = Gate()
    pieces = [replace(say("one, "), finish="max_tokens")] if cut else []
    peer.script(*pieces, gated(say("first"), gate), forever(newest))
    running = mcode.start("exec", "begin", *JSON)
    gate.wait_reached()
    (row,) = mcode.query("SELECT session_id, turn_id FROM session_locks")
    history = mcode.session_dir() / "messages.jsonl"
    wait_until(
        lambda: mcode.query("SELECT history_bytes AS n FROM sessions")[0]["n"] == history.stat().st_size,
        "the rows of what was said so far are not written",
    )
    store = sqlite3.connect(mcode.data / "mcode.db", isolation_level=None)
    store.execute("BEGIN IMMEDIATE")  # rows and settlement wait, history does not
    gate.open()
    wait_until(lambda: "first" in str(mcode.messages()), "the answer is not in history")
    store.execute(
        "INSERT INTO turn_signals (id, session_id, turn_id, kind, producer, is_machine, text, message_id, state,"
        " created_ms) VALUES ('sig_1', ?, ?, 'steer', 'ci', 1, 'deployed', 'msg-user-v1-x', 'pending', 0)",
        (row["session_id"], row["turn_id"]),
    )
    store.execute("COMMIT")
    store.close()
    assert running.finish().check().result["output"] == "echo deployed"
    assert prompts(mcode)[-1] == "deployed"
    assert signals(mcode)[0]["state"] == "consumed"


def test_a_failed_turn_says_what_it_has_dropped(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(gated(status(400, {"error": {"type": "invalid_request_error", "message": "no"}}), gate))
    running = mcode.start("exec", "begin", *LINES)
    gate.wait_reached()
    (row,) = mcode.query("SELECT id FROM sessions")
    steer(mcode, row["id"], "deployed", "--machine", "--producer", "ci")
    steer(mcode, row["id"], "from a person")
    gate.open()
    run = running.finish().check(4)
    told = {event["code"]: event["message"] for event in run.of_type("notice")}
    assert "words from ci that came too late for the turn ('deployed') are dropped" in told["steer.dropped"]
    assert told["steer.queued"].startswith(
        "words that came too late for the turn ('from a person') wait in the"
    )
    assert mcode.query("SELECT reason FROM queue_pauses") == [{"reason": "turn-final-failure"}]


def test_words_during_a_streaming_call_are_taken_at_the_next_boundary(mcode: Mcode, peer: Peer) -> None:
    long = drip(call("bash", {"command": "true", "description": "word " * 40}), 0.1)
    peer.script(long, forever(echo))
    running = mcode.start("exec", "begin", *JSON)
    peer.wait_for(1)
    (row,) = mcode.query("SELECT id FROM sessions")
    steer(mcode, row["id"], "meanwhile")
    assert running.finish().check().result["output"] == "echo meanwhile"
    assert items(mcode) == []


def test_an_idle_session_runs_the_words_as_a_turn(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(echo))
    session = mcode.exec("begin", *JSON).check().result["sessionId"]
    run = mcode.run("steer", session, "go on", "--max-steps", "3", cwd=mcode.root).check()
    assert run.out == "echo go on\n"
    rows = mcode.query("SELECT source FROM turn_receipts ORDER BY sequence")
    assert [row["source"] for row in rows] == ["api", "steer"]
    assert signals(mcode) == []
    answer = mcode.root / "answer"
    mcode.run("steer", session, "--input", "-", "-o", answer, input="from stdin").check()
    assert answer.read_text() == "echo from stdin\n"
    assert mcode.exec("x", "--session", session, "--when-busy", "steer").check().out == "echo x\n"


def test_the_same_key_is_accepted_once(mcode: Mcode, peer: Peer) -> None:
    session, running, go = in_a_tool(mcode, peer)
    first = steer(mcode, session, "once", "--idempotency-key", "k").result
    again = steer(mcode, session, "once", "--idempotency-key", "k").result
    assert (again["status"], again["replayed"], again["turnId"]) == ("steered", True, first["turnId"])
    other = steer(mcode, session, "other", "--idempotency-key", "k", code=4).result
    assert other["error"]["code"] == "turn_ingress_conflict"
    steer(mcode, session, "another's", "--idempotency-key", "k", "--producer", "bot")
    by_exec = mcode.exec("once", "--session", session, "--when-busy", "steer", "--request-id", "k", *JSON)
    assert by_exec.check().result["replayed"]
    go.touch()
    running.finish().check()
    assert prompts(mcode) == ["begin", "once", "another's"]
    late = steer(mcode, session, "once", "--idempotency-key", "k").result
    assert (late["status"], late["replayed"], late["turnId"]) == ("steered", True, first["turnId"])
    assert prompts(mcode) == ["begin", "once", "another's"]


def test_the_key_of_words_that_began_a_turn_is_known_too(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("begun"))
    session = mcode.exec("begin", *JSON).check().result["sessionId"]
    gate = Gate()
    peer.script(gated(say("done"), gate))
    running = mcode.start("steer", session, "once", "--idempotency-key", "k", "--producer", "ci", *JSON)
    gate.wait_reached()
    again = steer(mcode, session, "once", "--idempotency-key", "k", "--producer", "ci").result
    assert (again["status"], again["replayed"], again["turnId"]) == ("steered", True, turn_id(mcode))
    steer(mcode, session, "other", "--idempotency-key", "k", "--producer", "ci", code=4)
    gate.open()
    assert running.finish().check().result["output"] == "done"
    after = steer(mcode, session, "once", "--idempotency-key", "k", "--producer", "ci").result
    assert (after["status"], after["replayed"], after["output"]) == ("succeeded", True, "done")
    assert prompts(mcode) == ["begin", "once"]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--model", "fake/other-2"), "active-model-override-unsupported"),
        (("--effort", "high"), "active-model-override-unsupported"),
        (("--agent", "x"), "active-model-override-unsupported"),
        (("--fallback-model", "fake/other-2"), "active-model-override-unsupported"),
        (("--file", "note.png"), "steer-attachments-unsupported"),
    ],
)
def test_a_running_turn_keeps_its_model_and_takes_no_attachments(
    mcode: Mcode, peer: Peer, flags: tuple[str, ...], code: str
) -> None:
    (mcode.workspace / "note.png").write_bytes(png(2, 2))
    session, first, gate = busy_session(mcode, peer)
    refused = steer(mcode, session, "x", *flags, code=4)
    assert refused.result["error"]["code"] == code
    assert "queue this" in refused.err
    assert signals(mcode) == []
    gate.open()
    first.finish().check()


def test_flags_that_change_nothing_are_said(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    run = steer(
        mcode, session, "x", "--permission", "read-only", "--max-steps", "2", "--drain", "--timeout", "1m"
    )
    assert "--permission, --timeout, --max-steps, --drain changed nothing" in run.err
    gate.open()
    first.finish().check()


def test_exec_hands_its_prompt_to_the_running_turn(mcode: Mcode, peer: Peer) -> None:
    session, running, go = in_a_tool(mcode, peer)
    flags = ("--session", session, "--when-busy", "steer", *JSON)
    run = mcode.exec("by exec", *flags).check()
    assert (run.result["status"], run.result["turnId"]) == ("steered", turn_id(mcode))
    refused = mcode.exec("x", "--model", "fake/other-2", *flags).check(4)
    assert refused.result["error"]["code"] == "active-model-override-unsupported"
    go.touch()
    running.finish().check()
    assert prompts(mcode) == ["begin", "by exec"]


def test_exec_waits_for_its_own_request_and_does_not_say_it_to_itself(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("begun"))
    session = mcode.exec("begin", *JSON).check().result["sessionId"]
    flags = ("--session", session, "--when-busy", "steer", "--request-id", "r", *JSON)
    gate = Gate()
    peer.script(gated(say("done"), gate))
    running = mcode.start("exec", "once", *flags)
    gate.wait_reached()
    again = mcode.start("exec", "once", *flags)
    refused = mcode.exec("other", *flags).check(4)
    assert refused.result["error"]["code"] == "turn_ingress_conflict"
    gate.open()
    results = [one.finish().check().result for one in (running, again)]
    assert [(one["output"], one["replayed"]) for one in results] == [("done", False), ("done", True)]
    assert prompts(mcode) == ["begin", "once"]
    assert signals(mcode) == []


def test_a_storm_of_words_is_taken_once_each(mcode: Mcode, peer: Peer) -> None:
    session, running, go = in_a_tool(mcode, peer)
    storm = [
        mcode.start("steer", session, f"w{number % 4}", "--idempotency-key", f"k{number % 4}", *JSON)
        for number in range(8)
    ]
    results = [one.finish().check().result for one in storm]
    assert {result["status"] for result in results} == {"steered"}
    assert sum(result["replayed"] for result in results) == 4
    go.touch()
    running.finish().check()
    assert prompts(mcode)[0] == "begin"
    assert sorted(prompts(mcode)[1:]) == ["w0", "w1", "w2", "w3"]


def test_words_around_the_end_of_a_turn_are_lost_never_and_said_once(mcode: Mcode, peer: Peer) -> None:
    """Steers come while turns begin and end: each is in the conversation, or waits in the queue, once."""
    peer.script(forever(echo))
    session = mcode.exec("begin", *JSON).check().result["sessionId"]
    running = []
    for number in range(12):
        flags = ("--idempotency-key", f"k{number}", *(("--machine",) if number % 3 == 0 else ()))
        running.append(mcode.start("steer", session, f"w{number}", *flags, *JSON))
        if number % 4 == 3:
            ends = [one.finish() for one in running[number - 3 :]]
            assert {end.code for end in ends} == {0}, [end.err for end in ends]
    queued = [json.loads(item["payload"])["content"][0]["text"] for item in items(mcode)]
    assert sorted([*prompts(mcode)[1:], *queued]) == sorted(f"w{number}" for number in range(12))
    assert {row["state"] for row in signals(mcode)} <= {"consumed", "requeued"}


def test_a_killed_turn_leaves_a_person_s_words_in_the_queue_and_drops_a_machine_s(
    mcode: Mcode, peer: Peer
) -> None:
    session, running, _ = in_a_tool(mcode, peer)
    steer(mcode, session, "from a person")
    steer(mcode, session, "from a machine", "--machine", "--idempotency-key", "m")
    running.kill()
    running.finish()
    mcode.run("sessions", "list").check()
    person, machine = signals(mcode)
    assert (person["state"], machine["state"]) == ("requeued", "dropped")
    assert machine["reason"]
    assert [item["id"] for item in items(mcode)] == [person["item_id"]]
    peer.script(forever(echo))
    again = steer(mcode, session, "from a machine", "--machine", "--idempotency-key", "m").result
    assert (again["status"], again["output"]) == ("succeeded", "echo from a machine")
    mcode.run("queue", "drain", "--session", session).check()
    assert prompts(mcode) == ["begin", "from a machine", "from a person"]


def test_words_that_stand_in_history_are_not_queued_after_a_crash(mcode: Mcode, peer: Peer) -> None:
    go = mcode.root / "go"
    # the prompt, the call, its result: the fourth record is the steer
    peer.script(call("bash", {"command": f"until [ -e {go} ]; do sleep 0.02; done"}), forever(echo))
    running = mcode.start("exec", "begin", *JSON, env={"MCODE_FAULT": "after-append:4"})
    wait_until(lambda: _has_shell(mcode), "no command runs")
    (row,) = mcode.query("SELECT id FROM sessions")
    steer(mcode, row["id"], "in history")
    mcode.may_leave_processes = True
    go.touch()
    assert running.finish().code == -signal.SIGKILL
    peer.script(forever(echo))
    mcode.exec("next", "--session", row["id"], *JSON).check()
    assert prompts(mcode) == ["begin", "in history", "next"]
    assert items(mcode) == []
    assert signals(mcode)[0]["state"] == "consumed"


def test_a_stopped_turn_keeps_a_person_s_words_in_its_conversation(mcode: Mcode, peer: Peer) -> None:
    session, running, _ = in_a_tool(mcode, peer)
    steer(mcode, session, "said before the end")
    running.send(signal.SIGTERM)
    assert running.finish().code == -signal.SIGTERM
    assert prompts(mcode) == ["begin", "said before the end"]
    assert items(mcode) == []
    assert signals(mcode)[0]["state"] == "consumed"
    peer.script(forever(echo))
    assert mcode.exec("next", "--session", session).check().out == "echo next\n"


@pytest.mark.parametrize(
    ("kind", "code"), [("maintenance", "session_mutating"), ("compaction", "session_compacting")]
)
def test_a_session_that_is_worked_on_takes_no_words(mcode: Mcode, peer: Peer, kind: str, code: str) -> None:
    session, running, go = in_a_tool(mcode, peer)
    with sqlite3.connect(mcode.data / "mcode.db") as store:  # as if its process did that, not a turn
        turn = turn_id(mcode)
        store.execute("UPDATE session_locks SET kind = ?, turn_id = NULL", (kind,))
        store.commit()
        refused = steer(mcode, session, "x", code=75).result["error"]
        store.execute("UPDATE session_locks SET kind = 'turn', turn_id = ?", (turn,))
        store.commit()
    assert (refused["code"], refused["retryable"]) == (code, True)
    go.touch()
    running.finish().check()
    assert prompts(mcode) == ["begin"]


def test_nothing_to_say_is_an_error(mcode: Mcode, peer: Peer) -> None:
    for args in (("steer",), ("steer", "mvs_12345678"), ("steer", "nope", "x")):
        run = mcode.run(*args, *JSON).check(2)
        assert run.result["error"]["code"] == "turn_invalid_input"
    assert mcode.run("steer", "mvs_12345678", "x", "--producer", "a b").check(2).err
    assert mcode.run("steer", "mvs_12345678", "x", "--idempotency-key", "").check(2).err
    unknown = mcode.run("steer", "mvs_" + "0" * 32, "x", *JSON).check(4)
    assert unknown.result["error"]["code"] == "session_not_found"


def test_a_reader_that_fell_behind_hears_of_the_words_and_the_schema_knows_them(
    mcode: Mcode,
    peer: Peer,
    schemas: dict[str, Any],  # noqa: F811
) -> None:
    go = mcode.root / "go"
    flood = say("z" * 96_000)
    waits = call("bash", {"command": f"until [ -e {go} ]; do sleep 0.02; done"})
    then = call("bash", {"command": "true"})
    peer.script(answer(flood, waits, piece=20), answer(flood, then, piece=20), say("the end"))
    running = mcode.start("exec", "begin", *LINES, stdout=(pipe := os.pipe())[1])
    os.close(pipe[1])
    wait_until(lambda: _has_shell(mcode), "no command runs")
    (row,) = mcode.query("SELECT id FROM sessions")
    steer(mcode, row["id"], "look left")
    go.touch()
    wait_until(lambda: not mcode.query("SELECT * FROM session_locks"), "the turn goes on")
    with open(pipe[0], "rb") as reader:
        events = [json.loads(line) for line in reader]
    running.finish().check()
    check_stream(events, schemas)
    assert [event for event in events if event.get("code") == "stream.resync"]
    assert [event["text"] for event in events if event["type"] == "steer.accepted"] == ["look left"]
