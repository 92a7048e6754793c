"""A short storm in every run of the suite; the long one is `make torture`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import forever, say
from tests.torture.storm import JSON, Storm, storm


def test_a_storm_of_kills_leaves_one_truth(tmp_path: Path, peer: Peer) -> None:
    storm_ = storm(tmp_path, peer, seed=4)
    try:
        for _ in range(3):
            storm_.wave(commands=12, kills=4)
            storm_.calm()
            storm_.check()
        assert storm_.tally.kills
        assert storm_.tally.answered
        assert storm_.tally.watched
    finally:
        storm_.mcode.close()


def test_a_disk_that_fills_up_loses_no_item(tmp_path: Path, peer: Peer) -> None:
    """Every command ends with a code of its own, and once there is space everything that waits runs, in order."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    mcode = Mcode(tmp_path, peer)
    mcode.data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", str(mcode.data)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no mounts here")
    try:
        storm_ = Storm(mcode, peer, 1).begin(1)
        (session,) = storm_.sessions
        for number in range(8):
            word = f"w{number}."
            mcode.run("queue", "add", session, word).check()
            storm_.queued[session].append(word)
        filler = mcode.data / "filler"
        for left in (64, 24, 8, 0):
            _fill(filler, left * 1024)
            assert mcode.run("queue", "drain", "--session", session).code in (0, 4, 74, 75)
            run = mcode.exec("direct", "--session", session, "--when-busy", "wait", *JSON)
            assert run.code in (0, 4, 74, 75), run.err
        filler.unlink()
        peer.script(forever(say("fine")))
        storm_.calm()
        storm_.check()
    finally:
        mcode.close()
        subprocess.run(["umount", "-l", str(mcode.data)], check=True)


def _fill(filler: Path, left: int) -> None:
    """Leave so many bytes of the disk."""
    free = os.statvfs(filler.parent)
    with open(filler, "ab", buffering=0) as file:
        for _ in range(max(0, free.f_bavail * free.f_frsize - left) // 4096):
            try:
                file.write(b"x" * 4096)
            except OSError:
                return
