"""How a script becomes an argument list.

A `Launcher` is the seam between running a command and confining it: it takes
the shell's argument list and gives back the one to execute.  `launch_plainly`
confines nothing; it only sees to it that the shell dies with mcode.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache

#: shell and its arguments -> what is executed in its place
Launcher = Callable[[Sequence[bytes]], list[bytes]]

#: the kernel refuses a single argument of 128 KiB; longer scripts go through a file
MAX_ARGUMENT_BYTES = 120 * 1024


@cache
def find_program(name: str) -> str | None:
    """Absolute path of an executable on PATH, or in the standard places when PATH is unset."""
    for directory in os.environ.get("PATH", "/usr/bin:/bin").split(os.pathsep):
        path = os.path.join(directory, name)
        if os.path.isabs(path) and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def shell_arguments(script: bytes, script_file: str | None) -> list[bytes]:
    """`bash` without its start-up files, or `sh`; reads `script_file` where one was written."""
    bash = find_program("bash")
    shell = [os.fsencode(bash), b"--noprofile", b"--norc"] if bash else [b"/bin/sh"]
    return [*shell, os.fsencode(script_file)] if script_file else [*shell, b"-c", script]


def launch_plainly(arguments: Sequence[bytes]) -> list[bytes]:
    """Run as is, with the parent-death signal set on the way.

    setpriv costs an exec (1 ms); a preexec_fn would turn vfork into a fork of
    the whole interpreter (2 ms at 60 MB and growing with memory) and runs
    Python between fork and exec.  Without setpriv the shell may outlive a
    killed mcode until the next one ends it as a stray.
    """
    setpriv = _find_setpriv()
    return [os.fsencode(setpriv), b"--pdeathsig", b"KILL", *arguments] if setpriv else list(arguments)


@cache
def _find_setpriv() -> str | None:
    path = find_program("setpriv")
    # the busybox applet of that name has no --pdeathsig
    return None if path is None or "busybox" in os.path.realpath(path) else path
