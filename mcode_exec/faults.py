"""Named points at which the fault suite kills the process, to prove that any instant will do.

`MCODE_FAULT=after-append:2` makes the process die by SIGKILL the second time it
passes that point.  Without the variable a point costs one look at a dict.
"""

from __future__ import annotations

import os

_passed: dict[str, int] = {}


def fault(point: str) -> None:
    """Die here if MCODE_FAULT says so."""
    wanted = os.environ.get("MCODE_FAULT")
    if wanted is not None:
        _maybe_die(point, wanted)


def _maybe_die(point: str, wanted: str) -> None:
    name, _, count = wanted.partition(":")
    if name != point:
        return
    _passed[point] = _passed.get(point, 0) + 1
    if _passed[point] >= int(count or "1"):
        import signal

        os.kill(os.getpid(), signal.SIGKILL)
