"""`mcode queue drain --all`: several sessions at once, in one process."""

from __future__ import annotations

import signal
from typing import Any

from tests.promises.test_queue import add, idle_session, lines
from tests.promises.test_when_busy import echo, items, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, forever, gated


def test_a_long_item_holds_up_no_other_session(mcode: Mcode, peer: Peer) -> None:
    one, two = idle_session(mcode, peer), idle_session(mcode, peer)
    gate = Gate()
    for session in (one, two):
        add(mcode, session, "lengthy-one" if session == min(one, two) else "short")

    def answer(request: Any) -> Any:
        step = echo(request)
        return gated(step, gate) if "lengthy-one" in request.text else step

    peer.script(forever(answer))
    running = mcode.start("queue", "drain", "--all", "--output-format", "jsonl")
    wait_until(lambda: b"echo short" in running.out, "the short one waits for the long one")
    gate.open()
    run = running.finish().check()
    assert [line["result"]["output"] for line in lines(run.out)] == ["echo short", "echo lengthy-one"]


def test_a_signal_ends_every_turn_that_runs(mcode: Mcode, peer: Peer) -> None:
    sessions = [idle_session(mcode, peer) for _ in range(3)]
    gate = Gate()
    peer.script(forever(lambda request: gated(echo(request), gate)))
    for session in sessions:
        add(mcode, session, "x")
        add(mcode, session, "y")
    before = len(peer.calls)
    running = mcode.start("queue", "drain", "--all", "--jobs", "2", "--output-format", "jsonl")
    peer.wait_for(before + 2)
    running.send(signal.SIGINT)
    run = running.finish()
    gate.open()
    assert run.code == -signal.SIGINT
    assert [line["result"]["status"] for line in lines(run.out)] == ["cancelled", "cancelled"]
    assert len(items(mcode)) == 4
    assert len(peer.calls) == before + 2
    assert len(mcode.query("SELECT * FROM queue_pauses")) == 2


def test_jobs_go_with_all_sessions(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    assert "--all" in mcode.run("queue", "drain", "--session", session, "--jobs", "2").check(2).err
