"""What mcode makes in the temporary directory goes with the run; of a killed one, with the next run."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcode_exec.executor.temporary import HeldDirectory
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.running import Running
from tests.support.steps import call, forever, hang, say

NAME = "mcode-run-0123456789abcdef"


def left(mcode: Mcode) -> list[str]:
    return sorted(path.name for path in (mcode.root / "tmp").iterdir())


def killed(mcode: Mcode, peer: Peer, *args: str, command: str | None = None) -> Running:
    """A run that was killed while its model, after one command, said nothing."""
    steps = [] if command is None else [call("bash", {"command": command})]
    peer.script(*steps, hang())
    calls = len(peer.calls) + len(steps) + 1
    running = mcode.start("exec", "remember my secret plan", *args)
    peer.wait_for(calls)
    running.send(signal.SIGKILL)
    running.finish()
    mcode.may_leave_processes = True
    peer.script(forever(say("hello")))
    return running


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def private(directory: Path) -> Path:
    directory.mkdir(0o700)
    (directory / "content").write_text("kept?")
    return directory


def test_a_run_leaves_nothing(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "mktemp"}), say("done"))
    mcode.exec("hi", "--ephemeral").check(0)
    assert left(mcode) == []


@pytest.mark.parametrize("command", [None, "mktemp; ln -s / $TMPDIR/root; mkdir -p $TMPDIR/a/b"])
@pytest.mark.parametrize("flags", [("--ephemeral",), ()], ids=["ephemeral", "stored"])
def test_the_next_run_removes_what_a_killed_one_left(
    mcode: Mcode, peer: Peer, flags: tuple[str, ...], command: str | None
) -> None:
    killed(mcode, peer, *flags, command=command)
    assert len(left(mcode)) == bool(flags) + bool(command)
    mcode.exec("hi").check(0)
    assert left(mcode) == []


def test_a_living_runs_directories_stay(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "mktemp"}), hang(), forever(say("hello")))
    running = mcode.start("exec", "hi", "--ephemeral")
    peer.wait_for(2)
    before = left(mcode)
    assert len(before) == 2
    for _ in range(3):
        mcode.exec("hi", "--ephemeral").check(0)
    assert left(mcode) == before
    running.send(signal.SIGTERM)
    running.finish().check(-signal.SIGTERM)
    assert left(mcode) == []


def test_a_directory_that_a_process_still_uses_stays_until_it_has_ended(mcode: Mcode, peer: Peer) -> None:
    killed(mcode, peer, command="mktemp")
    (directory,) = (mcode.root / "tmp").iterdir()
    user = mcode_unrelated_process(directory)
    try:
        mcode.exec("hi").check(0)
        assert left(mcode) == [directory.name]
    finally:
        os.kill(user, signal.SIGKILL)
        os.waitpid(user, 0)
    mcode.exec("hi").check(0)
    assert left(mcode) == []


def mcode_unrelated_process(directory: Path) -> int:
    """A process that was given `directory` as TMPDIR and carries no tag by which it could be ended."""
    return os.spawnve(os.P_NOWAIT, "/bin/sleep", ["sleep", "60"], {"TMPDIR": str(directory)})


def test_the_strays_of_a_killed_ephemeral_run_are_ended(mcode: Mcode, peer: Peer) -> None:
    killed(mcode, peer, "--ephemeral", command="setsid sleep 300 >/dev/null 2>&1 & echo $!")
    assert any("sleep 300" in line for _, line in mcode.survivors())
    mcode.exec("hi").check(0)
    deadline = time.monotonic() + 10
    while mcode.survivors() and time.monotonic() < deadline:
        mcode.exec("hi").check(0)
    assert not mcode.survivors()
    assert left(mcode) == []


def test_what_is_not_ours_stays(mcode: Mcode, tmp_path: Path) -> None:
    base = mcode.root / "tmp"
    elsewhere = private(tmp_path / "elsewhere")
    (base / NAME).symlink_to(elsewhere)
    (base / NAME.replace("0", "1")).write_text("a file")
    os.mkfifo(base / NAME.replace("0", "2"))
    private(base / NAME.replace("0", "3")).chmod(0o755)
    private(base / NAME.replace("run-", ""))
    private(base / (NAME + "0"))
    private(base / NAME.replace("0", "G"))
    before = left(mcode)
    mcode.exec("hi").check(0)
    assert left(mcode) == before
    assert (elsewhere / "content").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's directory")
def test_another_users_directory_stays(mcode: Mcode) -> None:
    planted = private(mcode.root / "tmp" / NAME)
    os.chown(planted, 12345, 12345)
    mcode.exec("hi").check(0)
    assert (planted / "content").exists()


def test_a_locked_directory_stays_and_one_with_a_locked_one_in_it(mcode: Mcode) -> None:
    base = mcode.root / "tmp"
    outer, held = private(base / NAME), private(base / NAME.replace("0", "1"))
    inner = private(outer / NAME.replace("0", "2"))
    with locked(inner), locked(held):
        mcode.exec("hi").check(0)
        assert left(mcode) == [outer.name, held.name]
    mcode.exec("hi").check(0)
    assert left(mcode) == []


def test_a_crowd_of_leftovers_goes_in_several_runs(mcode: Mcode) -> None:
    for number in range(20):
        private(mcode.root / "tmp" / f"mcode-run-{number:016x}")
    mcode.exec("hi").check(0)
    assert len(left(mcode)) == 4
    mcode.exec("hi").check(0)
    assert left(mcode) == []


def test_many_runs_at_once_take_nothing_from_each_other(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(say("hello")))
    for _ in range(3):
        runs = [mcode.start("exec", "hi", "--ephemeral") for _ in range(6)]
        for running in runs:
            running.finish().check(0)
    assert left(mcode) == []


def test_a_directory_that_is_taken_for_a_dead_ones_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, stat, taken = HeldDirectory(str(tmp_path)), os.stat, []

    def overtaken(path: str, **options: Any) -> os.stat_result:
        if path == directory.path and os.path.lexists(path) and not taken:
            taken.append(os.rmdir(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", overtaken)
    directory.make()
    monkeypatch.undo()
    assert taken
    assert os.path.isdir(directory.path)
    directory.remove()
