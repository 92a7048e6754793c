"""Wildcards of permission rules.

`*` is any run of characters, `/` and line breaks included, `?` is one
character, a pattern is anchored at both ends, and a trailing ` *` also matches
the bare command.  Matching is linear in practice: no regular expression that a
model's text could make explode.

A text may have parts that nobody knows before it runs (`$X`, a glob).  They are
written as UNKNOWN; `could_match` says whether some value of them would match.
"""

from __future__ import annotations

#: what a variable, a substitution or a brace expansion will be: any text, spaces and slashes too
UNKNOWN = "\ue000"
#: what an unquoted `*`, `?` or `[…]` will be: any text within one path component
GLOB = "\ue001"

#: characters; comparing two patterns takes time in proportion to both lengths
_LONGEST_COMPARED = 4_000

_PLACEHOLDERS = str.maketrans({UNKNOWN: "*", GLOB: "*"})


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern matches the whole text."""
    if pattern == "*":
        return True
    if _matches(pattern, text):
        return True
    return pattern.endswith(" *") and _matches(pattern[:-2], text)


def _matches(pattern: str, text: str) -> bool:
    first, *rest = pattern.split("*")
    if not rest:
        return len(pattern) == len(text) and _segment_at(pattern, text, 0)
    if len(first) > len(text) or not _segment_at(first, text, 0):
        return False
    last = rest.pop()
    end = len(text) - len(last)
    at = len(first)
    if end < at or not _segment_at(last, text, end):
        return False
    for segment in rest:
        at = _find_segment(segment, text, at, end)
        if at < 0:
            return False
        at += len(segment)
    return True


def _segment_at(segment: str, text: str, at: int) -> bool:
    if "?" not in segment:
        return text.startswith(segment, at)
    if at + len(segment) > len(text):
        return False
    return all(c in ("?", text[at + i]) for i, c in enumerate(segment))


def _find_segment(segment: str, text: str, start: int, end: int) -> int:
    if "?" not in segment:
        return text.find(segment, start, end)
    for at in range(start, end - len(segment) + 1):
        if _segment_at(segment, text, at):
            return at
    return -1


def could_match(pattern: str, text: str) -> bool:
    """Whether some value of the unknown parts of the text makes the pattern match."""
    if len(text) > _LONGEST_COMPARED:
        return True
    other = text.translate(_PLACEHOLDERS)
    if _intersects(pattern, other):
        return True
    return pattern.endswith(" *") and _intersects(pattern[:-2], other)


def _intersects(left: str, right: str) -> bool:
    """Whether two patterns have a text in common; `?` and `*` of the right one are wildcards too.

    A question mark or star that stands literally in a command is thereby read
    as a wildcard, which errs on the side of "could match".
    """
    # One row of the usual table: row[j] says whether left[i:] and right[j:] have a text in common.
    row = [False] * (len(right) + 1)
    row[len(right)] = True
    for j in range(len(right) - 1, -1, -1):
        row[j] = row[j + 1] and right[j] == "*"
    for i in range(len(left) - 1, -1, -1):
        star = left[i] == "*"
        below, row = row, [False] * (len(right) + 1)
        row[len(right)] = star and below[len(right)]
        for j in range(len(right) - 1, -1, -1):
            if star or right[j] == "*":
                row[j] = below[j] or row[j + 1]
            else:
                same = left[i] == right[j] or left[i] == "?" or right[j] == "?"
                row[j] = same and below[j + 1]
    return row[0]
