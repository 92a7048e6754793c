"""What /proc says about processes, and signals that cannot hit the wrong one.

A `ProcessRef` is a pid with its start time, so that a reused pid is never
taken for the process it once was.  Reading is best effort: a process may go at
any instant, and then it is simply absent from the answer.  Decides nothing
about who owns a process; see trees.py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from msgspec import Struct


class ProcessRef(Struct, frozen=True):
    """One process, for as long as this boot lasts."""

    pid: int
    #: clock ticks since boot
    start: int


class ProcessStat(Struct, frozen=True):
    ref: ProcessRef
    is_zombie: bool
    parent: int
    group: int
    session: int


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def find_stat(pid: int) -> ProcessStat | None:
    raw = _read(f"/proc/{pid}/stat")
    # the command name stands in parentheses and may hold anything, parentheses included
    fields = raw[raw.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return ProcessStat(
        ProcessRef(pid, int(fields[19])),
        is_zombie=fields[0] in (b"Z", b"X"),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
    )


def children(pid: int) -> list[int]:
    """Direct children of `pid`, those that were reparented to it included."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        found.extend(int(field) for field in _read(f"/proc/{pid}/task/{thread}/children").split())
    if not found and not _kernel_lists_children():
        return _children_without_procfs(pid)
    return found


@cache
def _kernel_lists_children() -> bool:
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _children_without_procfs(pid: int) -> list[int]:
    """A kernel without CONFIG_PROC_CHILDREN: ask every process for its parent."""
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def descendants(
    pids: Iterable[int],
    *,
    into: dict[int, ProcessStat] | None = None,
    many: int | None = None,
    on_many: Callable[[], None] | None = None,
) -> list[ProcessStat]:
    """`pids` and everything below them, zombies left out.

    What is in `into` already is neither looked at nor given; what is found is added.  `on_many` is called
    when `many` have been found.
    """
    known: dict[int, ProcessStat] = {} if into is None else into
    found: list[ProcessStat] = []
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        if pid in known:
            continue
        stat = find_stat(pid)
        if stat is None:
            continue
        known[pid] = stat
        found.append(stat)
        if len(found) == many and on_many is not None:
            on_many()
        waiting.extend(children(pid))
    return [stat for stat in found if not stat.is_zombie]


def every_pid() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def find_variable(pid: int, name: bytes) -> bytes | None:
    """The value a process was started with; None where it is unset or unreadable."""
    prefix = name + b"="
    for entry in _read(f"/proc/{pid}/environ").split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :]
    return None


def command_line(pid: int) -> str:
    """One printable line, at most 200 characters, that tells people what a process is."""
    raw = _read(f"/proc/{pid}/cmdline").rstrip(b"\0").replace(b"\0", b" ")
    if not raw:
        raw = _read(f"/proc/{pid}/comm").strip()
    text = raw.decode("utf-8", "replace")
    text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= 200 else text[:199] + "…"


def is_alive(ref: ProcessRef) -> bool:
    stat = find_stat(ref.pid)
    return stat is not None and stat.ref == ref and not stat.is_zombie


def send_signal(ref: ProcessRef, signum: int) -> bool:
    """Signal exactly this process; False if it is gone or not ours to signal."""
    try:
        pidfd = os.pidfd_open(ref.pid)
    except ProcessLookupError:
        return False
    except OSError:
        return _signal_by_pid(ref, signum)
    try:
        # the descriptor pins the process: if the start time still fits, it is the right one
        if not is_alive(ref):
            return False
        signal.pidfd_send_signal(pidfd, signum)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def _signal_by_pid(ref: ProcessRef, signum: int) -> bool:
    """A kernel without pidfds leaves a window of microseconds between look and kill."""
    if not is_alive(ref):
        return False
    try:
        os.kill(ref.pid, signum)
    except OSError:
        return False
    return True
