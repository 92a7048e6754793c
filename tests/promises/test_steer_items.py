"""What a turn was handed and has not taken becomes the item that it was, or would have been; nothing is said twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.promises.test_queue import JSON, add, drain, idle_session
from tests.promises.test_steer import in_a_tool, steer
from tests.promises.test_when_busy import busy_session, items, prompts, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.running import Running
from tests.support.steps import Gate, call, forever, gated, say

KEY = ("--dedupe-key", "k")
LOOK = {"command": "touch made"}


def last_step(mcode: Mcode, peer: Peer) -> tuple[str, Running, Gate]:
    """A session whose turn is in its last step: what is said now comes too late."""
    return busy_session(mcode, peer)


def ended(running: Running, gate: Gate) -> None:
    gate.open()
    running.finish().check()


def listed(mcode: Mcode, session: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(mcode.run("queue", "list", session, *JSON).check().out)["items"]
    return rows


def test_an_item_that_is_steered_too_late_is_itself_again(mcode: Mcode, peer: Peer) -> None:
    session, running, gate = last_step(mcode, peer)
    flags = ("--permission", "read-only", "--deny", "bash:touch *", "--max-steps", "3", "--expires", "1h")
    item = add(mcode, session, "do it", *flags, *KEY)
    (before,) = listed(mcode, session)
    mcode.run("queue", "steer", item).check()
    assert items(mcode) == []
    assert add(mcode, session, "do it", *KEY) == item
    ended(running, gate)
    (after,) = listed(mcode, session)
    same = ("id", "text", "permission", "rules", "maxSteps", "dedupeKey", "expiresMs", "source")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    peer.script(call("bash", LOOK), forever(say("no")))
    mcode.run("queue", "drain", "--session", session)
    assert not (mcode.workspace / "made").exists()


def test_a_prompt_that_is_steered_too_late_keeps_its_permissions(mcode: Mcode, peer: Peer) -> None:
    session, running, gate = last_step(mcode, peer)
    said = ("exec", "do it", "--session", session, "--when-busy", "steer", "--permission", "read-only")
    mcode.run(*said).check()
    ended(running, gate)
    (row,) = listed(mcode, session)
    assert (row["permission"], row["source"]) == ("read-only", "steer")
    peer.script(call("bash", LOOK), forever(say("no")))
    mcode.run("queue", "drain", "--session", session)
    assert not (mcode.workspace / "made").exists()


def test_the_key_of_an_item_that_was_steered_too_late_and_taken_back_is_free(
    mcode: Mcode, peer: Peer
) -> None:
    session, running, gate = last_step(mcode, peer)
    item = add(mcode, session, "x", *KEY)
    mcode.run("queue", "steer", item).check()
    ended(running, gate)
    assert add(mcode, session, "x", *KEY) == item
    mcode.run("queue", "remove", item).check()
    assert add(mcode, session, "x", *KEY) == item
    assert [line["outcome"] for line in drain(mcode, session)] == ["ran"]
    assert json.loads(mcode.run("queue", "add", session, "x", *KEY, *JSON).check().out)["state"] == "ran"
    assert prompts(mcode) == ["begin", "x"]


@pytest.mark.parametrize("how", ["request", "key"])
def test_words_that_came_too_late_and_were_taken_back_can_be_said_again(
    mcode: Mcode, peer: Peer, how: str
) -> None:
    session, running, gate = last_step(mcode, peer)

    def said() -> dict[str, Any]:
        if how == "key":
            return steer(mcode, session, "late", "--idempotency-key", "z").result
        flags = ("--session", session, "--request-id", "r", "--when-busy", "steer", *JSON)
        return mcode.run("exec", "late", *flags).check().result

    said()
    ended(running, gate)
    (item,) = items(mcode)
    assert said()["replayed"]
    mcode.run("queue", "remove", item["id"]).check()
    again = said()
    assert (again["status"], again["replayed"]) == ("succeeded", False)
    assert prompts(mcode) == ["begin", "late"]
    assert said()["replayed"]
    assert prompts(mcode) == ["begin", "late"]


def test_words_that_came_too_late_and_ran_are_told_with_their_turn(mcode: Mcode, peer: Peer) -> None:
    session, running, gate = last_step(mcode, peer)
    steer(mcode, session, "late", "--idempotency-key", "z")
    ended(running, gate)
    (line,) = drain(mcode, session)
    again = steer(mcode, session, "late", "--idempotency-key", "z")
    assert (again.result["status"], again.result["replayed"]) == ("succeeded", True)
    assert again.result["turnId"] == line["result"]["turnId"]
    assert prompts(mcode) == ["begin", "late"]


def test_a_queued_request_that_is_steered_leaves_the_queue(mcode: Mcode, peer: Peer) -> None:
    session, running, go = in_a_tool(mcode, peer, "--drain", *JSON)
    said = ("exec", "w1", "--session", session, "--request-id", "u1", *JSON)
    assert mcode.run(*said, "--when-busy", "queue").check().result["status"] == "queued"
    first = mcode.run(*said, "--when-busy", "steer").check().result
    assert (first["status"], first["replayed"]) == ("steered", False)
    assert items(mcode) == []
    add(mcode, session, "behind")
    go.touch()
    running.finish().check()
    wait_until(lambda: not items(mcode), "something waits for good")
    assert prompts(mcode) == ["begin", "w1", "behind"]
    assert mcode.run(*said).check().result["status"] == "steered"


@pytest.mark.parametrize("when", ["running", "after"])
@pytest.mark.parametrize("how", ["wait", "queue"])
def test_a_request_that_was_handed_over_from_its_place_is_not_run_again(
    mcode: Mcode, peer: Peer, how: str, when: str
) -> None:
    session, running, go = in_a_tool(mcode, peer, "--drain", *JSON)
    said = ("exec", "deploy it", "--session", session, "--request-id", "r", *JSON)
    waiting = mcode.start(*said, "--when-busy", how)
    wait_until(lambda: items(mcode), "no place in the queue")
    mcode.run("queue", "steer", items(mcode)[0]["id"]).check()
    waiting.finish().check()
    if when == "after":
        go.touch()
        running.finish().check()
    again = mcode.run(*said, "--when-busy", "steer").check().result
    assert (again["status"], again["replayed"]) == ("steered", True)
    go.touch()
    running.finish().check()
    assert prompts(mcode) == ["begin", "deploy it"]


def test_an_item_that_runs_while_its_followed_session_is_deleted_has_its_line(
    mcode: Mcode, peer: Peer
) -> None:
    session = idle_session(mcode, peer)
    gate = Gate()
    peer.script(gated(say("never"), gate))
    item = add(mcode, session, "x")
    draining = mcode.start("queue", "drain", "--session", session, "--follow", "--output-format", "jsonl")
    gate.wait_reached()
    mcode.run("sessions", "delete", session).check()
    run = draining.finish().check(4)
    assert [json.loads(line)["itemId"] for line in run.out.splitlines()] == [item]
    gate.open()


@pytest.mark.sample(4)
@pytest.mark.parametrize("how", ["add", "key", "request", "late"])
@pytest.mark.parametrize("then", ["drain", "steer idle", "steer running"])
def test_an_item_that_was_steered_too_late_runs_or_is_taken(
    mcode: Mcode, peer: Peer, how: str, then: str
) -> None:
    session, running, gate = last_step(mcode, peer)
    said = ("exec", "w1", "--session", session, "--request-id", "u")
    if how == "late":
        mcode.run(*said, "--when-busy", "steer").check()
    else:
        if how == "request":
            waiting = mcode.start(*said, "--when-busy", "wait")
            wait_until(lambda: items(mcode), "no place in the queue")
        else:
            add(mcode, session, "w1", *(KEY if how == "key" else ()))
        mcode.run("queue", "steer", items(mcode)[0]["id"]).check()
        if how == "request":
            waiting.finish().check()
    ended(running, gate)
    (item,) = items(mcode)
    if then == "drain":
        drain(mcode, session)
    elif then == "steer idle":
        mcode.run("queue", "steer", item["id"]).check()
    else:
        go = mcode.root / "go"
        peer.script(
            call("bash", {"command": f"until [ -e {go} ]; do sleep 0.02; done"}), forever(say("taken"))
        )
        other = mcode.start("exec", "other", "--session", session)
        wait_until(lambda: mcode.query("SELECT * FROM session_locks"), "no turn runs")
        peer.wait_for(2)
        mcode.run("queue", "steer", item["id"]).check()
        go.touch()
        other.finish().check()
    assert items(mcode) == []
    said_now = [text for text in prompts(mcode) if text != "other"]
    assert said_now == ["begin", "w1"]
