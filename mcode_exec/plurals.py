"""How many of what, in words: `1 item`, `2 items`."""

from __future__ import annotations


def counted(count: int, one: str, many: str | None = None) -> str:
    """`count` and what is counted; `many`: its plural where that is not `one` with an s."""
    return f"{count} {one}" if count == 1 else f"{count} {many or one + 's'}"
