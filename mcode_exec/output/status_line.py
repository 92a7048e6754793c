"""The lines of a terminal that say what is going on, below everything else.

Drawn at most ten times a second and at least once a second while they are
shown, cleared before any other line, never wider or higher than the terminal,
never drawn when stderr is no terminal or belongs to another foreground job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from mcode_exec.output.escape import escape

if TYPE_CHECKING:
    import asyncio

    from mcode_exec.output.writer import Channel

_REDRAW_S = 0.1
_TICK_S = 1.0
#: a terminal with this off cuts a line that is too long for it, whatever it takes a character's width for
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"

#: what to draw, given for how many seconds the command has run
Lines = Callable[[float], Sequence[str]]


def is_wanted(channel: Channel, env: Mapping[str, str]) -> bool:
    """Whether `channel` is a terminal that can rewrite a line."""
    return channel.is_terminal and env.get("TERM", "dumb") not in ("", "dumb")


def of_turn(
    *, step: int, tool: str | None, tokens: int | None, cost_usd: Decimal | None, phase: str
) -> Lines:
    """The one line of a turn: `step 3 · bash · 12.3k tokens · $0.0123 · 1:02`."""
    parts = [f"step {step}" if step else "", escape(tool or phase)]
    if tokens is not None:
        parts.append(f"{_short(tokens)} tokens")
    if cost_usd is not None:
        parts.append(f"${cost_usd:.4f}")
    facts = " · ".join(part for part in parts if part)
    return lambda passed_s: (f"{facts} · {clock(passed_s)}",)


class StatusBlock:
    """Draws the newest lines when it is time."""

    def __init__(self, channel: Channel, *, with_color: bool) -> None:
        self._channel = channel
        self._with_color = with_color
        self._started_s = time.monotonic()
        self._drawn_s = 0.0
        self._lines: Lines | None = None
        #: how many are on the screen
        self._shown = 0
        self._timer: asyncio.TimerHandle | None = None

    def show(self, lines: Lines) -> None:
        """What is shown from now on; drawn now if the last drawing is long enough ago, else soon."""
        self._lines = lines
        wait_s = self._drawn_s + _REDRAW_S - time.monotonic()
        if wait_s <= 0:
            self._draw()
        else:
            self._schedule(wait_s)

    def clear(self) -> bytes:
        """What must be written before another line; nothing if nothing is on the screen."""
        shown, self._shown = self._shown, 0
        if not shown:
            return b""
        return b"\r\x1b[K" if shown == 1 else f"\r\x1b[{shown - 1}A\x1b[J".encode()

    def stop(self) -> bytes:
        """The last word: how to take what is shown away."""
        self._lines = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return self.clear()

    def _schedule(self, wait_s: float) -> None:
        import asyncio

        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._draw)

    def _draw(self) -> None:
        if self._lines is None:
            return
        self._schedule(_TICK_S)
        self._drawn_s = time.monotonic()
        if self._channel.pending_bytes or not self._is_foreground():
            return
        columns, rows = self._size()
        # where there is no room for all, the last one says most
        lines = [line[: columns - 1] for line in self._lines(self._drawn_s - self._started_s)][1 - rows :]
        text = "\n".join(lines)
        if self._with_color:
            text = f"\x1b[2m{text}\x1b[0m"
        if len(lines) > 1:
            text = f"{_NO_WRAP}{text}{_WRAP}"
        self._channel.post((self.clear() or b"\r\x1b[K") + text.encode("utf-8", "replace"))
        self._shown = len(lines)

    def _size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(self._channel.fd)
        except OSError:
            columns = rows = 0
        return columns or 80, max(rows or 24, 2)  # a pseudo-terminal that nobody sized says 0

    def _is_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._channel.fd) == os.getpgrp()
        except OSError:  # not our controlling terminal: nobody else's job either
            return True


def _short(count: int) -> str:
    if count < 1000:
        return str(count)
    if count < 1_000_000:
        return f"{count / 1000:.1f}k"
    return f"{count / 1_000_000:.2f}M"


def clock(seconds: float) -> str:
    """`2:05`, `1:02:05`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
