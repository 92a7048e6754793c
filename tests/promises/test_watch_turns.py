"""`mcode sessions watch` across turns, deaths and closed ends: each told once, and nothing is written."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from typing import Any

from tests.promises.test_watch import JSON, LINES, lines, three_turns
from tests.promises.test_watch import _is_open as is_open
from tests.promises.test_when_busy import busy_session, echo, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, call, forever, gated, say, status


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def test_every_turn_behind_a_message_has_its_beginning_and_its_end(mcode: Mcode, peer: Peer) -> None:
    session, first = three_turns(mcode, peer)
    events = lines(mcode.run("sessions", "watch", session, "--after", first, *LINES).check().out_bytes)
    each = ["turn.started", "item.completed", "turn.completed"]
    assert kinds(events) == (each * 3)[1:]  # behind the first message its turn has begun
    assert len({event["turnId"] for event in events}) == 3
    assert {event["sessionId"] for event in events} == {session}


def test_behind_the_last_message_of_a_turn_is_its_end(mcode: Mcode, peer: Peer) -> None:
    peer.script(status(400, {"error": {"message": "no"}}))
    session = mcode.exec("one", *JSON).result["sessionId"]
    last = mcode.query("SELECT id FROM messages ORDER BY row DESC LIMIT 1")[0]["id"]
    events = lines(mcode.run("sessions", "watch", session, "--after", last, *LINES).check().out_bytes)
    assert [(event["type"], event["status"]) for event in events] == [("turn.failed", "failed")]


def test_a_turn_that_was_killed_ends_once_although_the_next_one_mends_it(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "sleep 30"}), forever(echo))
    first = mcode.start("exec", "begin", *JSON)
    wait_until(lambda: has_answer(mcode), "the call is not committed")
    session = mcode.query("SELECT id FROM sessions")[0]["id"]
    watching = mcode.start("sessions", "watch", session, "--follow", *LINES)
    wait_until(lambda: b"item.started" in watching.out, "the pending call is not told")
    first.kill()
    wait_until(lambda: b"turn.failed" in watching.out, "the death is not told")
    second = mcode.exec("go on", "--session", session, *JSON).check().result
    wait_until(lambda: b"turn.completed" in watching.out, "the next turn is not told")
    mcode.exec("and on", "--session", session, *JSON).check()
    wait_until(lambda: watching.out.count(b"turn.completed") == 2, "the third turn is not told")
    watching.send(signal.SIGTERM)
    events = lines(watching.finish().out_bytes)
    ends = [(event["turnId"], event["type"]) for event in events if event["type"] in ENDS]
    assert len(ends) == len(set(ends)) == 3, ends
    assert ends[1] == (second["turnId"], "turn.completed")
    once = Counter(event["item"]["id"] for event in events if event["type"] == "item.completed")
    assert set(once.values()) == {1}


ENDS = ("turn.completed", "turn.failed")


def has_answer(mcode: Mcode) -> bool:
    try:
        return bool(mcode.query("SELECT 1 FROM messages WHERE role = 'assistant'"))
    except Exception:
        return False


def test_watching_writes_nothing(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    before = store_rows(mcode)
    watching = mcode.start("sessions", "watch", session)
    wait_until(lambda: b"begin" in watching.out, "the prompt is not told")
    files = open_files(watching.pid)
    assert not [name for name in files if "/run/" in name], files
    assert store_rows(mcode) == before
    first.kill()
    assert "the turn's process died" in watching.finish(20).check().out
    assert store_rows(mcode) == before
    assert mcode.query("SELECT status FROM sessions") == [{"status": "started"}]
    gate.open()


def store_rows(mcode: Mcode) -> Any:
    names = [row["name"] for row in mcode.query("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: mcode.query(f"SELECT * FROM {name}") for name in names}


def open_files(pid: int) -> list[str]:
    found = []
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{entry}"))
        except OSError:
            continue
    return found


def test_a_store_that_is_made_later_is_watched(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(echo))
    watching = mcode.start("sessions", "watch", "--all", *LINES)
    wait_until(lambda: is_waiting(watching.pid), "the watcher has not begun")
    session = mcode.exec("one", *JSON).check().result["sessionId"]
    wait_until(lambda: watching.out.count(b"\n") >= 1, "the first session is not told")
    watching.send(signal.SIGTERM)
    assert {event["sessionId"] for event in lines(watching.finish().out_bytes)} == {session}


def is_waiting(pid: int) -> bool:
    """Whether a process has an event loop by now."""
    try:
        return any("eventpoll" in name for name in open_files(pid))
    except OSError:
        return False


def test_a_reader_that_has_gone_ends_it(mcode: Mcode, peer: Peer) -> None:
    session = mcode.exec("one", *JSON).check().result["sessionId"]
    for command in (("sessions", "watch", session, "--follow"), ("sessions", "watch", "--all")):
        reading, writing = os.pipe()
        watching = mcode.start(*command, stdout=writing)
        os.close(writing)
        wait_until(lambda: is_open(mcode, watching.pid), "the watcher has not begun")  # noqa: B023
        os.close(reading)
        assert watching.finish(5).code == 141


def test_a_session_that_is_deleted_while_it_is_watched_is_said(mcode: Mcode, peer: Peer) -> None:
    session, first, _gate = busy_session(mcode, peer)
    watching = [mcode.start("sessions", "watch", session, *flags) for flags in ((), ("--follow",))]
    for one in watching:
        wait_until(lambda one=one: b"begin" in one.out, "the prompt is not told")
    mcode.run("sessions", "delete", session).check()
    assert "was deleted" in watching[1].finish().check(4).err
    assert watching[0].finish().code in (0, 4)  # the turn's end may be seen before everything goes
    first.finish().check(4)


def test_who_reads_slower_than_changes_are_kept_is_told_once(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("one", *JSON).check()
    watching = mcode.start("sessions", "watch", "--all", *LINES)
    wait_until(lambda: is_open(mcode, watching.pid), "the watcher has not begun")
    watching.send(signal.SIGSTOP)
    with sqlite3.connect(mcode.data / "mcode.db") as store:
        for number in range(25_000):
            store.execute(
                "INSERT INTO session_changes (session_id, kind, at_ms) VALUES (?, 'updated', 0)",
                (f"mvs_{number:032x}",),
            )
    assert mcode.query("SELECT count(*) AS n FROM session_changes")[0]["n"] < 11_000
    watching.send(signal.SIGCONT)
    wait_until(lambda: f"mvs_{24999:032x}".encode() in watching.out, "the newest is not told")
    watching.send(signal.SIGTERM)
    events = lines(watching.finish().out_bytes)
    assert kinds(events).count("resync") == 1
    told = [int(event["sessionId"][4:], 16) for event in events if event["type"] == "session.updated"]
    assert told == list(range(told[0], 25_000))


def test_a_flood_of_items_is_told_in_order_while_two_watch(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    steps = [call("bash", {"command": f"echo {number}"}) for number in range(40)]
    peer.script(gated(steps[0], gate), *steps[1:], say("done"))
    running = mcode.start("exec", "begin", "--output-format", "stream-json")
    gate.wait_reached()
    session = mcode.query("SELECT id FROM sessions")[0]["id"]
    watching = [mcode.start("sessions", "watch", session, *LINES) for _ in range(2)]
    for one in watching:
        wait_until(lambda one=one: is_open(mcode, one.pid), "a watcher has not begun")
    gate.open()
    run = running.finish().check()
    wanted = [event["item"] for event in run.events if event["type"] == "item.completed"]
    for one in watching:
        events = lines(one.finish().check().out_bytes)
        assert [event["item"] for event in events if event["type"] == "item.completed"] == wanted
