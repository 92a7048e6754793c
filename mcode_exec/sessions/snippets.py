"""A short piece of a text around the words that were found in it, on one line."""

from __future__ import annotations

import re

from mcode_exec.sessions.words import Finder

#: characters of a snippet
SNIPPET_CHARS = 240
#: of them before the first word
_BEFORE_CHARS = 30

_SPACE = re.compile(r"\s+")


def snippet(text: str, finder: Finder, *, width: int = SNIPPET_CHARS) -> str | None:
    """The piece of `text` around the first of the words; None where none of them stands in it."""
    spans = finder.spans(text)
    if not spans:
        return None
    return cut_around(text, spans[0][0], width=width)


def cut_around(text: str, at: int, *, width: int = SNIPPET_CHARS) -> str:
    """`width` characters of `text` with the place `at` in them; what is left out is `…`."""
    before = min(_BEFORE_CHARS, width // 3)
    # cut first: a text may be megabytes of white space
    start = max(at - 4 * before, 0)
    head = _SPACE.sub(" ", text[start:at])
    tail = _SPACE.sub(" ", text[at : at + 4 * width])
    is_cut = start > 0 or len(head) > before
    head = _whole_word(head[-before:]) if is_cut else head
    room = width - len(head)
    is_long = len(tail) > room or at + 4 * width < len(text)
    tail = tail[:room] if is_long else tail
    piece = (head + tail).strip()
    return f"{'…' if is_cut else ''}{piece}{'…' if is_long else ''}"


def _whole_word(head: str) -> str:
    """Without the rest of a word that was cut through, where another follows."""
    _, space, rest = head.partition(" ")
    return rest if space and len(rest) >= len(head) // 2 else head
