"""How many lines a change adds and deletes, for people and results."""

from __future__ import annotations

#: larger middles are counted as replaced as a whole: an exact diff would take seconds
_EXACT_LINES = 1500


def count_changes(old: bytes, new: bytes) -> tuple[int, int]:
    """(additions, deletions) in lines."""
    if old == new:
        return 0, 0
    old_lines, new_lines = old.splitlines(True), new.splitlines(True)
    start = 0
    shorter = min(len(old_lines), len(new_lines))
    while start < shorter and old_lines[start] == new_lines[start]:
        start += 1
    end = 0
    while end < shorter - start and old_lines[-1 - end] == new_lines[-1 - end]:
        end += 1
    old_lines = old_lines[start : len(old_lines) - end]
    new_lines = new_lines[start : len(new_lines) - end]
    if min(len(old_lines), len(new_lines)) < 2 or len(old_lines) + len(new_lines) > _EXACT_LINES:
        return len(new_lines), len(old_lines)
    from difflib import SequenceMatcher

    kept = sum(
        block.size for block in SequenceMatcher(None, old_lines, new_lines, False).get_matching_blocks()
    )
    return len(new_lines) - kept, len(old_lines) - kept
