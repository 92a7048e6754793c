"""The clocks: stored instants are UTC milliseconds, durations are monotonic seconds.

`Clock` is passed to whatever stores or measures time; tests pass one they move.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What time it is, in the three senses that mcode needs."""

    def now_ms(self) -> int:
        """UTC milliseconds since the epoch, for stored instants and people."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never step back, for durations within this process."""
        ...

    def boot_ms(self) -> int:
        """Milliseconds since boot, suspend included; the same for every process of one boot."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class MovedClock(SystemClock):
    """The machine's clocks, as if it had been another time when this was made."""

    def __init__(self, now_ms: int) -> None:
        self._ahead_ms = now_ms - super().now_ms()

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms
