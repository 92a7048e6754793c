"""Fuzzing for a while: `make fuzz`, or `python -m tests.fuzz.run --seconds 60`; `--replay FILE…` runs inputs again.

Every input follows from the seed and its number.  The first that breaks a promise is
kept in `.fuzz/`, named after its target, and told with the command that runs it again;
mended, it moves to tests/fuzz/found/.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz import mutations
from tests.fuzz.targets import TARGETS
from tests.support.streams import EXPECTED, STREAMS

#: an input that takes longer hangs the reader
_HANG_S = 30
_KEPT = Path(".fuzz")


def corpus_of(target: str) -> list[bytes]:
    """The fixtures a target starts from: those of its format, or all."""
    names = [name for name, expected in sorted(EXPECTED.items()) if target in ("sse", expected["api"])]
    bodies = [(STREAMS / name).read_bytes() for name in names]
    return [body for body in bodies if len(body) < 10_000]


def input_of(target: str, seed: str, number: int, corpus: list[bytes]) -> bytes:
    source = random.Random(f"{seed}/{target}/{number}")
    if target == "sse" and source.random() < 0.5:
        return mutations.lines(source)
    return mutations.body(source, corpus)


def target_of(path: Path) -> str | None:
    """The target that a kept input is for; None for a file that is none."""
    return next((target for target in TARGETS if path.name.startswith(f"{target}-")), None)


def _hangs(*_: object) -> None:
    raise TimeoutError(f"one input took more than {_HANG_S} s")


def _runs(target: str, data: bytes) -> bool:
    signal.alarm(_HANG_S)
    try:
        TARGETS[target](data)
    except Exception:
        traceback.print_exc(limit=-8)
        return False
    finally:
        signal.alarm(0)
    return True


def _keep(target: str, data: bytes) -> Path:
    _KEPT.mkdir(exist_ok=True)
    path = _KEPT / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def fuzz(seconds: float, seed: str) -> int:
    print(f"fuzz: seed {seed}, {seconds:g} s, targets {', '.join(TARGETS)}", flush=True)
    corpora = {target: corpus_of(target) for target in TARGETS}
    end_s = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end_s:
        for target, corpus in corpora.items():
            data = input_of(target, seed, number, corpus)
            if not _runs(target, data):
                path = _keep(target, data)
                print(f"fuzz: {target} broke on input {number} of seed {seed}, kept as {path}")
                print(f"fuzz: again with: {sys.executable} -m tests.fuzz.run --replay {path}")
                return 1
        number += 1
    print(f"fuzz: {number} inputs for each target, nothing found")
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", default=f"{random.SystemRandom().getrandbits(32):08x}")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGALRM, _hangs)
    if options.replay:
        broken = [path for path in options.replay if not _runs(target_of(path) or "sse", path.read_bytes())]
        print(f"fuzz: {len(broken)} of {len(options.replay)} still break")
        return int(bool(broken))
    return fuzz(options.seconds, options.seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
