"""Some lines of a text file that is too large to hold: scanned in pieces, in bounded time.

Decoded as it is scanned, so that a line or a character is found whole wherever
a piece ends, in UTF-16 too.
"""

from __future__ import annotations

import codecs
import re
import time

from msgspec import Struct

from mcode_exec.plurals import counted
from mcode_exec.tools import files
from mcode_exec.tools.failure import ToolFailure

#: a scan for lines far inside ends here
_SCAN_S = 5.0
_PIECE_BYTES = 1 << 20


class Part(Struct, frozen=True, kw_only=True):
    lines: list[str]
    #: nothing stands behind the lines
    is_end: bool
    #: the only line is longer than what is here
    is_torn: bool
    #: the first byte among them that is not UTF-8
    bad_byte: int | None


def read_part(fd: int, start: bytes, offset: int, limit: int, *, chars: int, shown: str, size: int) -> Part:
    """Up to `limit` lines from line `offset` on, as far as they begin within `chars` characters.

    `start` has been read from `fd` already.
    Raises: ToolFailure when there is no such line, or it is too far inside.
    """
    utf16 = files.utf16_of(start)
    # the registry shows the surrogates, which stand for single bytes, as U+FFFD
    decoder = codecs.getincrementaldecoder(utf16 or "utf-8")("replace" if utf16 else "surrogateescape")
    text = decoder.decode(start).removeprefix("\ufeff")
    deadline_s = time.monotonic() + _SCAN_S
    line, is_end = 1, False
    while not is_end and (newlines := text.count("\n")) < offset - line:
        line += newlines
        text, is_end = _next(fd, decoder)
        if time.monotonic() > deadline_s:
            raise ToolFailure(
                f"{shown} is {size} bytes; line {offset} is too far inside. Use a command such as sed"
            )
    at = 0
    while line < offset and (newline := text.find("\n", at)) >= 0:
        at = newline + 1
        line += 1
    text = text[at:]
    while len(text) < chars and not is_end:
        more, is_end = _next(fd, decoder)
        text += more
    if line < offset or not text:
        raise ToolFailure(f"{shown} has about {counted(line - 1, 'line')}; offset {offset} is beyond its end")
    lines = text[:chars].split("\n")
    is_end = is_end and len(text) <= chars
    is_torn = not is_end and len(lines) == 1
    if not is_torn and (not is_end or lines[-1] == ""):
        lines.pop()
    bad = re.search("[\udc80-\udcff]", text[:chars])
    return Part(
        lines=lines[:limit],
        is_end=is_end and len(lines) <= limit,
        is_torn=is_torn,
        bad_byte=ord(bad[0]) - 0xDC00 if bad else None,
    )


def _next(fd: int, decoder: codecs.IncrementalDecoder) -> tuple[str, bool]:
    piece = files.read_up_to(fd, _PIECE_BYTES)
    return decoder.decode(piece, final=not piece), not piece
