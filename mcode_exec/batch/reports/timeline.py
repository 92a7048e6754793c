"""When the tasks of a run ran beside each other: bars in lanes on one axis of time.

A lane is a place that one task after another took, as a worker would.  Time in
which nothing ran (a run that was taken up again the next day) is cut short, so
that it does not make slivers of the rest.  Positions are shares of the width,
from 0 to 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from msgspec import Struct

from mcode_exec.durations import format_duration
from mcode_exec.records.job import TaskState

_CUT_WIDTH = 0.02  # of one stretch in which nothing ran
_MAX_CUTS_WIDTH = 0.3  # of all of them
_MIN_CUT_MS = 30_000
_MIN_CUT_SHARE = 0.1  # of the time in which something ran
_TICKS = 8
_STEPS_S = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)


class Bar(Struct, frozen=True, kw_only=True):
    """One task that had a turn."""

    task_id: str
    state: TaskState
    start_ms: int
    end_ms: int


class PlacedBar(Struct, frozen=True, kw_only=True):
    bar: Bar
    lane: int
    left: float
    width: float


class Tick(Struct, frozen=True, kw_only=True):
    left: float
    #: since the beginning of its stretch; empty at that beginning
    label: str
    #: at the beginning of a stretch
    at_ms: int | None = None


class Timeline(Struct, frozen=True, kw_only=True):
    bars: tuple[PlacedBar, ...] = ()
    lanes: int = 0
    ticks: tuple[Tick, ...] = ()
    #: where time was cut out
    cuts: tuple[float, ...] = ()


def lay_out(bars: Sequence[Bar]) -> Timeline:
    """Lanes, scale and ticks of bars in any order."""
    if not bars:
        return Timeline()
    ordered = sorted(bars, key=lambda bar: (bar.start_ms, bar.end_ms))
    stretches = _stretches(ordered)
    shown_ms = sum(end - start for start, end in stretches) or 1
    cut = min(_CUT_WIDTH, _MAX_CUTS_WIDTH / max(1, len(stretches) - 1))
    scale = (1 - cut * (len(stretches) - 1)) / shown_ms
    lefts: list[float] = []
    left = 0.0
    for start, end in stretches:
        lefts.append(left)
        left += (end - start) * scale + cut
    placed, lanes = _place(ordered, stretches, lefts, scale)
    return Timeline(
        bars=placed,
        lanes=lanes,
        ticks=tuple(_ticks(stretches, lefts, scale, shown_ms)),
        cuts=tuple(left - cut / 2 for left in lefts[1:]),
    )


def _stretches(ordered: Sequence[Bar]) -> list[tuple[int, int]]:
    """Where something ran, from and to; short rests between are part of it."""
    busy: list[tuple[int, int]] = []
    for bar in ordered:
        if busy and bar.start_ms <= busy[-1][1]:
            busy[-1] = (busy[-1][0], max(busy[-1][1], bar.end_ms))
        else:
            busy.append((bar.start_ms, bar.end_ms))
    rest_ms = max(_MIN_CUT_MS, sum(end - start for start, end in busy) * _MIN_CUT_SHARE)
    joined = busy[:1]
    for start, end in busy[1:]:
        if start - joined[-1][1] <= rest_ms:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _place(
    ordered: Sequence[Bar], stretches: Sequence[tuple[int, int]], lefts: Sequence[float], scale: float
) -> tuple[tuple[PlacedBar, ...], int]:
    placed: list[PlacedBar] = []
    #: lanes that are taken, by when they are free; lanes that were free before, the first of them first
    taken: list[tuple[int, int]] = []
    free: list[int] = []
    lanes = at = 0
    for bar in ordered:
        while bar.start_ms > stretches[at][1]:
            at += 1
        while taken and taken[0][0] <= bar.start_ms:
            heapq.heappush(free, heapq.heappop(taken)[1])
        if not free:
            free.append(lanes)
            lanes += 1
        lane = heapq.heappop(free)
        heapq.heappush(taken, (bar.end_ms, lane))
        placed.append(
            PlacedBar(
                bar=bar,
                lane=lane,
                left=lefts[at] + (bar.start_ms - stretches[at][0]) * scale,
                width=(bar.end_ms - bar.start_ms) * scale,
            )
        )
    return tuple(placed), lanes


def _ticks(
    stretches: Sequence[tuple[int, int]], lefts: Sequence[float], scale: float, shown_ms: int
) -> list[Tick]:
    step_s = next((one for one in _STEPS_S if shown_ms / 1000 / one <= _TICKS), None)
    step_ms = round((step_s or shown_ms / 1000 / _TICKS) * 1000)
    ticks: list[Tick] = []
    for (start, end), left in zip(stretches, lefts, strict=True):
        ticks.append(Tick(left=left, label="", at_ms=start))
        for passed in range(step_ms, end - start + 1, step_ms):
            ticks.append(Tick(left=left + passed * scale, label=f"+{format_duration(passed / 1000)}"))
    return ticks
