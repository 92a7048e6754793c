"""The one-shot abort of a turn: the first reason wins, the turn's task is cancelled once.

Signals, the deadline, limits, a lost lease and a closed stdout all trip the
same scope.  Because the task is cancelled exactly once, everything that runs
after it (settlement, flushing) may await freely.  Every wait of mcode is
asyncio-cancellable, so a trip reaches it within milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

AbortReason = Literal[
    "signal",
    "deadline",
    "limit",
    "user-stop",
    "stdout-closed",
    "lease-lost",
    "lease-renewal-failed",
    "session-deleting",
]


class Aborted(BaseException):
    """A wait outside the turn's own task met a tripped scope; no `except Exception` eats it."""

    def __init__(self, reason: AbortReason) -> None:
        super().__init__(reason)
        self.reason = reason


class AbortScope:
    """First reason wins; later trips change nothing."""

    def __init__(self) -> None:
        self.reason: AbortReason | None = None
        #: number of the signal, when the reason is `signal`
        self.signum: int | None = None
        self._task: asyncio.Task[object] | None = None
        self._inner: set[AbortScope] = set()

    @property
    def is_tripped(self) -> bool:
        return self.reason is not None

    def trip(self, reason: AbortReason, *, signum: int | None = None) -> bool:
        """Abort with `reason`; True if it was the first."""
        if self.reason is not None:
            return False
        self.reason = reason
        self.signum = signum
        if self._task is not None:
            self._task.cancel()
        for scope in tuple(self._inner):
            scope.trip(reason, signum=signum)
        return True

    @contextmanager
    def inner(self) -> Iterator[AbortScope]:
        """A scope for one turn of several: what ends the outer one ends it too, but not the other way round."""
        scope = AbortScope()
        if self.reason is not None:
            scope.trip(self.reason, signum=self.signum)
        self._inner.add(scope)
        try:
            yield scope
        finally:
            self._inner.discard(scope)

    def bind(self, task: asyncio.Task[object]) -> None:
        """Make `task` the one that a trip cancels; it is cancelled at once if the scope has tripped."""
        self._task = task
        if self.reason is not None:
            task.cancel()

    def release(self) -> None:
        """Stop cancelling: what runs from here on (settlement) must finish."""
        self._task = None

    def check(self) -> None:
        """Raise `Aborted` if tripped."""
        if self.reason is not None:
            raise Aborted(self.reason)
