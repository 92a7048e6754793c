"""Sets of program and option names, written as one line of words."""

from __future__ import annotations


def names(words: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(words.split())
