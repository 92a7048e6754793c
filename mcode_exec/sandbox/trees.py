"""Which processes belong to a command, and ending all of them.

mcode is the subreaper of whatever its commands start, so an orphan becomes our
direct child.  A process belongs to a command when it descends from its shell,
carries its tag in the environment it was started with, or lives in a session
that the command is known to have made.  An orphan without any of these (its
environment was cleared) belongs to whoever is the only one it can come from.
A parent pid of 1 is never taken for a sign of anything.

Invariant: nothing is signalled that cannot be shown to come from a command,
and nothing is waited for but strays, so that no other child's exit is stolen.
A direct child in a session of its own that is no stray must stand in
`own_children`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable

from mcode_exec.sandbox import procfs
from mcode_exec.sandbox.procfs import ProcessRef, ProcessStat

#: variable that tells a stray's owner and command
TAG_VARIABLE = "MCODE_STRAY"
#: seconds between SIGTERM and SIGKILL
GRACE_S = 2.0
#: seconds after which a zombie that nobody has waited for is taken for a stray
_ZOMBIE_AGE_S = 5.0

#: pids of our live direct children that are waited for elsewhere
own_children: set[int] = set()

#: zombies of unknown origin -> when they were first seen
_unclaimed_zombies: dict[ProcessRef, float] = {}

Find = Callable[[], list[ProcessStat]]


class Trace:
    """What is known of the processes of one command."""

    def __init__(self, tag: str, shell: ProcessRef) -> None:
        self.tag = tag.encode()
        #: start time of the shell: nothing of the command is older
        self.start = shell.start
        self.sessions = {shell.pid}
        #: seen once as part of it; stays part of it when reparented
        self.seen: set[ProcessRef] = set()

    def find(self, shell_pid: int | None, *, unknown_since: int | None) -> list[ProcessStat]:
        """Its live processes.

        `shell_pid` while the shell has not been waited for; `unknown_since`:
        orphans of unknown origin that are no older count as its own.
        """
        roots = [ref.pid for ref in self.seen if procfs.is_alive(ref)]
        if shell_pid is not None:
            roots.append(shell_pid)
        for orphan in orphans():
            if orphan.session in self.sessions:
                roots.append(orphan.ref.pid)
                continue
            tag = procfs.find_variable(orphan.ref.pid, TAG_VARIABLE.encode())
            if tag == self.tag or _is_unknown(tag, self.tag, orphan, unknown_since):
                roots.append(orphan.ref.pid)
        found = procfs.descendants(roots)
        self.seen = {stat.ref for stat in found}
        self.sessions.update(stat.session for stat in found)
        return found


def _is_unknown(tag: bytes | None, own_tag: bytes, orphan: ProcessStat, since: int | None) -> bool:
    """Whether nothing tells where `orphan` comes from, or the tag of another mcode that ran inside of ours."""
    if since is None or orphan.ref.start < since:
        return False
    return tag is None or not tag.startswith(own_tag.partition(b":")[0] + b":")


def orphans() -> list[ProcessStat]:
    """Our direct children that nobody here has started: reparented to us, or zombies of such."""
    own_session = os.getsid(0)
    found = []
    for pid in procfs.children(os.getpid()):
        if pid in own_children:
            continue
        stat = procfs.find_stat(pid)
        # every shell is a session leader, so what comes from a command is never in our session
        if stat is not None and stat.session != own_session:
            found.append(stat)
    return found


async def end_processes(find: Find, *, grace_s: float = GRACE_S) -> None:
    """SIGTERM to all that `find` names, SIGKILL to what is left after `grace_s`.

    Cancellation: goes to SIGKILL at once, finishes, and is raised then.
    """
    cancelled: asyncio.CancelledError | None = None
    try:
        if await _terminate(find, grace_s):
            return
    except asyncio.CancelledError as stop:
        cancelled = stop
    step_s = 0.002
    killed: set[ProcessRef] = set()
    # a tree that forks faster than it is read needs several rounds
    for _ in range(200):
        living = find()
        if not living:
            break
        for stat in living:
            procfs.send_signal(stat.ref, signal.SIGKILL)
            killed.add(stat.ref)
        try:
            await asyncio.sleep(step_s)
        except asyncio.CancelledError as stop:
            cancelled = stop
        step_s = min(step_s * 2, 0.02)
    reap_strays(killed)
    if cancelled is not None:
        raise cancelled


async def _terminate(find: Find, grace_s: float) -> bool:
    """True when everything is gone within `grace_s`."""
    deadline_s = time.monotonic() + grace_s
    told: set[ProcessRef] = set()
    step_s = 0.002
    while True:
        living = find()
        if not living:
            reap_strays(told)
            return True
        if time.monotonic() >= deadline_s:
            return False
        for stat in living:
            if stat.ref not in told:
                told.add(stat.ref)
                procfs.send_signal(stat.ref, signal.SIGTERM)
                # a stopped process takes SIGTERM only when it goes on
                procfs.send_signal(stat.ref, signal.SIGCONT)
        await asyncio.sleep(step_s)
        step_s = min(step_s * 2, 0.05)


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


async def end_strays(owner_tokens: Iterable[str]) -> list[ProcessRef]:
    """End what commands of dead mcode processes left behind, found by their tag; what was ended.

    Best effort: processes of other users and with a cleared environment are not seen.
    """
    prefixes = tuple(f"{token}:".encode() for token in owner_tokens)
    if not prefixes:
        return []
    ended: set[ProcessRef] = set()

    def find() -> list[ProcessStat]:
        tagged = [pid for pid in procfs.every_pid() if _has_tag(pid, prefixes)]
        found = procfs.descendants([*tagged, *(ref.pid for ref in ended if procfs.is_alive(ref))])
        # we may run below a stray ourselves
        found = [stat for stat in found if stat.ref.pid != os.getpid()]
        ended.update(stat.ref for stat in found)
        return found

    await end_processes(find)
    return sorted(ended, key=lambda ref: ref.start)


def _has_tag(pid: int, prefixes: tuple[bytes, ...]) -> bool:
    if pid == os.getpid():
        return False
    tag = procfs.find_variable(pid, TAG_VARIABLE.encode())
    return tag is not None and tag.startswith(prefixes)
