"""Commands that wait for somebody end by any signal, wherever they run: in a script's background, as pid 1."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_when_busy import busy_session, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.running import Running

#: what a script's `&` and a job's scheduler send; the first is ignored there unless a program takes it back
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def end_by(running: Running, signum: int) -> int:
    """The exit code; signals that come before the command is there may be lost, so it gets it until it ends."""
    until = time.monotonic() + 10
    while running.process.poll() is None:
        assert time.monotonic() < until, f"signal {signum} does not end it"
        time.sleep(0.1)
        running.send(signum)
    return running.finish().code


def in_background(mcode: Mcode) -> None:
    mcode.command = ["sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh", *mcode.command]


@pytest.mark.sample(6)
@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize(
    "command",
    [
        ("sessions", "watch", "SESSION", "--follow"),
        ("sessions", "watch", "--all"),
        ("queue", "drain", "--all", "--follow"),
        ("abort", "SESSION", "--wait"),
        ("sessions", "delete", "SESSION"),
    ],
    ids=lambda command: "-".join(command),
)
def test_in_a_scripts_background(mcode: Mcode, peer: Peer, command: tuple[str, ...], signum: int) -> None:
    session, first, gate = busy_session(mcode, peer)
    first.send(signal.SIGSTOP)  # who waits for this turn waits long
    in_background(mcode)
    running = mcode.start(*(session if word == "SESSION" else word for word in command))
    assert end_by(running, signum) == -signum
    first.send(signal.SIGCONT)
    gate.open()
    first.finish()


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_refresh_that_waits_for_its_server(mcode: Mcode, signum: int) -> None:
    in_background(mcode)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = {"MCODE_CATALOGUE_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/api.json"}
        assert end_by(mcode.start("models", "--refresh", env=env), signum) == -signum


def test_a_command_that_waits_for_the_store(mcode: Mcode, peer: Peer) -> None:
    session = mcode.exec("x", "--output-format", "json").check().result["sessionId"]
    in_background(mcode)
    store = sqlite3.connect(mcode.data / "mcode.db", isolation_level=None)
    store.execute("BEGIN EXCLUSIVE")
    assert end_by(mcode.start("queue", "add", session, "later"), signal.SIGINT) == -signal.SIGINT
    store.close()


def test_a_watcher_whose_reader_does_not_read(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    gate.open()
    first.finish().check()
    message = mcode.query("SELECT id FROM messages ORDER BY row LIMIT 1")[0]["id"]
    read, write = os.pipe()
    os.set_blocking(write, False)
    _fill(write)
    os.set_blocking(write, True)
    in_background(mcode)
    running = mcode.start("sessions", "watch", session, "--after", message, "--follow", stdout=write)
    assert end_by(running, signal.SIGINT) == -signal.SIGINT
    os.close(read)
    os.close(write)


def _fill(pipe: int) -> None:
    try:
        while True:
            os.write(pipe, b"x" * 4096)
    except BlockingIOError:
        return


@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")
@pytest.mark.parametrize("signum", SIGNALS)
def test_a_watcher_that_is_pid_1(mcode: Mcode, peer: Peer, signum: int) -> None:
    """The kernel takes no default action against it, so it must have one of its own."""
    if subprocess.run(["unshare", "-fp", "--mount-proc", "true"], capture_output=True).returncode:
        pytest.skip("no pid namespaces here")
    session = mcode.exec("x", "--output-format", "json").check().result["sessionId"]
    command = ["unshare", "-fp", "--mount-proc", *mcode.command, "sessions", "watch", session, "--follow"]
    how: dict[str, Any] = {"env": mcode.environment(), "cwd": mcode.workspace, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how) as process:
        wait_until(lambda: _is_watching(process.pid), "the watcher has not begun")
        (child,) = _children(process.pid)
        os.kill(child, signum)
        assert process.wait(10) == 128 + signum


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_watching(pid: int) -> bool:
    try:
        links = [entry for child in _children(pid) for entry in Path(f"/proc/{child}/fd").iterdir()]
        return any(os.readlink(link).endswith("mcode.db") for link in links)
    except OSError:
        return False
