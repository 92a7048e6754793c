"""The three standard descriptors, made safe before anything else is opened.

Invariant after `ensure_open`: 0, 1 and 2 are open, so no database can become
"stdout".  After `take_stdout`, only the writer's private descriptor reaches the
caller's stdout: whatever a library prints lands on stderr, behind the prefix
where Python printed it.  Who writes what is `output/`'s business.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Any

#: private descriptors are numbered from here, so that a script's own 3 to 9 stay what they are
_PRIVATE_FROM = 10


def ensure_open() -> frozenset[int]:
    """Open something in place of closed standard descriptors; returns those that were closed.

    Nobody misses what stdin or stderr would carry: `/dev/null`.  A result that
    is written to a closed stdout must fail: a pipe without a reader.
    """
    closed = set()
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            closed.add(fd)
            # the lowest free number is the closed one
            if fd == 1:
                _open_broken_stdout()
            else:
                os.open(os.devnull, os.O_RDONLY if fd == 0 else os.O_WRONLY)
    return frozenset(closed)


def _open_broken_stdout() -> None:
    _, writing_end = os.pipe()
    os.dup2(writing_end, 1)  # in place of the reading end
    os.close(writing_end)
    # without a descriptor 1 at its start the interpreter has no stream, and what is printed is lost
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - it lives as long as the process


class _PatientStdout(io.RawIOBase):
    """Stdout that waits for its reader although the descriptor does not."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        from mcode_exec.output.writer import write_fully

        write_fully(1, data)
        return len(data)


def wait_for_readers() -> None:
    """Let what click prints be complete where another program has set our stdout non-blocking."""
    if not os.get_blocking(1):
        patient: Any = _PatientStdout()
        sys.stdout = io.TextIOWrapper(patient, encoding="utf-8", write_through=True)


def take_stdout() -> int:
    """A private copy of stdout; descriptor 1 is stderr from here on."""
    import fcntl

    private = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _PRIVATE_FROM)
    os.dup2(2, 1)
    return private


class PrefixedStream(io.TextIOBase):
    """Stands in for `sys.stdout` and `sys.stderr`: whole lines go to `say`, whoever printed them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._partial = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._say(line)
        return len(text)


def redirect_prints(say: Callable[[str], None]) -> None:
    """Let `say` have everything that Python code prints."""
    sys.stdout = PrefixedStream(say)
    sys.stderr = PrefixedStream(say)


def flush_standard() -> OSError | None:
    """Flush what click printed; returns what went wrong."""
    failed = None
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            failed = failed or error
    return failed
