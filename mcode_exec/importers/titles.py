"""Titles that a program gave for want of a better one: a prompt's first line is put in their place."""

from __future__ import annotations

import re

#: source: OpenCode session notes, default titles; a fork's has its number behind it
_DEFAULT = re.compile(
    r"(?:New session|Child session) - \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z(?: \(fork #\d+\))?", re.ASCII
)


def is_default_title(title: str) -> bool:
    return _DEFAULT.fullmatch(title.strip()) is not None
