"""Strays: what commands of dead mcode processes left behind, found by the tag in their environment."""

from __future__ import annotations

import os
from collections.abc import Iterable

from mcode_exec.sandbox import procfs
from mcode_exec.sandbox.ending import end_processes
from mcode_exec.sandbox.procfs import ProcessRef, ProcessStat
from mcode_exec.sandbox.trees import TAG_VARIABLE


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
