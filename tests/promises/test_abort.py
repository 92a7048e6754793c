"""`mcode abort`: a turn is stopped from another process, wherever it is, and says truly what came of it."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from tests.promises.test_steer import in_a_tool, signals, steer, turn_id
from tests.promises.test_when_busy import busy_session, echo, items, prompts, wait_until
from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer
from tests.support.steps import Gate, drip, forever, gated, say, status

JSON = ("--output-format", "json")
LINES = ("--output-format", "stream-json")


def abort(mcode: Mcode, session: str, *flags: str, code: int = 0) -> dict[str, Any]:
    run = mcode.run("abort", session, *JSON, *flags).check(code)
    told: dict[str, Any] = json.loads(run.out)
    assert told["exitCode"] == code
    return told


def check_stopped(mcode: Mcode, run: Run) -> None:
    """The aborted run's own account, and what the store has of it."""
    result = run.check(4).result
    assert (result["status"], result["error"]["code"]) == ("cancelled", "TURN_ABORTED")
    assert mcode.query("SELECT * FROM session_locks") == []
    (row,) = mcode.query("SELECT outcome, reason FROM turn_receipts ORDER BY sequence DESC LIMIT 1")
    assert row == {"outcome": "aborted", "reason": "user-stop"}
    assert mcode.query("SELECT status FROM sessions") == [{"status": "aborted"}]
    assert mcode.survivors() == []


def test_a_turn_is_stopped_during_a_command_and_its_tree_goes(mcode: Mcode, peer: Peer) -> None:
    session, running, _ = in_a_tool(mcode, peer)
    told = abort(mcode, session)
    assert (told["outcome"], told["sessionId"]) == ("aborted", session)
    run = running.finish()
    check_stopped(mcode, run)
    assert told["turnId"] == run.result["turnId"]
    (failed,) = run.of_type("turn.failed")
    assert failed["status"] == "cancelled"
    assert [message["role"] for message in mcode.messages()] == ["user", "assistant", "tool"]
    peer.script(forever(echo))
    assert mcode.exec("next", "--session", session).check().out == "echo next\n"


def test_a_turn_is_stopped_during_a_model_call(mcode: Mcode, peer: Peer) -> None:
    peer.script(drip(say("word " * 200), 0.1))
    running = mcode.start("exec", "begin", *LINES)
    running.wait_event("item.updated")
    (row,) = mcode.query("SELECT id FROM sessions")
    assert abort(mcode, row["id"])["outcome"] == "aborted"
    run = running.finish()
    check_stopped(mcode, run)
    assert run.result["partialOutput"]
    assert prompts(mcode) == ["begin"]


