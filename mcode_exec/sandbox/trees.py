"""Which processes belong to a command.

mcode is the subreaper of whatever its commands start, so an orphan becomes our
direct child.  A process belongs to a command when it descends from its shell,
carries its tag in the environment it was started with, or lives in a session
that the command is known to have made.  An orphan without any of these (its
environment was cleared) belongs to whoever is the only one it can come from.
A parent pid of 1 is never taken for a sign of anything.

Invariant: nothing is named that cannot be shown to come from a command, and
nothing is waited for but strays, so that no other child's exit is stolen.
A direct child in a session of its own that is no stray must stand in
`own_children`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from weakref import WeakSet

from mcode_exec.sandbox import procfs
from mcode_exec.sandbox.procfs import ProcessRef, ProcessStat

#: variable that tells a stray's owner and command
TAG_VARIABLE = "MCODE_STRAY"
#: seconds after which a zombie that nobody has waited for is taken for a stray
_ZOMBIE_AGE_S = 5.0

#: processes from which on they are stopped while they are looked at
_MANY = 200

#: pids of our live direct children that are waited for elsewhere
own_children: set[int] = set()

#: of every command of this process that runs or has left something behind
_known_traces: WeakSet[Trace] = WeakSet()

#: zombies of unknown origin -> when they were first seen
_unclaimed_zombies: dict[ProcessRef, float] = {}


class Trace:
    """What is known of the processes of one command."""

    def __init__(self, tag: str, shell: ProcessRef) -> None:
        self.tag = tag.encode()
        #: start time of the shell: nothing of the command is older
        self.start = shell.start
        #: None once it has been waited for: then its number may be another process's
        self.shell_pid: int | None = shell.pid
        self.sessions = {shell.pid}
        #: seen once as part of it; stays part of it when reparented
        self.seen: set[ProcessRef] = set()
        _known_traces.add(self)


def find(traces: Sequence[Trace], *, unknown_since: int | None) -> list[ProcessStat]:
    """The live processes of the commands of one runner, zombies apart; the traces learn from it.

    `unknown_since`: orphans of unknown origin that are no older count as theirs.  Where there are many,
    they are stopped for as long as the look takes: what forks meanwhile would never be seen whole.
    """
    if not traces:
        return []
    crowd = _Crowd()
    found: dict[int, ProcessStat] = {}
    try:
        roots = _find_roots(traces, unknown_since, crowd)
        for trace in traces:
            own = procfs.descendants(roots[trace], into=found, many=_MANY, on_many=crowd.stop)
            trace.seen = {stat.ref for stat in own}
            trace.sessions.update(stat.session for stat in own)
    finally:
        crowd.let_go_on()
    return [stat for stat in found.values() if not stat.is_zombie]


def _find_roots(traces: Sequence[Trace], unknown_since: int | None, crowd: _Crowd) -> dict[Trace, list[int]]:
    # a session tells at once what is another command's, without a look at its environment
    by_session = {session: trace for trace in _known_traces for session in trace.sessions}
    by_tag = {trace.tag: trace for trace in traces}
    roots: dict[Trace, list[int]] = {trace: [] for trace in traces}
    for number, orphan in enumerate(_each_orphan()):
        if number == _MANY:
            crowd.stop()
        owner = by_session.get(orphan.session)
        if owner is None:
            tag = procfs.find_variable(orphan.ref.pid, TAG_VARIABLE.encode())
            owner = by_tag.get(tag or b"")
            if owner is None and _is_unknown(tag, traces[-1].tag, orphan, unknown_since):
                owner = traces[-1]
        if owner in roots:
            roots[owner].append(orphan.ref.pid)
    for trace in traces:
        roots[trace] += [ref.pid for ref in trace.seen if procfs.is_alive(ref)]
        if trace.shell_pid is not None:
            roots[trace].append(trace.shell_pid)
    return roots


def _is_unknown(tag: bytes | None, own_tag: bytes, orphan: ProcessStat, since: int | None) -> bool:
    """Whether nothing tells where `orphan` comes from, or the tag of another mcode that ran inside of ours."""
    if since is None or orphan.ref.start < since:
        return False
    return tag is None or not tag.startswith(own_tag.partition(b":")[0] + b":")


class _Crowd:
    """All that this process's commands have started, stopped while there is much to look at."""

    def __init__(self) -> None:
        self._stopped: list[int] = []

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = [group for group in self._groups() if _signal_group(group, signal.SIGSTOP)]

    def let_go_on(self) -> None:
        for group in self._stopped:
            _signal_group(group, signal.SIGCONT)

    def _groups(self) -> Iterator[int]:
        """Each as soon as it is found, so that the look for the next one is a quieter one."""
        # a shell that has not been waited for still holds its number
        yield from [trace.shell_pid for trace in _known_traces if trace.shell_pid is not None]
        sessions = set().union(*(trace.sessions for trace in _known_traces))
        found: set[int] = set()
        for orphan in _each_orphan():
            if orphan.session in sessions and orphan.group not in found and not orphan.is_zombie:
                found.add(orphan.group)
                yield orphan.group


def _signal_group(group: int, signum: int) -> bool:
    try:
        os.killpg(group, signum)
    except OSError:
        return False
    return True


def orphans() -> list[ProcessStat]:
    """Our direct children that nobody here has started: reparented to us, or zombies of such."""
    return list(_each_orphan())


def _each_orphan() -> Iterator[ProcessStat]:
    own_session = os.getsid(0)
    for pid in procfs.children(os.getpid()):
        if pid in own_children:
            continue
        stat = procfs.find_stat(pid)
        # every shell is a session leader, so what comes from a command is never in our session
        if stat is not None and stat.session != own_session:
            yield stat


def reap_strays(known: Iterable[ProcessRef] = ()) -> None:
    """Wait for zombies that were reparented to us: those in `known`, and any that nobody else takes."""
    strays = {ref.pid for ref in known}
    now_s = time.monotonic()
    zombies = [stat for stat in orphans() if stat.is_zombie]
    for stat in zombies:
        first_seen_s = _unclaimed_zombies.setdefault(stat.ref, now_s)
        if stat.ref.pid in strays or now_s - first_seen_s > _ZOMBIE_AGE_S:
            try:
                os.waitpid(stat.ref.pid, os.WNOHANG)
            except ChildProcessError:
                pass
    remaining = {stat.ref for stat in zombies}
    for ref in [ref for ref in _unclaimed_zombies if ref not in remaining]:
        del _unclaimed_zombies[ref]
