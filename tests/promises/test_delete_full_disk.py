"""A disk that is full to the last byte is relieved by deleting sessions, and read all the same."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.promises.test_delete import JSON, made
from tests.support.mcode import Mcode
from tests.support.peer import Peer


@contextmanager
def small_disk(mcode: Mcode) -> Iterator[None]:
    mcode.data.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", str(mcode.data)]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs here: {done.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(mcode.data)], check=True)


def fill(path: Path) -> None:
    """A file that takes all there is."""
    with open(path, "ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    assert os.statvfs(path).f_bfree == 0


def is_reserve_there(mcode: Mcode) -> bool:
    return (mcode.data / "mcode.db.lock").stat().st_blocks * 512 >= 256 * 1024


def test_deleting_a_session_frees_a_full_disk(mcode: Mcode, peer: Peer) -> None:
    with small_disk(mcode):
        first, second = made(mcode, peer), made(mcode, peer)
        assert is_reserve_there(mcode)
        fill(mcode.data / "hog")
        refused = mcode.exec("x", *JSON).check(74).result["error"]
        assert "is full" in refused["message"]
        assert "mcode sessions delete" in refused["message"]
        assert mcode.run("doctor", "--locks").check().out == ""
        rows = json.loads(mcode.run("sessions", "list", *JSON).check().out)["sessions"]
        assert {row["id"] for row in rows} == {first, second}
        assert "seq 100000" in mcode.run("sessions", "show", first).check().out
        mcode.run("sessions", "delete", first).check()
        assert [row["id"] for row in mcode.query("SELECT id FROM sessions")] == [second]
        assert is_reserve_there(mcode)
        mcode.exec("go on", "--session", second).check()
        assert mcode.query("PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def test_without_the_reserve_nothing_is_lost_and_what_to_do_is_said(mcode: Mcode, peer: Peer) -> None:
    with small_disk(mcode):
        session = made(mcode, peer)
        os.truncate(mcode.data / "mcode.db.lock", 0)
        fill(mcode.data / "hog")
        run = mcode.run("sessions", "delete", session).check(74)
        assert "256 KiB" in run.err
        assert mcode.run("sessions", "show", session).check().out
        (mcode.data / "hog").unlink()
        mcode.exec("go on", "--session", session).check()
        assert is_reserve_there(mcode)
