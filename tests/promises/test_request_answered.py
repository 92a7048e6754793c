"""A request that is answered in one way is answered in every other: what waits with it goes, and is not said again."""

from __future__ import annotations

import json
import signal

from tests.promises.test_queue import JSON, add, drain, idle_session
from tests.promises.test_steer import in_a_tool
from tests.promises.test_when_busy import busy_session, echo, items, prompts, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import forever, hang

ID = ("--request-id", "r")


def test_an_item_whose_request_was_answered_elsewhere_leaves_the_queue(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    drainer = mcode.start("queue", "drain", "--session", session, "--follow")
    wait_until(lambda: mcode.query("SELECT * FROM queue_drainers"), "nobody drains")
    mcode.exec("w", "--session", session, "--when-busy", "queue", *ID, *JSON).check()
    drainer.kill()
    drainer.finish()
    gate.open()
    first.finish().check()
    assert mcode.exec("w", "--session", session, *ID, *JSON).check().result["output"] == "echo w"
    assert items(mcode) == []
    add(mcode, session, "behind")
    assert [line["outcome"] for line in drain(mcode, session)] == ["ran"]
    assert prompts(mcode) == ["begin", "w", "behind"]


def test_an_item_that_was_queued_while_its_request_stood_in_line_holds_nobody_up(
    mcode: Mcode, peer: Peer
) -> None:
    session, first, gate = busy_session(mcode, peer)
    drainer = mcode.start("queue", "drain", "--session", session, "--follow", "--output-format", "jsonl")
    wait_until(lambda: mcode.query("SELECT * FROM queue_drainers"), "nobody drains")
    waiting = mcode.start("exec", "w", "--session", session, "--when-busy", "wait", *ID, *JSON)
    wait_until(lambda: len(items(mcode)) == 1, "no place in line")
    mcode.exec("w", "--session", session, "--when-busy", "queue", *ID, *JSON).check()
    add(mcode, session, "behind")
    gate.open()
    first.finish().check()
    assert waiting.finish().check().result["output"] == "echo w"
    wait_until(lambda: not items(mcode), "items are left")
    drainer.send(signal.SIGTERM)
    drainer.finish()
    assert prompts(mcode) == ["begin", "w", "behind"]


def test_who_waits_with_words_that_a_turn_was_given_is_answered_by_that(mcode: Mcode, peer: Peer) -> None:
    session, running, go = in_a_tool(mcode, peer, *JSON)
    waiting = mcode.start("exec", "w", "--session", session, "--when-busy", "wait", *ID, *JSON)
    wait_until(lambda: items(mcode), "no place in line")
    mcode.exec("w", "--session", session, "--when-busy", "steer", *ID, *JSON).check()
    told = waiting.finish().check().result
    assert (told["status"], told["replayed"]) == ("steered", True)
    assert items(mcode) == []
    go.touch()
    running.finish().check()
    assert prompts(mcode).count("w") == 1


def test_two_that_wait_with_one_request_are_answered_by_the_turn_that_got_its_words(
    mcode: Mcode, peer: Peer
) -> None:
    session, running, go = in_a_tool(mcode, peer, *JSON)
    waiting = []
    for count in (1, 2):
        waiting.append(mcode.start("exec", "w", "--session", session, "--when-busy", "wait", *ID, *JSON))
        wait_until(lambda count=count: len(items(mcode)) == count, "no place in line")  # type: ignore[misc]
    mcode.run("queue", "steer", items(mcode)[0]["id"]).check()
    assert [one.finish().check().result["status"] for one in waiting] == ["steered", "steered"]
    go.touch()
    running.finish().check()
    assert prompts(mcode).count("w") == 1
    assert items(mcode) == []


def test_a_request_that_was_cut_off_is_said_again_with_a_note_once_another_turn_has_seen_it(
    mcode: Mcode, peer: Peer
) -> None:
    session = idle_session(mcode, peer)
    peer.script(hang(), forever(echo))
    before = len(peer.calls)
    cut = mcode.start("exec", "w", "--session", session, *ID, *JSON)
    peer.wait_for(before + 1)
    cut.kill()
    cut.finish()
    mcode.exec("other", "--session", session, *JSON).check()
    mcode.exec("w", "--session", session, *ID, *JSON).check()
    assert "an earlier attempt of this same request" in json.dumps(peer.last.json["messages"])
