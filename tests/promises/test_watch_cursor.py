"""`mcode sessions watch --after CURSOR`: behind any line, in whatever state the session was, the rest is told."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.promises.test_watch import JSON, LINES, lines
from tests.promises.test_watch_quick_turns import ends_of, first_message, receipts
from tests.promises.test_watch_turns import is_open
from tests.promises.test_when_busy import echo, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, forever, say, status


def told(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what each process counts for itself."""
    return [
        {name: value for name, value in event.items() if name not in ("sequence", "timestampMs")}
        for event in events
    ]


def two_calls(first: str, second: str) -> Any:
    return call("bash", {"command": first}) + call("bash", {"command": second})


def test_behind_every_line_the_rest_is_told(mcode: Mcode, peer: Peer) -> None:
    session = mixed_session(mcode, peer)
    watch = ("sessions", "watch", session, *LINES, "--after")
    whole = lines(mcode.run(*watch, first_message(mcode)).check().out_bytes)
    assert ends_of(whole) == receipts(mcode)
    begun = [event["turnId"] for event in whole if event["type"] == "turn.started"]
    assert begun == [turn for turn, _ in receipts(mcode)][1:]  # of the first the message is known
    assert len({event["cursor"] for event in whole}) == len(whole)
    for number, event in enumerate(whole):
        rest = lines(mcode.run(*watch, event["cursor"]).check().out_bytes)
        assert told(rest) == told(whole[number + 1 :]), event


def mixed_session(mcode: Mcode, peer: Peer) -> str:
    """Answered, refused, killed before and after their prompt, with calls that ended and one that never did."""
    refused = status(400, {"error": {"message": "no"}})
    peer.script(say("one"), two_calls("echo a", "echo b"), say("two"), refused, say("retried"))
    session: str = mcode.exec("begin", *JSON).check().result["sessionId"]
    mcode.exec("calls", "--session", session).check()
    mcode.exec("refused", "--session", session)
    mcode.run("retry", session).check()  # its prompt's row becomes one of this turn
    mcode.may_leave_processes = True
    for fault in ("after-admission", "after-prompt"):
        assert mcode.exec("lost", "--session", session, env={"MCODE_FAULT": fault}).code == -signal.SIGKILL
    peer.script(two_calls("echo c", "sleep 30"), forever(echo))
    cut = mcode.start("exec", "cut off", "--session", session)
    wait_until(lambda: cut_call(mcode), "the calls are not committed")
    cut.kill()
    mcode.exec("last", "--session", session).check()
    return session


def cut_call(mcode: Mcode) -> bool:
    return bool(mcode.query("SELECT 1 FROM messages WHERE instr(CAST(data AS TEXT), 'sleep 30')"))


def test_watchers_that_take_turns_tell_what_one_tells_alone(mcode: Mcode, peer: Peer) -> None:
    fifos = [mcode.workspace / name for name in ("one", "two")]
    for fifo in fifos:
        os.mkfifo(fifo)
    peer.script(say("begun"), two_calls(f"cat {fifos[0]}", f"cat {fifos[1]}"), forever(say("done")))
    session = mcode.exec("begin", *JSON).check().result["sessionId"]
    watch = ("sessions", "watch", session, "--follow", *LINES, "--after")
    alone = mcode.start(*watch, first_message(mcode))
    parts: list[dict[str, Any]] = []

    def part(*, until: bytes) -> None:
        """A watcher that goes on behind the newest line, and is killed when it has told `until`."""
        one = mcode.start(*watch, parts[-1]["cursor"] if parts else first_message(mcode))
        for watcher in (one, alone):
            wait_until(lambda w=watcher: until in w.out, f"{until!r} is not told")  # type: ignore[misc]
        one.kill()
        out = one.finish().out_bytes
        parts.extend(lines(out[: out.rindex(b"\n") + 1]))

    part(until=b"turn.completed")
    running = mcode.start("exec", "calls", "--session", session)
    part(until=b"item.started")
    for fifo in fifos:  # one call after the other gets its result
        fifo.write_text(f"result of {fifo.name}")
        part(until=f"result of {fifo.name}".encode())
    running.finish().check()
    mcode.exec("again", "--session", session).check()
    wait_until(lambda: alone.out.count(b"turn.completed") == 3, "not all ends are told")
    part(until=parts_end(alone.out))
    alone.send(signal.SIGTERM)
    assert told(parts) == told(lines(alone.finish().out_bytes))


def parts_end(out: bytes) -> bytes:
    """The cursor of the newest line."""
    return bytes(out[: out.rindex(b"\n")].rsplit(b'"cursor":', 1)[-1].split(b",")[0])


def test_a_place_of_another_session_or_none_is_refused(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(echo))
    one, other = (mcode.exec(text, *JSON).check().result["sessionId"] for text in ("one", "two"))
    first = first_message(mcode)
    (end,) = lines(mcode.run("sessions", "watch", one, "--after", first, *LINES).check().out_bytes)[-1:]
    assert (
        "told of another one" in mcode.run("sessions", "watch", other, "--after", end["cursor"]).check(4).err
    )
    for cursor in (
        "w1.999e.0.0",
        "w1.0e.999999.0",
        "w1.0e.1.0.x",
        "w1." + "9" * 30 + "e.0.0",
        "w2.0e.0.0",
    ):
        run = mcode.run("sessions", "watch", one, "--after", cursor).check(4)
        assert run.out == ""
        assert "Traceback" not in run.err


def test_a_turn_that_is_killed_while_nobody_looks_has_its_end_after_recovery(
    mcode: Mcode, peer: Peer
) -> None:
    peer.script(say("begun"), call("bash", {"command": "sleep 30"}), forever(echo))
    session = mcode.exec("begin", *JSON).check().result["sessionId"]
    watching = mcode.start("sessions", "watch", session, "--follow", *LINES, "--after", first_message(mcode))
    wait_until(lambda: is_open(mcode, watching.pid), "the watcher has not begun")
    first = mcode.start("exec", "killed", "--session", session)
    wait_until(lambda: b"item.started" in watching.out, "the call is not told")
    watching.send(signal.SIGSTOP)
    first.kill()
    mcode.run("recover").check()
    mcode.exec("next", "--session", session).check()
    watching.send(signal.SIGCONT)
    wait_until(lambda: watching.out.count(b"turn.completed") == 2, "the next turn is not told")
    watching.send(signal.SIGTERM)
    events = lines(watching.finish().out_bytes)
    assert ends_of(events) == receipts(mcode)
    assert [event["status"] for event in events if event["type"] == "turn.failed"] == ["interrupted"]
