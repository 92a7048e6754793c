"""How many lines a change adds and deletes, for people and results."""

from __future__ import annotations

#: larger middles are counted as replaced as a whole: an exact diff would take seconds
_EXACT_LINES = 1500
#: of two files that differ in a line, most is compared in pieces
_PIECE_BYTES = 4096
_LINE_FEED = b"\n"[0]


def count_changes(old: bytes, new: bytes) -> tuple[int, int]:
    """(additions, deletions) in lines."""
    if old == new:
        return 0, 0
    start = _same_lines_before(old, new)
    end = _same_lines_after(old[start:], new[start:])
    old_lines = old[start : len(old) - end].splitlines(True)
    new_lines = new[start : len(new) - end].splitlines(True)
    if min(len(old_lines), len(new_lines)) < 2 or len(old_lines) + len(new_lines) > _EXACT_LINES:
        return len(new_lines), len(old_lines)
    from difflib import SequenceMatcher

    kept = sum(
        block.size for block in SequenceMatcher(None, old_lines, new_lines, False).get_matching_blocks()
    )
    return len(new_lines) - kept, len(old_lines) - kept


def _same_lines_before(old: bytes, new: bytes) -> int:
    """Length of the whole lines that both begin with."""
    shorter = min(len(old), len(new))
    same = 0
    while same < shorter and old[same : same + _PIECE_BYTES] == new[same : same + _PIECE_BYTES]:
        same += _PIECE_BYTES
    while same < shorter and old[same] == new[same]:
        same += 1
    return old.rfind(b"\n", 0, min(same, shorter)) + 1


def _same_lines_after(old: bytes, new: bytes) -> int:
    """Length of the whole lines that both end with."""
    shorter = min(len(old), len(new))
    same = 0
    while same + _PIECE_BYTES <= shorter and (
        old[len(old) - same - _PIECE_BYTES : len(old) - same]
        == new[len(new) - same - _PIECE_BYTES : len(new) - same]
    ):
        same += _PIECE_BYTES
    while same < shorter and old[-1 - same] == new[-1 - same]:
        same += 1
    if all(same == len(text) or text[-1 - same] == _LINE_FEED for text in (old, new)):
        return same
    # the first of them differs in what stands before
    newline = old.find(b"\n", len(old) - same)
    return len(old) - newline - 1 if newline >= 0 else 0
