"""Signals that come before anything is known: noted, until the door of signals.py takes them over.

The first module of a run: what it imports is all that a signal can come too
early for, so it imports next to nothing.
"""

from __future__ import annotations

import os
import signal
import time

#: taken even where the caller has them ignored: a script's `&` does that to SIGINT, and a job must be able to be ended
_ALWAYS = (signal.SIGINT, signal.SIGTERM)
#: the rest of what people, batch systems and limits end a process with, if it is not ignored
_UNLESS_IGNORED = (
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGXCPU,
)
#: `timeout` and terminals send to the process and to its group: a repeat within this time is the same signal
SAME_S = 0.05


class NotedSignals:
    """The first signal, from the start of the process on."""

    def __init__(self) -> None:
        #: the first signal that came, whenever it came
        self.signum: int | None = None
        self._noted_s = 0.0
        self.signals = _ALWAYS + tuple(
            s for s in _UNLESS_IGNORED if signal.getsignal(s) is not signal.SIG_IGN
        )

    def begin(self) -> None:
        """Only note signals: nothing runs yet that could be settled."""
        for signum in self.signals:
            signal.signal(signum, self._note)
        # writing from the background to a terminal that minds must not stop the run
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)

    def _note(self, signum: int, _frame: object) -> None:
        if self.signum is None:
            self.signum = signum
            self._noted_s = time.monotonic()
        elif time.monotonic() - self._noted_s > SAME_S:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            os._exit(128 + signum)  # pid 1 outlives its signals


def default_interrupt() -> None:
    """For commands that have nothing to settle: Ctrl-C ends them quietly, and a script's background job as well."""
    for signum in _ALWAYS:
        signal.signal(signum, signal.SIG_DFL)
    if os.getpid() == 1:
        for signum in NotedSignals().signals:
            signal.signal(signum, end_as_init)


def end_as_init(signum: int, _frame: object) -> None:
    """The default action, which the kernel does not take against pid 1."""
    os._exit(128 + signum)
