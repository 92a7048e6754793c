"""Signals: the first one trips the scope, the second ends the process at once.

Invariant: a handler only notes and trips; settlement and flushing happen on the
loop, and after them the first signal is raised again with its default action,
so that shells and loops see it.  A SIGHUP that was ignored at start stays
ignored.  A repeat within 50 ms is the same signal: `timeout` and terminals send
to the process and to its group.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_S = 0.05


class SignalDoor:
    """Notes the first signal from the start of the process on, and hands it to the loop once there is one."""

    def __init__(self) -> None:
        #: the first signal that came, whenever it came
        self.signum: int | None = None
        self._noted_s = 0.0
        self._signals = tuple(
            s for s in _ENDING if s != signal.SIGHUP or signal.getsignal(s) is not signal.SIG_IGN
        )
        self._on_signal: Callable[[int], None] | None = None

    def begin(self) -> None:
        """Only note signals: nothing runs yet that could be settled."""
        for signum in self._signals:
            signal.signal(signum, self._note)
        # writing from the background to a terminal that minds must not stop the run
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)

    def _note(self, signum: int, _frame: FrameType | None) -> None:
        if self.signum is None:
            self.signum = signum
            self._noted_s = time.monotonic()
        elif time.monotonic() - self._noted_s > _SAME_S:
            die_by(signum)

    def release(self) -> None:
        """There is nothing to settle after all: signals end the process as they always do."""
        for signum in self._signals:
            signal.signal(signum, signal.SIG_DFL)
        if self.signum is not None:
            die_by(self.signum)

    def attach(self, loop: asyncio.AbstractEventLoop, on_signal: Callable[[int], None]) -> None:
        """From here on the first signal calls `on_signal` on the loop; at once if it has come already."""
        self._on_signal = on_signal
        for signum in self._signals:
            loop.add_signal_handler(signum, self._received, loop, signum)
        if self.signum is not None:
            on_signal(self.signum)
            self._arm(loop)

    def _received(self, loop: asyncio.AbstractEventLoop, signum: int) -> None:
        if self.signum is not None:
            return
        self.signum = signum
        assert self._on_signal is not None
        self._on_signal(signum)
        loop.call_later(_SAME_S, self._arm, loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """The next signal is the second: the kernel ends the process, even if Python is stuck."""
        for signum in self._signals:
            loop.remove_signal_handler(signum)
            signal.signal(signum, signal.SIG_DFL if os.getpid() != 1 else _end_as_init)


def _end_as_init(signum: int, _frame: FrameType | None) -> None:
    os._exit(128 + signum)  # the kernel takes no default action against pid 1


def die_by(signum: int) -> NoReturn:
    """End the process by `signum` itself, so that whoever waits sees a signal and not a number."""
    signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
    os.kill(os.getpid(), signum)
    os._exit(128 + signum)


def default_interrupt() -> None:
    """For commands that have nothing to settle: Ctrl-C ends them quietly."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
