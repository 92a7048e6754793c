"""What a key names is queued and said once, whatever has become of it; who drains is told when all is over."""

from __future__ import annotations

import json

import pytest

from tests.promises.test_queue import JSON, add, drain, idle_session
from tests.promises.test_steer import in_a_tool
from tests.promises.test_when_busy import busy_session, echo, items, prompts, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, forever, gated, hang, say, status

KEY = ("--dedupe-key", "k")


def test_a_dedupe_key_names_its_item_after_it_has_run_too(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    item = add(mcode, session, "x", *KEY)
    (line,) = drain(mcode, session)
    again = mcode.run("queue", "add", session, "x", *KEY, *JSON).check()
    told = json.loads(again.out)
    assert (told["id"], told["isNew"], told["position"], told["state"]) == (item, False, None, "ran")
    assert told["turnId"] == line["result"]["turnId"]
    text = mcode.run("queue", "add", session, "x", *KEY).check()
    assert "not queued again: it has begun as turn" in text.err
    assert items(mcode) == []
    assert "turn_ingress_conflict" in mcode.run("queue", "add", session, "y", *KEY).check(4).err
    assert prompts(mcode) == ["begin", "x"]


def test_a_dedupe_key_of_an_item_that_runs_just_now_is_that_item(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    item = add(mcode, session, "x", *KEY)
    gate = Gate()
    peer.script(gated(say("ran"), gate), forever(echo))
    draining = mcode.start("queue", "drain", "--session", session)
    gate.wait_reached()
    assert add(mcode, session, "x", *KEY) == item
    gate.open()
    draining.finish().check()
    assert prompts(mcode) == ["begin", "x"]


def test_an_item_that_failed_is_not_queued_again_and_one_that_was_taken_back_is(
    mcode: Mcode, peer: Peer
) -> None:
    session = idle_session(mcode, peer)
    item = add(mcode, session, "x", *KEY)
    mcode.run("queue", "remove", item).check()
    assert add(mcode, session, "x", *KEY) == item
    assert len(items(mcode)) == 1
    peer.script(status(400), forever(echo))
    mcode.run("queue", "drain", "--session", session).check(4)
    assert add(mcode, session, "x", *KEY) == item
    assert items(mcode) == []
    other = mcode.exec("another session", *JSON).check().result["sessionId"]
    assert add(mcode, other, "x", *KEY) != item


def test_an_item_whose_words_a_turn_was_given_is_not_queued_again(mcode: Mcode, peer: Peer) -> None:
    session, running, go = in_a_tool(mcode, peer)
    item = add(mcode, session, "x", *KEY)
    mcode.run("queue", "steer", item).check()
    assert add(mcode, session, "x", *KEY) == item
    assert "turn_ingress_conflict" in mcode.run("queue", "add", session, "y", *KEY).check(4).err
    go.touch()
    running.finish().check()
    assert items(mcode) == []


@pytest.mark.parametrize("how", ["fail", "wait", "queue", "steer"])
def test_a_request_whose_words_a_turn_has_taken_is_not_run_again(mcode: Mcode, peer: Peer, how: str) -> None:
    session, running, go = in_a_tool(mcode, peer)
    said = ("exec", "and this", "--session", session, "--request-id", "r", *JSON)
    first = mcode.run(*said, "--when-busy", "steer").check().result
    go.touch()
    running.finish().check()
    again = mcode.run(*said, "--when-busy", how).check().result
    assert (again["status"], again["replayed"], again["turnId"]) == ("steered", True, first["turnId"])
    assert prompts(mcode) == ["begin", "and this"]
    other = mcode.run("exec", "else", "--session", session, "--request-id", "r", "--when-busy", how)
    assert "turn_ingress_conflict" in other.check(4).err


@pytest.mark.parametrize("others", [0, 1])
def test_a_request_does_not_pass_over_its_own_item(mcode: Mcode, peer: Peer, others: int) -> None:
    session, running, gate = busy_session(mcode, peer)
    said = ("exec", "later", "--session", session, "--request-id", "r", *JSON)
    draining = mcode.start("queue", "drain", "--session", session, "--follow")
    wait_until(lambda: mcode.query("SELECT * FROM queue_drainers"), "nobody drains")
    mcode.run(*said, "--when-busy", "queue").check()
    draining.process.kill()
    draining.finish()
    for number in range(others):
        add(mcode, session, f"other {number}")
    gate.open()
    running.finish().check()
    peer.script(say("done"))
    told = mcode.run(*said).check().err
    assert ("1 queued item passed over" in told) == bool(others)
    assert len(items(mcode)) == others
    assert prompts(mcode) == ["begin", "later"]


def test_words_that_came_too_late_are_told_again_with_what_became_of_them(mcode: Mcode, peer: Peer) -> None:
    session, running, gate = busy_session(mcode, peer)
    said = ("exec", "late", "--session", session, "--request-id", "r", *JSON)
    mcode.run(*said, "--when-busy", "steer").check()
    gate.open()
    running.finish().check()
    (item,) = items(mcode)
    for flags in (("--when-busy", "steer"), ()):
        run = mcode.run(*said, *flags).check()
        assert run.result["status"] == "steered"
        assert f"ended before it took these words: they wait in the queue as {item['id']}" in run.err
    (line,) = drain(mcode, session)
    for flags in (("--when-busy", "steer"), ()):
        result = mcode.run(*said, *flags).check().result
        assert (result["status"], result["replayed"]) == ("succeeded", True)
        assert result["turnId"] == line["result"]["turnId"]
    assert prompts(mcode) == ["begin", "late"]


@pytest.mark.parametrize("which", ["idle", "running"])
def test_who_follows_a_session_that_is_deleted_ends(mcode: Mcode, peer: Peer, which: str) -> None:
    session = idle_session(mcode, peer)
    if which == "running":
        peer.script(hang())
        add(mcode, session, "x")
    draining = mcode.start("queue", "drain", "--session", session, "--follow", "-v")
    if which == "running":
        peer.wait_for(2)
    else:
        wait_until(lambda: mcode.query("SELECT * FROM queue_drainers"), "nobody drains")
    mcode.run("sessions", "delete", session).check()
    run = draining.finish().check(4)
    assert session in run.err


def test_an_item_that_its_runners_time_limit_ends_says_whose_limit_that_was(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "x")
    peer.script(say("mine"), hang())
    run = mcode.exec("mine", "--session", session, "--drain", "--timeout", "4s").check()
    assert "its time limit of 4s (--timeout of the process that ran this for somebody else)" in run.err
    assert "are left" not in run.err
    (row,) = mcode.query("SELECT reason, result FROM turn_receipts ORDER BY sequence DESC LIMIT 1")
    assert row["reason"] == "deadline"
    assert json.loads(row["result"])["limit"]["value"] == "4s"
    peer.script(say("brought to its end"))
    assert mcode.run("retry", session).check().out == "brought to its end\n"


def test_each_item_is_taken_back_for_itself(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    one, two = add(mcode, session, "one"), add(mcode, session, "two")
    gone = "qi_" + "0" * 32
    run = mcode.run("queue", "remove", one, gone, two, *JSON).check(4)
    told = json.loads(run.out)
    assert told["removed"] == [one, two]
    assert [row["outcome"] for row in told["items"]] == ["removed", "kept", "removed"]
    assert told["items"][1]["code"] == "queue_item_not_found"
    assert gone in run.err
    assert items(mcode) == []


def test_an_items_words_are_read_from_stdin_and_from_a_file(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    item = add(mcode, session, "old words")
    mcode.run("queue", "edit", item, "-", input="from stdin\n").check()
    words = mcode.root / "words.txt"
    words.write_text("from a file")
    assert [line["result"]["output"] for line in drain(mcode, session)] == ["echo from stdin\n"]
    item = add(mcode, session, "old words")
    mcode.run("queue", "edit", item, "--input", str(words)).check()
    assert [line["result"]["output"] for line in drain(mcode, session)] == ["echo from a file"]
    item = add(mcode, session, "kept")
    words.write_text("x" * (1024 * 1024 + 1))
    mcode.run("queue", "edit", item, "--input", str(words)).check(2)
    mcode.run("queue", "edit", item, "").check(2)
    mcode.run("queue", "edit", item, "-", "--input", str(words)).check(2)
    assert [line["result"]["output"] for line in drain(mcode, session)] == ["echo kept"]


def test_all_sessions_with_items_are_named_when_a_failure_stops_a_drain(mcode: Mcode, peer: Peer) -> None:
    sessions = [idle_session(mcode, peer)]
    sessions += [mcode.exec("begin", *JSON).check().result["sessionId"] for _ in range(2)]
    for session in sessions:
        add(mcode, session, "one")
        add(mcode, session, "two")
    peer.script(forever(status(400)))
    run = mcode.run("queue", "drain", "--all", "--jobs", "1", "--stop-on-failure").check(4)
    for session in sessions:
        assert f"items of session {session} are left" in run.err


def test_an_empty_cursor_is_said(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    assert "--after is empty" in mcode.run("sessions", "watch", session, "--after", "").check(2).err
