"""Signals: the first one trips the scope, the second ends the process at once.

Invariant: a handler only notes and trips; settlement and flushing happen on the
loop, and after them the first signal is raised again with its default action,
so that shells and loops see it.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, NoReturn

from mcode_exec.cli.noted_signals import SAME_S, end_as_init

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from mcode_exec.cli.noted_signals import NotedSignals


class SignalDoor:
    """Hands the first signal to the loop once there is one; before, it is only noted."""

    def __init__(self, noted: NotedSignals) -> None:
        self._noted = noted
        self._signals = noted.signals
        self._on_signal: Callable[[int], None] | None = None

    @property
    def signum(self) -> int | None:
        """The first signal that came, whenever it came."""
        return self._noted.signum

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
        self._noted.signum = signum
        assert self._on_signal is not None
        self._on_signal(signum)
        loop.call_later(SAME_S, self._arm, loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """The next signal is the second: the kernel ends the process, even if Python is stuck."""
        for signum in self._signals:
            loop.remove_signal_handler(signum)
            signal.signal(signum, signal.SIG_DFL if os.getpid() != 1 else end_as_init)


def die_by(signum: int) -> NoReturn:
    """End the process by `signum` itself, so that whoever waits sees a signal and not a number."""
    signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
    os.kill(os.getpid(), signum)
    os._exit(128 + signum)
