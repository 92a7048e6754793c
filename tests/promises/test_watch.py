"""`mcode sessions watch`: what another process commits, none missed, none twice, until its turn ends."""

from __future__ import annotations

import json
import signal
from typing import Any

from tests.promises.test_when_busy import busy_session, echo, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, call, forever, gated, say, status, think

JSON = ("--output-format", "json")
LINES = ("--output-format", "jsonl")


def lines(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def items(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (event["item"]["id"], event["item"]["type"]) for event in events if event["type"] == "item.completed"
    ]


def test_the_items_of_a_running_turn_are_told_once_and_its_end_last(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(call("bash", {"command": "echo one"}), gated(say("the answer"), gate), forever(echo))
    running = mcode.start("exec", "begin", "--output-format", "stream-json")
    gate.wait_reached()
    session = mcode.query("SELECT id FROM sessions")[0]["id"]
    watching = mcode.start("sessions", "watch", session, *LINES)
    wait_until(lambda: b"item.completed" in watching.out, "what was committed before is not told")
    gate.open()
    run = running.finish().check()
    events = lines(watching.finish().check().out_bytes)
    assert items(events) == items(run.events)
    assert [event["type"] for event in events[-2:]] == ["item.completed", "turn.completed"]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert {event["turnId"] for event in events} == {run.result["turnId"]}


def test_text_is_for_people(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    watching = mcode.start("sessions", "watch", session)
    wait_until(lambda: b"begin" in watching.out, "the prompt is not told")
    gate.open()
    first.finish().check()
    out = watching.finish().check().out
    assert "first\n" in out
    assert out.rstrip().splitlines()[-1].startswith("── the turn was answered")


def test_an_idle_session_has_nothing_to_watch(mcode: Mcode, peer: Peer) -> None:
    session = mcode.exec("x", *JSON).check().result["sessionId"]
    run = mcode.run("sessions", "watch", session).check()
    assert run.out == ""
    assert "nothing runs there" in run.err


def three_turns(mcode: Mcode, peer: Peer) -> tuple[str, str]:
    """A session of three answered turns, and its first message."""
    peer.script(forever(echo))
    session = mcode.exec("one", *JSON).check().result["sessionId"]
    for text in ("two", "three"):
        mcode.exec(text, "--session", session).check()
    first = mcode.query("SELECT id FROM messages ORDER BY row LIMIT 1")[0]["id"]
    return session, first


def test_after_a_message_everything_behind_it_is_told(mcode: Mcode, peer: Peer) -> None:
    session, first = three_turns(mcode, peer)
    run = mcode.run("sessions", "watch", session, "--after", first, *LINES).check()
    texts = [event["item"]["content"] for event in lines(run.out_bytes) if event["type"] == "item.completed"]
    assert texts == ["echo one", "echo two", "echo three"]
    unknown = mcode.run("sessions", "watch", session, "--after", "msg-nowhere").check(4)
    assert "has no message msg-nowhere" in unknown.err


def test_following_goes_on_with_the_next_turn(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(echo))
    session = mcode.exec("one", *JSON).check().result["sessionId"]
    watching = mcode.start("sessions", "watch", session, "--follow", *LINES)
    wait_until(lambda: _is_open(mcode, watching.pid), "the watcher has not begun")
    for number in range(3):
        mcode.exec(f"n{number}", "--session", session).check()
        wait_until(
            lambda n=number: watching.out.count(b"turn.completed") == n + 1, "the end of a turn is not told"
        )
    watching.send(signal.SIGTERM)
    run = watching.finish()
    assert run.code == -signal.SIGTERM
    texts = [event["item"]["content"] for event in lines(run.out_bytes) if event["type"] == "item.completed"]
    assert texts == ["echo n0", "echo n1", "echo n2"]


def test_a_killed_process_is_noticed(mcode: Mcode, peer: Peer) -> None:
    session, first, _gate = busy_session(mcode, peer)
    watching = mcode.start("sessions", "watch", session, *LINES)
    wait_until(lambda: _is_open(mcode, watching.pid), "the watcher has not begun")
    first.kill()
    events = lines(watching.finish(20).check().out_bytes)
    assert (events[-1]["type"], events[-1]["status"]) == ("turn.failed", "interrupted")


def test_all_tells_what_sessions_come_and_change(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(echo))
    mcode.exec("zero").check()
    watching = mcode.start("sessions", "watch", "--all", *LINES)
    wait_until(lambda: _is_open(mcode, watching.pid), "the watcher has not begun")
    session = mcode.exec("one", *JSON).check().result["sessionId"]
    wait_until(lambda: watching.out.count(b"\n") >= 3, "the changes are not told")
    watching.send(signal.SIGINT)
    events = lines(watching.finish().out_bytes)
    assert [event["type"] for event in events][:3] == [
        "session.created",
        "session.updated",
        "session.updated",
    ]
    assert {event["sessionId"] for event in events} == {session}
    assert events[-1]["status"] == "idle"


def _is_open(mcode: Mcode, pid: int) -> bool:
    import time
    from pathlib import Path

    try:
        found = any("mcode.db-wal" in str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    time.sleep(0.2 if found else 0)
    return found


def test_what_is_shown_to_people_cannot_act_on_their_terminal(mcode: Mcode, peer: Peer) -> None:
    acts = "a\x1b[31mred\x1b]0;title\x07\u202e\x9bm\x08"
    peer.script(
        think(acts) + say(acts), call("bash", {"command": f"echo '{acts}'"}), say("done"), status(400, acts)
    )
    session = mcode.exec(acts, *JSON).check().result["sessionId"]
    mcode.exec("call", "--session", session, "--title", acts).check()
    mcode.exec("refused", "--session", session)
    first = mcode.query("SELECT id FROM messages ORDER BY row LIMIT 1")[0]["id"]
    out = mcode.run("sessions", "watch", session, "--after", first).check().out
    assert "red" in out
    assert not {character for character in out if character in "\x1b\x07\x08\x9b\u202e"}


def test_a_line_of_five_mebibytes_is_one_line(mcode: Mcode, peer: Peer) -> None:
    long = "long " * (1024 * 1024)
    peer.script(say("short"), say(long), say("short"))
    session = mcode.exec("one", *JSON).check().result["sessionId"]
    for text in ("two", "three"):
        mcode.exec(text, "--session", session).check()
    first = mcode.query("SELECT id FROM messages ORDER BY row LIMIT 1")[0]["id"]
    events = lines(mcode.run("sessions", "watch", session, "--after", first, *LINES).check().out_bytes)
    texts = [event["item"]["content"] for event in events if event["type"] == "item.completed"]
    assert texts == ["short", long, "short"]
