"""What every benchmark needs: a world to run in, timed processes, medians, and rows with a verdict.

Numbers are compared with the bare interpreter in the same run, or with the same command on an empty store;
nothing here is an absolute claim about a machine.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from tests.support.mcode import Mcode
    from tests.support.peer import Peer


class Row(NamedTuple):
    """One line of the table; `is_met` None: told for information."""

    what: str
    measured: str
    target: str
    is_met: bool | None


class Ended(NamedTuple):
    """One process, from its start to its end."""

    wall_s: float
    code: int
    err: str


@contextlib.contextmanager
def world(*steps: Any, **config: Any) -> Iterator[tuple[Mcode, Peer]]:
    """A new installation and a scripted server that answers at once."""
    from tests.support.mcode import Mcode
    from tests.support.peer import Peer

    with tempfile.TemporaryDirectory(prefix="mcode-bench-") as directory, Peer(*steps) as peer:
        mcode = Mcode(Path(directory), peer)
        mcode.configure(**config)
        try:
            yield mcode, peer
        finally:
            mcode.close()


def timed(command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> Ended:
    """Run `command` to its end; stdout is thrown away."""
    start = time.perf_counter()
    done = subprocess.run(
        command,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    return Ended(time.perf_counter() - start, done.returncode, done.stderr.decode(errors="replace"))


def must_succeed(ended: Ended) -> Ended:
    if ended.code != 0:
        raise SystemExit(f"a benchmarked command failed with exit {ended.code}:\n{ended.err}")
    return ended


# A lean parent: the kernel counts a parent's memory at the time of exec as the child's own.
_LAUNCHER = """\
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[
    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss, os.waitstatus_to_exitcode(status), file=sys.stderr)
"""


def peak_rss_bytes(command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> int:
    """Largest resident size of a process that succeeds."""
    ended = timed([sys.executable, "-I", "-S", "-c", _LAUNCHER, *command], env=env, cwd=cwd)
    kilobytes, code = ended.err.split()[-2:]
    must_succeed(Ended(ended.wall_s, int(code), ended.err))
    return int(kilobytes) * 1024


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
