"""A store that others lock while a run must end: the end comes in time, once, and is told."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, hang, say

_HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


class Lock:
    """Holds the store's write lock until it lets go."""

    def __init__(self, mcode: Mcode) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(mcode.data / "mcode.db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def let_go(self) -> None:
        if self._process.poll() is None:
            self._process.communicate(timeout=10)


@pytest.fixture
def locks(mcode: Mcode) -> Iterator[list[Lock]]:
    held: list[Lock] = []
    yield held
    for one in held:
        one.let_go()


def test_a_deadline_is_kept_although_the_store_is_locked(mcode: Mcode, peer: Peer, locks: list[Lock]) -> None:
    peer.script(hang())
    running = mcode.start("exec", "x", "--session-key", "k", "--timeout", "2s", "--output-format", "json")
    peer.wait_for(1)
    time.sleep(0.3)
    locks.append(Lock(mcode))
    run = running.finish(12)
    assert run.duration_s < 7
    run.check(6)
    assert (run.result["status"], run.result["exitCode"]) == ("timeout", 6)
    locks[0].let_go()
    peer.script(say("well"))
    mcode.exec("y", "--session-key", "k").check()
    assert mcode.query("SELECT status FROM sessions") == [{"status": "idle"}]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_soon_although_the_store_is_locked(
    mcode: Mcode, peer: Peer, locks: list[Lock], number: signal.Signals
) -> None:
    peer.script(call("bash", {"command": "touch up; sleep 30"}))
    running = mcode.start("exec", "x", "--session-key", "k", "--output-format", "json")
    deadline_s = time.monotonic() + 20
    while not (mcode.workspace / "up").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    time.sleep(0.3)
    locks.append(Lock(mcode))
    sent_s = time.monotonic()
    running.send(number)
    run = running.finish(25)
    took_s = time.monotonic() - sent_s
    assert run.code == -number
    assert (run.result["status"], run.result["exitCode"]) == ("cancelled", 128 + number)
    assert took_s < 8
    locks[0].let_go()
    peer.script(say("well"))
    mcode.exec("y", "--session-key", "k").check()
    assert not peer.last.violations


def test_a_run_that_answers_while_the_store_is_locked_waits_for_it(
    mcode: Mcode, peer: Peer, locks: list[Lock]
) -> None:
    peer.script(call("bash", {"command": "touch up; while [ ! -e go ]; do sleep 0.05; done"}), say("done"))
    running = mcode.start("exec", "x", "--output-format", "json")
    deadline_s = time.monotonic() + 20
    while not (mcode.workspace / "up").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    time.sleep(0.3)
    locks.append(Lock(mcode))
    (mcode.workspace / "go").touch()
    time.sleep(2)
    locks[0].let_go()
    run = running.finish().check()
    assert run.result["output"] == "done"
    assert mcode.query("SELECT status FROM sessions") == [{"status": "idle"}]
