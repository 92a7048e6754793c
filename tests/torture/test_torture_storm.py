"""A short storm in every run of the suite; the long one is `make torture`."""

from __future__ import annotations

from pathlib import Path

from tests.support.peer import Peer
from tests.torture.storm import storm


def test_a_storm_of_kills_leaves_one_truth(tmp_path: Path, peer: Peer) -> None:
    storm_ = storm(tmp_path, peer, seed=4)
    try:
        for _ in range(3):
            storm_.wave(commands=12, kills=4)
            storm_.calm()
            storm_.check()
        assert storm_.tally.kills
        assert storm_.tally.answered
    finally:
        storm_.mcode.close()
