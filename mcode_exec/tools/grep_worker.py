"""The search where there is no rg: a script of its own, so that a slow expression can be killed.

Run as `python -I -S grep_worker.py REQUEST` with a JSON request; imports
nothing but the standard library.  Writes what `rg --null --line-number` writes.
Exit: 0 found, 1 nothing found, 2 bad expression (said on stdout).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator

_PIECE_BYTES = 64 * 1024 * 1024
_COLUMNS = 500


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    try:
        expression = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        sys.stdout.write(f"regex error: {error}\n")
        return 2
    left = request["limit"]
    for name in request["files"]:
        # surrogates stand for bytes that are no UTF-8, whatever the locale
        raw_name = name.encode("utf-8", "surrogateescape")
        lines = _lines(raw_name, with_cr=not request["ends_at_crlf"])
        for line in _search(raw_name, lines, expression, request["context"], left):
            sys.stdout.buffer.write(line)
            left -= 1
        if left <= 0:
            break
    sys.stdout.flush()
    return 0 if left < request["limit"] else 1


def _search(
    name: bytes, lines: list[str], expression: re.Pattern[str], context: int, limit: int
) -> Iterator[bytes]:
    matching = [index for index, line in enumerate(lines) if expression.search(line)]
    shown: dict[int, bool] = {}
    for index in matching[:limit]:
        for near in range(max(index - context, 0), min(index + context + 1, len(lines))):
            shown.setdefault(near, False)
        shown[index] = True
    previous = -1
    for index in sorted(shown):
        if context and previous >= 0 and index != previous + 1:
            yield b"--\n"
        previous = index
        mark = ":" if shown[index] else "-"
        text = lines[index][:_COLUMNS].rstrip("\r")
        yield name + b"\0" + f"{index + 1}{mark}{text}\n".encode("utf-8", "replace")


def _lines(name: bytes, *, with_cr: bool) -> list[str]:
    """Lines of a text file; none of a binary, unreadable or irregular one."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with open(fd, "rb") as file:
            if not os.path.isfile(name):
                return []
            start = file.read(8192)
            codec = "utf-16" if start.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
            if b"\0" in start and codec != "utf-16":
                return []
            content = start + file.read(_PIECE_BYTES)
    except OSError:
        return []
    lines = content.decode(codec, "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines if with_cr else [line.removesuffix("\r") for line in lines]


if __name__ == "__main__":
    sys.exit(main())
