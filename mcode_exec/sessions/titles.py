"""Titles of sessions: one line of at most 80 characters that does nothing to a terminal.

A session is called by the first line of its first prompt, or as somebody says;
without a word it gets a default title, which other tools make in the same form:
it says nothing, and the next prompt with text takes its place.
Masking of secrets is the caller's, who knows them.
"""

from __future__ import annotations

import re
import time
import unicodedata

MAX_TITLE = 80  # characters
#: source: OpenCode session notes, default titles; a fork's has its number behind it
_PARENT, _CHILD = "New session - ", "Child session - "
_DEFAULT = re.compile(
    f"(?:{_PARENT}|{_CHILD})"
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z"
    r"(?: \(fork #[0-9]+\))?"
)
_LINE = re.compile(r"[^\n\r\u2028\u2029]+")
_LOOKED_AT = 1024  # characters of a line, which may have millions
#: marks and overrides of the direction of writing, and the byte order mark: they act on what stands around them
_ACTING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")


def title_in(text: str) -> str | None:
    """The first line of `text` in which something can be seen, at most 80 characters of it; None without one."""
    for line in _LINE.finditer(text):
        words = " ".join("".join(map(_harmless, line[0].lstrip()[:_LOOKED_AT])).split())
        if any(char.isprintable() and not char.isspace() for char in words):
            return words if len(words) <= MAX_TITLE else words[: MAX_TITLE - 1].rstrip() + "…"
    return None


def _harmless(char: str) -> str:
    if char.isprintable() or char.isspace():
        return char
    if char in _ACTING or unicodedata.category(char) == "Cc":
        return ""
    return "\ufffd" if unicodedata.category(char) == "Cs" else char


def default_title(now_ms: int, *, is_child: bool = False) -> str:
    """What a session is called that nobody has said anything to."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms // 1000))
    return f"{_CHILD if is_child else _PARENT}{moment}.{now_ms % 1000:03d}Z"


def is_default_title(title: str) -> bool:
    """Whether a title is one that a tool gave for want of a better: ours, or that of a session that is imported."""
    return _DEFAULT.fullmatch(title.strip()) is not None
