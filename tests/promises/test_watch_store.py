"""`mcode sessions watch` where the store or the session is not, goes, or is another's: said, and nothing is written."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcode_exec.store import migrations
from tests.promises.test_watch import JSON, LINES
from tests.promises.test_watch_turns import is_open
from tests.promises.test_when_busy import wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer


def made(mcode: Mcode) -> str:
    session: str = mcode.exec("one", *JSON).check().result["sessionId"]
    return session


@contextmanager
def store(mcode: Mcode) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(mcode.data / "mcode.db", isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def test_a_session_that_is_not_there_makes_no_store(mcode: Mcode) -> None:
    run = mcode.run("sessions", "watch", "mvs_" + "0" * 32, "--follow").check(4)
    assert "no run has made a store yet" in run.err
    assert not mcode.data.exists()


def test_a_session_whose_deletion_was_cut_short(mcode: Mcode, peer: Peer) -> None:
    """What began it has died: nothing will run there, and watching does not finish it."""
    session = made(mcode)
    watching = mcode.start("sessions", "watch", session, "--follow", *LINES)
    wait_until(lambda: is_open(mcode, watching.pid), "the watcher has not begun")
    with store(mcode) as rows:
        rows.execute("UPDATE sessions SET deleting_by = ?", ("own_" + "0" * 32,))
    assert "is being deleted" in watching.finish(10).check(4).err
    run = mcode.run("sessions", "watch", session, *LINES).check(4)
    assert "is being deleted (session_deleting)" in run.err
    assert mcode.query("SELECT id FROM sessions") == [{"id": session}]


def test_a_store_that_is_being_migrated_is_busy_and_an_old_one_is_named(mcode: Mcode, peer: Peer) -> None:
    session = made(mcode)
    with store(mcode) as rows:
        rows.execute(f"PRAGMA user_version = {migrations.VERSION - 1}")
    lock = os.open(mcode.data / "mcode.db.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert "was locked" in mcode.run("sessions", "watch", session).check(75).err
    os.close(lock)
    assert "written by an older mcode" in mcode.run("sessions", "watch", session).check(74).err
    assert mcode.query("PRAGMA user_version") == [{"user_version": migrations.VERSION - 1}]


def _taken_over(mcode: Mcode) -> None:
    with store(mcode) as rows:
        rows.execute(f"PRAGMA user_version = {migrations.VERSION + 1}")


def _moved(mcode: Mcode) -> None:
    os.rename(mcode.data, mcode.root / "elsewhere")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("happens", "why"), [(_taken_over, "written by a newer mcode"), (_moved, "was moved or removed")]
)
@pytest.mark.parametrize("which", ["one", "all"])
def test_a_store_that_goes_while_it_is_watched(
    mcode: Mcode, peer: Peer, happens: Callable[[Mcode], None], why: str, which: str
) -> None:
    session = made(mcode)
    what = ("--all",) if which == "all" else (session, "--follow")
    watching = mcode.start("sessions", "watch", *what)
    wait_until(lambda: is_open(mcode, watching.pid), "the watcher has not begun")
    happens(mcode)
    assert why in watching.finish(10).check(74).err


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_file_system_is_refused_and_left_as_it_is(mcode: Mcode, peer: Peer) -> None:
    session = made(mcode)
    mounted = mcode.root / "mounted"
    mounted.mkdir()
    if subprocess.run(["mount", "--bind", mcode.data, mounted], capture_output=True).returncode:
        pytest.skip("no mounts here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", mounted], check=True)
        before = names_of(mcode.data)
        for what in (session, "--all"):
            assert (
                "is not writable" in mcode.run("sessions", "watch", what, "--data-dir", mounted).check(74).err
            )
        assert names_of(mcode.data) == before
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)


def names_of(directory: Path) -> list[str]:
    return sorted(str(path) for path in directory.rglob("*"))


def test_a_watcher_holds_nobody_up_and_leaves_no_row(mcode: Mcode, peer: Peer) -> None:
    """One that sleeps in the middle keeps no transaction open: others write, check-point and delete."""
    session = made(mcode)
    watching = mcode.start("sessions", "watch", session, "--follow", *LINES)
    wait_until(lambda: is_open(mcode, watching.pid), "the watcher has not begun")
    watching.send(signal.SIGSTOP)
    mcode.exec("two", "--session", session).check()
    with store(mcode) as rows:
        assert rows.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    mcode.run("sessions", "delete", session).check()
    watching.send(signal.SIGCONT)
    assert "was deleted while it was watched" in watching.finish(10).check(4).err
