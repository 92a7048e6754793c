"""Secrets leave the environment that this process was started with, as others see it.

/proc/<pid>/environ shows the bytes a process was started with.  Being
undumpable closes it to other processes of an ordinary user, not to root's, and
most containers run everything as root.  Python has read its variables long
before; this blanks the bytes they were read from.
"""

from __future__ import annotations

import os
from collections.abc import Collection

#: fields of /proc/self/stat behind the command name (proc_pid_stat(5): env_start, env_end)
_ENV_START, _ENV_END = 47, 48


def blank_variables(names: Collection[str]) -> None:
    """Overwrite the values of `names`; `os.environ` keeps them.  Where the kernel does not say, nothing."""
    wanted = {os.fsencode(name) for name in names}
    start, end = _environment_range()
    if not wanted or start == 0 or end <= start:
        return
    import ctypes

    at = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name in wanted:
            ctypes.memset(at + len(name) + 1, ord("*"), len(value))
        at += len(entry) + 1


def _environment_range() -> tuple[int, int]:
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[_ENV_START]), int(fields[_ENV_END])
    except (OSError, IndexError, ValueError):
        return 0, 0
