"""Ending processes: asked first, then killed, a tree that grows meanwhile included.

A tree is named by a function that is asked again each round, for processes
may be born between the look and the signal.  Whole process groups are killed
at once, because the kernel does that in one step that no fork can slip
through; one process after another, a tree that forks fast enough would
outrun us.

Invariant: only what the function named is signalled, and process groups of
its sessions; never our own group.  Which processes those are is trees.py's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable

from mcode_exec.sandbox import procfs, trees
from mcode_exec.sandbox.procfs import ProcessRef, ProcessStat

#: seconds between SIGTERM and SIGKILL
GRACE_S = 2.0
#: a tree that grows beyond this while it is asked to end is not asked any longer
_MAX_ASKED = 1000
#: rounds of SIGKILL; a tree whose processes leave their group needs several
_MAX_ROUNDS = 200

Find = Callable[[], list[ProcessStat]]


async def end_processes(find: Find, *, grace_s: float = GRACE_S) -> None:
    """SIGTERM to all that `find` names, SIGKILL to what is left after `grace_s`.

    Cancellation: goes to SIGKILL at once, finishes, and is raised then.
    """
    cancelled: asyncio.CancelledError | None = None
    try:
        if grace_s > 0 and await _terminate(find, grace_s):
            return
    except asyncio.CancelledError as stop:
        cancelled = stop
    step_s = 0.002
    killed: set[ProcessRef] = set()
    for _ in range(_MAX_ROUNDS):
        living = find()
        if not living:
            break
        _kill(living)
        killed.update(stat.ref for stat in living)
        try:
            await asyncio.sleep(step_s)
        except asyncio.CancelledError as stop:
            cancelled = stop
        step_s = min(step_s * 2, 0.02)
    trees.reap_strays(killed)
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
            trees.reap_strays(told)
            return True
        if time.monotonic() >= deadline_s or len(living) > _MAX_ASKED:
            return False
        for stat in living:
            if stat.ref not in told:
                told.add(stat.ref)
                procfs.send_signal(stat.ref, signal.SIGTERM)
                # a stopped process takes SIGTERM only when it goes on
                procfs.send_signal(stat.ref, signal.SIGCONT)
        await asyncio.sleep(step_s)
        step_s = min(step_s * 2, 0.05)


def _kill(living: Iterable[ProcessStat]) -> None:
    own_session, own_group = os.getsid(0), os.getpgrp()
    killed: set[int] = set()
    for seen in living:
        stat = procfs.find_stat(seen.ref.pid)
        if stat is None or stat.ref != seen.ref or stat.group in killed:
            continue
        # a group lies within one session, and every session but ours that is found here was made by a
        # command: its shell leads one of its own
        if stat.session != own_session and stat.group not in (own_group, 0, 1):
            killed.add(stat.group)
            try:
                os.killpg(stat.group, signal.SIGKILL)
                continue
            except OSError:
                pass  # all of it is another user's now, or has just gone
        procfs.send_signal(stat.ref, signal.SIGKILL)
