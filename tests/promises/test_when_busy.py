"""A busy session: --when-busy wait stands in line, queue leaves the prompt to who drains it."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.running import Running
from tests.support.steps import Gate, forever, gated, say

JSON = ("--output-format", "json")


def echo(request: Any) -> Any:
    """Answers with the newest thing that the user said."""
    newest = [message for message in request.messages if message["role"] == "user"][-1]["content"]
    if not isinstance(newest, str):
        newest = [block["text"] for block in newest if block["type"] == "text"][-1]
    return say("echo " + newest)


def busy_session(mcode: Mcode, peer: Peer, *flags: str) -> tuple[str, Running, Gate]:
    """A session whose turn hangs at a gate."""
    gate = Gate()
    peer.script(gated(say("first"), gate), forever(echo))
    running = mcode.start("exec", "begin", *JSON, *flags)
    gate.wait_reached()
    # One that is stopped while it writes keeps everybody out: its prompt's rows are written beside the model call.
    wait_until(lambda: mcode.query("SELECT id FROM messages"), "the prompt's rows are not written")
    (row,) = mcode.query("SELECT id FROM sessions")
    return row["id"], running, gate


def stopped_waiter(mcode: Mcode, peer: Peer) -> tuple[str, Running]:
    """A session that is free again, and one that stands in its line but is stopped."""
    session, first, gate = busy_session(mcode, peer)
    waiting = mcode.start("exec", "w", "--session", session, "--when-busy", "wait", *JSON)
    wait_until(lambda: items(mcode), "no place in line")
    waiting.send(signal.SIGSTOP)
    gate.open()
    first.finish().check()
    return session, waiting


def wait_until(condition: Any, what: str, timeout_s: float = 15.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def items(mcode: Mcode) -> list[dict[str, Any]]:
    return mcode.query("SELECT * FROM queue_items ORDER BY position")


def prompts(mcode: Mcode) -> list[str]:
    """What the user said, in the order of the one history."""
    said = [message["content"][0]["text"] for message in mcode.messages() if message["role"] == "user"]
    return [text for text in said if not text.startswith("[mcode")]


def test_waiters_run_in_the_order_in_which_they_came(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    waiting = []
    for number in range(3):
        waiting.append(mcode.start("exec", f"w{number}", "--session", session, "--when-busy", "wait", *JSON))
        wait_until(lambda n=number: len(items(mcode)) == n + 1, "no place in line")
    gate.open()
    first.finish().check()
    results = [one.finish().check().result for one in waiting]
    assert [result["output"] for result in results] == ["echo w0", "echo w1", "echo w2"]
    assert prompts(mcode) == ["begin", "w0", "w1", "w2"]
    assert items(mcode) == []
    receipts = mcode.query("SELECT outcome FROM turn_receipts ORDER BY sequence")
    assert [row["outcome"] for row in receipts] == ["completed"] * 4


def test_a_waiter_says_where_it_stands(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    waiting = mcode.start(
        "exec", "w", "--session", session, "--when-busy", "wait", "--output-format", "stream-json"
    )
    wait_until(lambda: items(mcode), "no place in line")
    gate.open()
    first.finish().check()
    run = waiting.finish().check()
    queued = run.of_type("turn.queued")
    assert queued[0]["position"] == 1
    assert queued[0]["itemId"].startswith("qi_")
    assert queued[0]["turnId"] == run.result["turnId"]
    assert "waiting, next in line" in run.err


def test_a_waiter_that_dies_loses_its_place(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    dies = mcode.start("exec", "dies", "--session", session, "--when-busy", "wait")
    wait_until(lambda: len(items(mcode)) == 1, "no place in line")
    lives = mcode.start("exec", "lives", "--session", session, "--when-busy", "wait", *JSON)
    wait_until(lambda: len(items(mcode)) == 2, "no second place")
    dies.kill()
    gate.open()
    first.finish().check()
    assert lives.finish().check().result["output"] == "echo lives"
    assert prompts(mcode) == ["begin", "lives"]
    assert items(mcode) == []


def test_a_drainer_that_dies_ahead_of_a_waiter_holds_nobody_up(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    mcode.run("queue", "add", session, "ahead").check()
    waiting = mcode.start("exec", "w", "--session", session, "--when-busy", "wait", *JSON)
    wait_until(lambda: len(items(mcode)) == 2, "no place in line")
    waiting.send(signal.SIGSTOP)
    gate.open()
    first.finish().check()
    died = mcode.run("queue", "drain", "--session", session, env={"MCODE_FAULT": "after-claim"})
    assert died.code == -signal.SIGKILL
    waiting.send(signal.SIGCONT)
    assert waiting.finish(20).check().result["output"] == "echo w"
    assert prompts(mcode) == ["begin", "ahead", "w"]


def test_a_waiter_that_is_stopped_gives_its_place_up(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    waiting = mcode.start("exec", "w", "--session", session, "--when-busy", "wait", *JSON)
    wait_until(lambda: items(mcode), "no place in line")
    waiting.send(signal.SIGTERM)
    run = waiting.finish()
    assert run.code == -signal.SIGTERM
    assert json.loads(run.out)["status"] == "cancelled"
    assert items(mcode) == []
    gate.open()
    first.finish().check()
    assert prompts(mcode) == ["begin"]


def test_waiting_has_an_end(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    run = mcode.exec(
        "w", "--session", session, "--when-busy", "wait", "--wait-timeout", "300ms", *JSON
    ).check(75)
    assert run.result["error"]["code"] == "session_busy"
    assert run.result["retryable"]
    timed = mcode.exec("w", "--session", session, "--when-busy", "wait", "--timeout", "400ms", *JSON).check(6)
    assert timed.result["status"] == "timeout"
    assert items(mcode) == []
    gate.open()
    first.finish().check()
    assert prompts(mcode) == ["begin"]


def test_nobody_passes_a_waiter(mcode: Mcode, peer: Peer) -> None:
    session, waiting = stopped_waiter(mcode, peer)
    run = mcode.exec("later", "--session", session, *JSON).check(75)
    assert run.result["error"]["code"] == "session_has_queued_messages"
    waiting.send(signal.SIGCONT)
    assert waiting.finish().check().result["output"] == "echo w"


def test_queue_needs_somebody_who_drains(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    run = mcode.exec("q", "--session", session, "--when-busy", "queue", *JSON).check(75)
    assert run.result["error"]["code"] == "queue_not_drained"
    assert items(mcode) == []
    gate.open()
    first.finish().check()


def test_exec_drain_runs_what_others_queued_behind_it(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer, "--drain")
    for number in range(2):
        run = mcode.exec(f"q{number}", "--session", session, "--when-busy", "queue", *JSON).check()
        assert run.result["status"] == "queued"
        assert run.result["queue"]["position"] == number + 1
        assert run.result["queue"]["itemId"].startswith("qi_")
    gate.open()
    done = first.finish().check()
    assert done.result["output"] == "first"
    assert prompts(mcode) == ["begin", "q0", "q1"]
    assert items(mcode) == []
    receipts = mcode.query("SELECT outcome, is_dispatched FROM turn_receipts ORDER BY sequence")
    assert [(row["outcome"], row["is_dispatched"]) for row in receipts] == [
        ("completed", 0),
        ("completed", 1),
        ("completed", 1),
    ]


def test_queue_on_an_idle_session_runs_at_once(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("one"), say("two"))
    session = mcode.exec("x", *JSON).check().result["sessionId"]
    for mode in ("queue", "wait", "fail"):
        peer.script(say(mode))
        run = mcode.exec("y", "--session", session, "--when-busy", mode, *JSON).check()
        assert (run.result["status"], run.result["output"]) == ("succeeded", mode)


def test_a_waiter_dispatches_what_stands_ahead_of_it(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    mcode.run("queue", "add", session, "ahead").check()
    waiting = mcode.start("exec", "w", "--session", session, "--when-busy", "wait", *JSON)
    wait_until(lambda: len(items(mcode)) == 2, "no place in line")
    gate.open()
    first.finish().check()
    run = waiting.finish().check()
    assert run.result["output"] == "echo w"
    assert prompts(mcode) == ["begin", "ahead", "w"]
    assert "which stands ahead" in run.err
    assert items(mcode) == []


def test_the_same_request_waits_once_and_is_replayed(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    flags = ("--session", session, "--when-busy", "wait", "--request-id", "r", *JSON)
    waiting = [mcode.start("exec", "w", *flags) for _ in range(3)]
    wait_until(lambda: len(items(mcode)) == 3, "not all in line")
    gate.open()
    first.finish().check()
    results = [one.finish().check().result for one in waiting]
    assert {result["output"] for result in results} == {"echo w"}
    assert sorted(result["replayed"] for result in results) == [False, True, True]
    assert prompts(mcode) == ["begin", "w"]
    assert items(mcode) == []


def test_what_nobody_else_can_do_is_not_queued(mcode: Mcode, peer: Peer) -> None:
    for flags in (
        ("--timeout", "5s"),
        ("-o", "out"),
        ("--ephemeral",),
        ("--env", "X"),
        ("--record", "tape"),
        ("--system-prompt-file", "f"),
    ):
        run = mcode.exec("x", "--when-busy", "queue", *flags).check(2)
        assert "cannot be combined" in run.err
    assert len(peer.calls) == 0
