"""Matching relative paths against a glob pattern, in time that no pattern can blow up.

`*` and `?` stay within one path segment, `**` spans any number of them,
`[...]` and `{a,b}` are what shells make of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mcode_exec.tools.failure import ToolFailure

_MAX_ALTERNATIVES = 100

#: a compiled segment; None stands for `**`
_Segment = Callable[[str], object] | None


def matcher(pattern: str) -> Callable[[str], bool]:
    """A predicate over relative paths with `/` between their parts.

    Raises: ToolFailure for a pattern with too many alternatives.
    """
    alternatives = [_compile(alternative) for alternative in _expand_braces(pattern)]
    return lambda path: any(_matches(segments, path.split("/")) for segments in alternatives)


def has_magic(text: str) -> bool:
    return any(char in text for char in "*?[{")


def _expand_braces(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", current)
        if found is None:
            done.append(current)
        else:
            before, after = current[: found.start()], current[found.end() :]
            waiting.extend(before + choice + after for choice in found.group(1).split(","))
        if len(done) + len(waiting) > _MAX_ALTERNATIVES:
            raise ToolFailure(f"the pattern stands for more than {_MAX_ALTERNATIVES} alternatives")
    return done


def _compile(pattern: str) -> list[_Segment]:
    # fnmatch makes expressions whose stars never go back
    from fnmatch import translate

    segments: list[_Segment] = []
    for part in pattern.split("/"):
        if part == "**":
            if not segments or segments[-1] is not None:
                segments.append(None)
        elif part not in ("", "."):
            segments.append(re.compile(translate(part)).match)
    return segments


def _matches(segments: list[_Segment], parts: list[str]) -> bool:
    """Row by row: `reached` holds the numbers of segments that may have been consumed so far."""
    reached = _with_empty_spans(segments, {0})
    for part in parts:
        following: set[int] = set()
        for index in reached:
            if index == len(segments):
                continue
            segment = segments[index]
            if segment is None:
                following.add(index)
            elif segment(part):
                following.add(index + 1)
        reached = _with_empty_spans(segments, following)
        if not reached:
            return False
    return len(segments) in reached


def _with_empty_spans(segments: list[_Segment], reached: set[int]) -> set[int]:
    """`**` may also span nothing."""
    return reached | {index + 1 for index in reached if index < len(segments) and segments[index] is None}
