"""`python -m tests.torture.run --kills 1000 [--seed N]`: storms until so many processes were killed."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.support.peer import Peer
from tests.torture.storm import Storm, Tally, as_json, storm

_WAVES = 12  # of one world; then a new one


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--commands", type=int, default=16, help="at once")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    given = parser.parse_args()
    print(f"torture: seed {given.seed}, {given.kills} kills, {given.commands} commands at once", flush=True)
    total = Tally()
    begun_s = time.monotonic()
    seed = given.seed
    while total.kills < given.kills:
        _world(seed, given.commands, total)
        seed += 1
        took_s = time.monotonic() - begun_s
        print(f"torture: {took_s:.0f} s {as_json(total)}", flush=True)
    return 0


def _world(seed: int, commands: int, total: Tally) -> None:
    root = Path(tempfile.mkdtemp(prefix="torture-"))
    with Peer() as peer:
        one = storm(root, peer, seed, sessions=2 + seed % 3)
        try:
            for _ in range(_WAVES):
                one.wave(commands=commands, kills=commands // 2)
                one.calm()
                one.check()
        except AssertionError as error:
            print(f"torture: seed {seed} failed in {root}: {error}", file=sys.stderr, flush=True)
            raise
        finally:
            one.mcode.close()
    _add(total, one)
    shutil.rmtree(root)


def _add(total: Tally, one: Storm) -> None:
    for name, value in one.tally.__dict__.items():
        setattr(total, name, getattr(total, name) + value)


if __name__ == "__main__":
    sys.exit(main())
