"""The one line of a terminal that says what is going on.

Drawn at most ten times a second and at least once a second while it is shown,
cleared before any other line, never wider than the terminal, never drawn when
stderr is no terminal or belongs to another foreground job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from mcode_exec.output.escape import escape

if TYPE_CHECKING:
    import asyncio

    from mcode_exec.output.writer import Channel

_REDRAW_S = 0.1
_TICK_S = 1.0
_CLEAR = b"\r\x1b[K"


def is_wanted(channel: Channel, env: Mapping[str, str]) -> bool:
    """Whether `channel` is a terminal that can rewrite a line."""
    return channel.is_terminal and env.get("TERM", "dumb") not in ("", "dumb")


class StatusLine:
    """Keeps the newest facts and draws them when it is time."""

    def __init__(self, channel: Channel, *, with_color: bool) -> None:
        self._channel = channel
        self._with_color = with_color
        self._started_s = time.monotonic()
        self._drawn_s = 0.0
        self._facts = ""
        self._is_shown = False
        self._timer: asyncio.TimerHandle | None = None

    def update(
        self, *, step: int, tool: str | None, tokens: int | None, cost_usd: Decimal | None, phase: str
    ) -> None:
        """New facts; drawn now if the last drawing is long enough ago, else soon."""
        parts = [f"step {step}" if step else "", escape(tool or phase)]
        if tokens is not None:
            parts.append(f"{_short(tokens)} tokens")
        if cost_usd is not None:
            parts.append(f"${cost_usd:.4f}")
        self._facts = " · ".join(part for part in parts if part)
        wait_s = self._drawn_s + _REDRAW_S - time.monotonic()
        if wait_s <= 0:
            self._draw()
        else:
            self._schedule(wait_s)

    def clear(self) -> bytes:
        """What must be written before another line; nothing if no status is on the screen."""
        if not self._is_shown:
            return b""
        self._is_shown = False
        return _CLEAR

    def stop(self) -> bytes:
        """The last word of the status line: how to take it away."""
        self._facts = ""
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
        if not self._facts:
            return
        self._schedule(_TICK_S)
        self._drawn_s = time.monotonic()
        if self._channel.pending_bytes or not self._is_foreground():
            return
        text = f"{self._facts} · {_clock(self._drawn_s - self._started_s)}"[: self._width() - 1]
        if self._with_color:
            text = f"\x1b[2m{text}\x1b[0m"
        self._channel.post(_CLEAR + text.encode("utf-8", "replace"))
        self._is_shown = True

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self._channel.fd).columns
        except OSError:
            columns = 0
        return columns or 80  # a pseudo-terminal that nobody sized says 0

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


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
