"""Which lines two versions of a file share, in bounded time.

What both begin and end with comes first; between lines that stand once in each
(patience) the rest is matched exactly (Myers), as long as the differences are
few enough to be counted in a moment.  Where they are too many the lines between
are taken as replaced: more is shown as changed than need be, never less.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

#: differences between two anchors that are searched for exactly, and in all of a file
_MAX_EDITS = 600
_MAX_WORK = 2_000_000

#: (begin in old, begin in new, number of lines) of lines that are the same
Block = tuple[int, int, int]


def split_lines(data: bytes) -> list[bytes]:
    """The lines with their ends; only a line feed ends one."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def is_binary(data: bytes) -> bool:
    """Whether git takes a content for no text: a NUL in its beginning."""
    return b"\0" in data[:8000]


def matching_blocks(old: Sequence[bytes], new: Sequence[bytes]) -> list[Block]:
    """The runs of lines that both have in common, in their order."""
    matcher = _Matcher(old, new)
    matcher.match(0, len(old), 0, len(new))
    return _joined(matcher.pairs)


def count_changes(old: bytes, new: bytes) -> tuple[int, int]:
    """(additions, deletions) in lines, as the blocks have them."""
    old_lines, new_lines = split_lines(old), split_lines(new)
    kept = sum(length for _, _, length in matching_blocks(old_lines, new_lines))
    return len(new_lines) - kept, len(old_lines) - kept


def _joined(pairs: list[Block]) -> list[Block]:
    joined: list[Block] = []
    for begin_old, begin_new, length in pairs:
        if joined:
            last_old, last_new, last_length = joined[-1]
            if last_old + last_length == begin_old and last_new + last_length == begin_new:
                joined[-1] = (last_old, last_new, last_length + length)
                continue
        joined.append((begin_old, begin_new, length))
    return joined


class _Matcher:
    """Finds the shared lines of one pair of files, within one budget of work."""

    def __init__(self, old: Sequence[bytes], new: Sequence[bytes]) -> None:
        numbers: dict[bytes, int] = {}
        self._old = [numbers.setdefault(line, len(numbers)) for line in old]
        self._new = [numbers.setdefault(line, len(numbers)) for line in new]
        self._work = _MAX_WORK
        #: in order
        self.pairs: list[Block] = []

    def match(
        self, old_from: int, old_to: int, new_from: int, new_to: int, *, with_anchors: bool = True
    ) -> None:
        """Match a range of both; the pairs that are found go behind those that are there."""
        old, new = self._old, self._new
        start = old_from
        while old_from < old_to and new_from < new_to and old[old_from] == new[new_from]:
            old_from += 1
            new_from += 1
        if old_from > start:
            self.pairs.append((start, new_from - (old_from - start), old_from - start))
        tail = 0
        while old_from < old_to - tail and new_from < new_to - tail:
            if old[old_to - tail - 1] != new[new_to - tail - 1]:
                break
            tail += 1
        self._middle(old_from, old_to - tail, new_from, new_to - tail, with_anchors=with_anchors)
        if tail:
            self.pairs.append((old_to - tail, new_to - tail, tail))

    def _middle(self, old_from: int, old_to: int, new_from: int, new_to: int, *, with_anchors: bool) -> None:
        anchors = self._anchors(old_from, old_to, new_from, new_to) if with_anchors else []
        if not anchors:
            self._exactly(old_from, old_to, new_from, new_to)
            return
        for at_old, at_new in [*anchors, (old_to, new_to)]:
            self.match(old_from, at_old, new_from, at_new, with_anchors=False)
            if at_old < old_to:
                self.pairs.append((at_old, at_new, 1))
            old_from, new_from = at_old + 1, at_new + 1

    def _anchors(self, old_from: int, old_to: int, new_from: int, new_to: int) -> list[tuple[int, int]]:
        """Lines that stand once in either range, as many as keep their order."""
        at_old = _once(self._old, old_from, old_to)
        at_new = _once(self._new, new_from, new_to)
        shared = [(at, at_new[number]) for number, at in at_old.items() if number in at_new]
        return _ascending(shared)

    def _exactly(self, old_from: int, old_to: int, new_from: int, new_to: int) -> None:
        """Myers' greedy algorithm; nothing is matched where the edits are too many."""
        old, new = self._old[old_from:old_to], self._new[new_from:new_to]
        if not old or not new or not set(old) & set(new):
            return
        trace = self._edits(old, new)
        if trace is None:
            return
        matched: list[Block] = []
        at_old, at_new = len(old), len(new)
        for edits in range(len(trace) - 1, 0, -1):
            reached = trace[edits - 1]
            diagonal = at_old - at_new
            comes_down = diagonal == -edits or (
                diagonal != edits and reached[diagonal - 1 + edits] < reached[diagonal + 1 + edits]
            )
            before = diagonal + 1 if comes_down else diagonal - 1
            from_old = reached[before + edits]
            from_new = from_old - before
            begin_old = from_old if comes_down else from_old + 1
            begin_new = from_new + 1 if comes_down else from_new
            if at_old > begin_old:
                matched.append((begin_old, begin_new, at_old - begin_old))
            at_old, at_new = from_old, from_new
        if at_old:
            matched.append((0, 0, at_old))
        for begin_old, begin_new, length in reversed(matched):
            self.pairs.append((old_from + begin_old, new_from + begin_new, length))

    def _edits(self, old: list[int], new: list[int]) -> list[list[int]] | None:
        """For each number of edits how far each diagonal comes; None where that takes too long.

        Shape: after `edits` edits, diagonal d stands at index d + edits + 1.
        """
        trace: list[list[int]] = []
        reached = [0, 0, 0]  # diagonals -1, 0 and 1 before the first edit
        for edits in range(_MAX_EDITS + 1):
            self._work -= 2 * edits + 1
            if self._work < 0:
                return None
            now = [0] * (2 * edits + 3)
            for diagonal in range(-edits, edits + 1, 2):
                if edits == 0:
                    at_old = 0
                elif diagonal == -edits or (
                    diagonal != edits and reached[diagonal - 1 + edits] < reached[diagonal + 1 + edits]
                ):
                    at_old = reached[diagonal + 1 + edits]
                else:
                    at_old = reached[diagonal - 1 + edits] + 1
                at_new = at_old - diagonal
                while at_old < len(old) and at_new < len(new) and old[at_old] == new[at_new]:
                    at_old += 1
                    at_new += 1
                now[diagonal + edits + 1] = at_old
                if at_old >= len(old) and at_new >= len(new):
                    trace.append(now)
                    return trace
            trace.append(now)
            reached = now
        return None


def _once(numbers: list[int], begin: int, end: int) -> dict[int, int]:
    seen: dict[int, int] = {}
    for at in range(begin, end):
        seen[numbers[at]] = -1 if numbers[at] in seen else at
    return {number: at for number, at in seen.items() if at >= 0}


def _ascending(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest part of `pairs`, whose first members ascend, in which the second ones ascend too."""
    ends: list[int] = []
    last: list[int] = []  # number of the pair that each length ends with
    before: list[int] = []
    for number, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(second)
            last.append(number)
        else:
            ends[length] = second
            last[length] = number
    chosen: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    return chosen[::-1]