def test_a_turn_is_stopped_while_it_waits_for_its_next_attempt(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(retry='base_delay = "30s"\nmax_delay = "60s"')
    peer.script(forever(status(529)))
    running = mcode.start("exec", "begin", *LINES)
    running.wait_event("llm.retry")
    (row,) = mcode.query("SELECT id FROM sessions")
    assert abort(mcode, row["id"])["outcome"] == "aborted"
    check_stopped(mcode, running.finish())


def test_a_turn_is_stopped_before_it_asks_anything(mcode: Mcode, peer: Peer) -> None:
    """Admitted, and writing what it began with to a reader that does not read yet."""
    gate = Gate()
    peer.script(gated(say("never"), gate))
    running = mcode.start("exec", "begin", *JSON)
    wait_until(
        lambda: mcode.data.joinpath("mcode.db").exists() and _is_admitted(mcode), "no turn was admitted"
    )
    (row,) = mcode.query("SELECT id FROM sessions")
    assert abort(mcode, row["id"])["outcome"] == "aborted"
    check_stopped(mcode, running.finish())


def _is_admitted(mcode: Mcode) -> bool:
    import sqlite3

    try:
        return bool(mcode.query("SELECT * FROM session_locks"))
    except sqlite3.OperationalError:
        return False


def test_the_queue_is_held_and_what_a_person_said_stays(mcode: Mcode, peer: Peer) -> None:
    session, running, _ = in_a_tool(mcode, peer)
    mcode.run("queue", "add", session, "later").check()
    steer(mcode, session, "a last word")
    steer(mcode, session, "a machine's", "--machine")
    assert abort(mcode, session)["outcome"] == "aborted"
    check_stopped(mcode, running.finish())
    assert mcode.query("SELECT reason FROM queue_pauses") == [{"reason": "user-stop"}]
    assert len(items(mcode)) == 1
    assert prompts(mcode) == ["begin", "a last word", "a machine's"]
    assert [row["state"] for row in signals(mcode)] == ["consumed"] * 3


def test_a_process_that_stands_still_is_an_abort_timeout_and_stops_when_it_wakes(
    mcode: Mcode, peer: Peer
) -> None:
    session, running, gate = busy_session(mcode, peer)
    running.send(signal.SIGSTOP)
    started_s = time.monotonic()
    told = abort(mcode, session, code=75)
    assert told["outcome"] == "abort-timeout"
    assert time.monotonic() - started_s >= 5
    waited = mcode.run("abort", session, "--wait", "--wait-timeout", "200ms").check(75)
    assert waited.out == "abort-timeout\n"
    assert "was told to stop" in waited.err
    living = len(list((mcode.data / "run").iterdir()))
    waiting = mcode.start("abort", session, "--wait", *JSON)
    wait_until(lambda: len(list((mcode.data / "run").iterdir())) > living, "nobody waits")
    time.sleep(0.5)  # the word was there before: nothing tells from outside that this one has said it too
    running.send(signal.SIGCONT)
    assert json.loads(waiting.finish().check().out)["outcome"] == "aborted"
    check_stopped(mcode, running.finish())
    gate.open()


def test_a_turn_whose_process_dies_while_it_is_waited_for_was_released(mcode: Mcode, peer: Peer) -> None:
    session, running, gate = busy_session(mcode, peer)
    running.send(signal.SIGSTOP)
    waiting = mcode.start("abort", session, "--wait", *JSON)
    wait_until(lambda: signals(mcode), "nobody told the turn")
    running.kill()
    running.finish()
    assert json.loads(waiting.finish().check().out)["outcome"] == "released"
    assert mcode.query("SELECT status FROM sessions") == [{"status": "interrupted"}]
    gate.open()


def test_where_nothing_runs_there_is_nothing_to_stop(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(echo))
    result = mcode.exec("begin", *JSON).check().result
    session = result["sessionId"]
    assert abort(mcode, session)["outcome"] == "not-running"
    over = abort(mcode, session, "--turn", result["turnId"])
    assert over["outcome"] == "not-running"
    plain = mcode.run("abort", session).check()
    assert plain.out == "not-running\n"
    assert "no turn runs" in plain.err
    assert "session_not_found" in mcode.run("abort", "mvs_" + "0" * 32).check(4).err
    assert mcode.run("abort", session, "--turn", "x").check(2).err
    assert mcode.exec("next", "--session", session).check().out == "echo next\n"


def test_another_turn_than_the_named_one_goes_on(mcode: Mcode, peer: Peer) -> None:
    session, running, gate = busy_session(mcode, peer)
    running_turn = turn_id(mcode)
    other = "turn_00000000-0000-4000-8000-000000000000"
    told = abort(mcode, session, "--turn", other, code=4)
    assert (told["outcome"], told["turnId"]) == ("turn-mismatch", running_turn)
    gate.open()
    assert running.finish().check().result["output"] == "first"


def test_a_waiting_turn_is_stopped_before_it_starts(mcode: Mcode, peer: Peer) -> None:
    session, running, gate = busy_session(mcode, peer)
    waiting = mcode.start("exec", "w", "--session", session, "--when-busy", "wait", *JSON)
    wait_until(lambda: items(mcode), "no place in line")
    mcode.run("queue", "add", session, "q").check()
    place, item = items(mcode)
    for one in (place, item):
        told = abort(mcode, session, "--turn", one["turn_id"])
        assert (told["outcome"], told["turnId"]) == ("aborted", one["turn_id"])
    result = waiting.finish().check(4).result
    assert (result["status"], result["error"]["code"]) == ("cancelled", "TURN_ABORTED")
    assert result["turnId"] == place["turn_id"]
    assert items(mcode) == []
    gate.open()
    assert running.finish().check().result["output"] == "first"
    assert prompts(mcode) == ["begin"]


def test_an_item_that_is_being_prepared_is_stopped_before_it_starts(mcode: Mcode, peer: Peer) -> None:
    """The drainer has claimed it and reads its configuration: a key command that takes its time."""
    peer.script(forever(echo))
    session = mcode.exec("begin", *JSON).check().result["sessionId"]
    mcode.run("queue", "add", session, "q").check()
    go, slow = mcode.root / "go", mcode.root / "key.sh"
    slow.write_text(f"#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.02; done\necho fake-key-0123456789abcdef\n")
    slow.chmod(0o700)
    config = mcode.config.read_text()
    mcode.config.write_text(config.replace('api_key = "${FAKE_KEY}"', f'api_key_command = ["{slow}"]'))
    draining = mcode.start("queue", "drain", "--session", session, "--output-format", "jsonl")
    wait_until(lambda: items(mcode)[0]["state"] == "claimed", "the item was not claimed")
    stopping = mcode.start("abort", session, *JSON)
    wait_until(lambda: signals(mcode), "nobody told the turn")
    go.touch()
    assert json.loads(stopping.finish().check().out)["outcome"] == "aborted"
    (line,) = [json.loads(one) for one in draining.finish().check(4).out.splitlines()]
    assert (line["outcome"], line["error"]["code"]) == ("dropped", "TURN_ABORTED")
    assert items(mcode) == []
    assert prompts(mcode) == ["begin"]


@pytest.mark.parametrize("point", ["tool", "model"])
def test_two_aborts_at_once_are_one(mcode: Mcode, peer: Peer, point: str) -> None:
    if point == "tool":
        session, running, _ = in_a_tool(mcode, peer)
    else:
        session, running, _ = busy_session(mcode, peer)
    both = [mcode.start("abort", session, *JSON) for _ in range(2)]
    outcomes = {json.loads(one.finish().check().out)["outcome"] for one in both}
    assert outcomes <= {"aborted", "not-running"}
    assert "aborted" in outcomes
    check_stopped(mcode, running.finish())
    assert len([row for row in signals(mcode) if row["kind"] == "abort"]) == 1
