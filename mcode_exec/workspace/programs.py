"""Running a helper program (git, rg) so that it can be abandoned: bounded, no stdin, its tree small and known.

It gets what it needs of our environment and nothing else, so no secret.
Blocking: callers on the loop go through a thread and set `stop` to give up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

from msgspec import Struct

_POLL_S = 0.05
_DRAIN_S = 0.2  # for what a killed program had still written

#: variables that a helper program gets
_PASSED = frozenset(
    {
        "PATH",
        "HOME",
        "XDG_CONFIG_HOME",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
    }
)


class Stop:
    """Set from another thread to give up a blocking piece of work."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        self.is_set = True


class ProgramResult(Struct, frozen=True, kw_only=True):
    #: None when it was stopped or ran out of time
    exit_code: int | None
    stdout: bytes
    stderr: bytes


@cache
def find_program(name: str) -> str | None:
    """Absolute path of an executable: on PATH, else beside our interpreter (where an extra installs it).

    Relative entries of PATH, which may lie in the workspace, do not count.
    """
    for directory in (*os.get_exec_path(), os.path.dirname(sys.executable or "")):
        path = os.path.join(directory, name)
        if os.path.isabs(path) and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


@contextmanager
def _stdin(given: bytes | None) -> Iterator[int]:
    """What is given as an open file: communicate() forgets an input that its first time-out cuts off."""
    if given is None:
        yield subprocess.DEVNULL
        return
    with open(os.memfd_create("stdin"), "w+b") as file:
        file.write(given)
        file.seek(0)
        yield file.fileno()


def run_program(
    arguments: Sequence[str],
    *,
    cwd: str,
    limit_s: float,
    env: Mapping[str, str] | None = None,
    stop: Stop | None = None,
    given: bytes | None = None,
) -> ProgramResult:
    """Run to the end, or kill it after `limit_s` seconds or when `stop` is set; `env` goes on top of what it gets.

    `given`: what it finds on its stdin.

    Raises: OSError when it cannot be started.
    """
    deadline_s = time.monotonic() + limit_s
    with (
        _stdin(given) as stdin,
        subprocess.Popen(
            arguments,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**{name: value for name, value in os.environ.items() if name in _PASSED}, **(env or {})},
            # not start_new_session: a child in our own session is never taken for a stray of a command
            process_group=0,
        ) as process,
    ):
        while True:
            # without anyone to stop it there is nothing to look up for
            slice_s = limit_s if stop is None else _POLL_S
            try:
                stdout, stderr = process.communicate(timeout=slice_s)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline_s and not (stop is not None and stop.is_set):
                    continue
                stdout, stderr = _abandon(process)
                return ProgramResult(exit_code=None, stdout=stdout, stderr=stderr)
            return ProgramResult(exit_code=process.returncode, stdout=stdout, stderr=stderr)


def _abandon(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Kill a program with its group; what it had said, as far as it comes.

    A grandchild that left the group may hold the pipes open for as long as it likes: nobody waits for it.
    """
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        return process.communicate(timeout=_DRAIN_S)
    except subprocess.TimeoutExpired as late:
        return late.stdout or b"", late.stderr or b""
