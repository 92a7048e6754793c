"""Finding a text in the bytes of a file and putting another in its place.

Works on bytes, so that nothing outside the match can change.  A line feed of
the search text matches the file's CRLF too; the new text then takes the line
ends of the region it replaces.  Text that is not in the file as UTF-8 is tried
in the few encodings in which the whole file is valid.

Invariant: the result is `content` with the matched regions replaced, or a
ToolFailure that says why not.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable

from msgspec import Struct

from mcode_exec.tools import files
from mcode_exec.tools.failure import ToolFailure

#: tried for a search text that a file of unknown encoding does not hold as UTF-8
_LEGACY = ("cp1252", "latin-1", "gb18030", "shift_jis", "euc_jp", "euc_kr", "big5", "koi8_r", "cp1251")
_LINE_END = re.compile(rb"\r?\n")


class Edited(Struct, frozen=True, kw_only=True):
    content: bytes
    count: int
    #: line number of the first replacement
    line: int


def replace_text(content: bytes, old: str, new: str, *, replace_all: bool, shown: str) -> Edited:
    """`content` with `old`, which must occur once unless `replace_all`, replaced by `new`.

    Raises: ToolFailure when it does not occur, occurs more often, or could be something else.
    """
    utf16 = files.utf16_of(content)
    if utf16 is not None:
        return _replace_in_utf16(content, utf16, old, new, replace_all=replace_all, shown=shown)
    is_utf8 = files.is_utf8(content)
    encode = _encoder("utf-8")
    matches = _find(content, encode(old))
    if matches and not is_utf8:
        _refuse_unsafe(content, matches, old, new, shown)
    elif not matches and not is_utf8 and not old.isascii():
        encode, matches = _find_in_legacy(content, old, new, shown)
    if not matches:
        from mcode_exec.tools.hints import not_found

        raise ToolFailure(not_found(content, old, shown))
    if len(matches) == 1 and not replace_all:
        # another one may begin inside of it: which of the two is meant is unknown
        only_start, only_end = matches[0]
        others = _find(content, encode(old), overlapping=True)
        matches = [match for match in others if only_start <= match[0] < only_end]
    if len(matches) > 1 and not replace_all:
        lines = ", ".join(str(_line_of(content, start)) for start, _ in matches[:5])
        more = ", …" if len(matches) > 5 else ""
        raise ToolFailure(
            f"old_string occurs {len(matches)} times in {shown} (lines {lines}{more});"
            " add lines around it until it is unique, or set replace_all"
        )
    return _replace(content, matches, encode(old), encode(new))


def _encoder(codec: str) -> Callable[[str], bytes]:
    def encode(text: str) -> bytes:
        try:
            return text.encode(codec)
        except UnicodeEncodeError:
            raise ToolFailure(f"the text holds characters that {codec} cannot") from None

    return encode


def _find(content: bytes, old: bytes, *, overlapping: bool = False) -> list[tuple[int, int]]:
    """Regions (start, end) that match, a line feed in `old` also a CRLF.

    In time that grows with the file, whatever it repeats: a regular expression with
    an optional CR before every LF would try each line as the first.
    """
    if b"\n" not in old or b"\r\n" not in content:
        return _spans(content, old, overlapping=overlapping)
    old = old.replace(b"\r\n", b"\n")
    found = _spans(content.replace(b"\r\n", b"\n"), old, overlapping=overlapping)
    if not found:
        return []
    removed = [at.start() for at in re.finditer(rb"\r\n", content)]

    def original(position: int) -> int:
        return position + bisect_left(range(len(removed)), position, key=lambda index: removed[index] - index)

    return [(original(start), original(end)) for start, end in found]


def _spans(content: bytes, old: bytes, *, overlapping: bool) -> list[tuple[int, int]]:
    spans = []
    step = 1 if overlapping else len(old)
    start = content.find(old)
    while start >= 0:
        spans.append((start, start + len(old)))
        start = content.find(old, start + step)
    return spans


def _replace(content: bytes, matches: list[tuple[int, int]], old: bytes, new: bytes) -> Edited:
    parts = []
    at = 0
    ends = _LineEnds(content) if b"\n" in new and b"\r\n" in content else None
    for start, end in matches:
        parts.append(content[at:start])
        parts.append(new if ends is None else _with_line_ends(ends, start, end, old, new))
        at = end
    parts.append(content[at:])
    return Edited(content=b"".join(parts), count=len(matches), line=_line_of(content, matches[0][0]))


class _LineEnds:
    """The line ends of a content, asked for from its start to its end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._last = content.rfind(b"\n")
        #: the line feed at or behind the place that was asked for last
        self._following = content.find(b"\n")

    def of_region(self, start: int, end: int) -> list[bytes]:
        return _LINE_END.findall(self._content, start, end)

    def usual(self, start: int, region_ends: list[bytes]) -> bytes:
        """Of the region; else of the line it lies in, else of the line before."""
        if region_ends:
            return b"\r\n" if region_ends.count(b"\r\n") * 2 >= len(region_ends) else b"\n"
        if self._following < start <= self._last:
            self._following = self._content.find(b"\n", start)
        line_feed = min(max(self._following, start), self._last)
        return b"\r\n" if self._content[line_feed - 1 : line_feed] == b"\r" else b"\n"


def _with_line_ends(ends: _LineEnds, start: int, end: int, old: bytes, new: bytes) -> bytes:
    """`new` with the line ends of the region: unchanged lines keep each their own."""
    region_ends = ends.of_region(start, end)
    usual = ends.usual(start, region_ends)
    if usual == b"\n" and b"\r\n" not in region_ends:
        return new
    old_lines = old.replace(b"\r\n", b"\n").split(b"\n")
    new_lines = new.replace(b"\r\n", b"\n").split(b"\n")
    last = len(new_lines) - 1
    shorter = min(len(old_lines), len(new_lines))
    same_before = 0
    while same_before < shorter and old_lines[same_before] == new_lines[same_before]:
        same_before += 1
    same_after = 0
    while same_after < shorter - same_before and old_lines[-1 - same_after] == new_lines[-1 - same_after]:
        same_after += 1
    parts = []
    for index, line in enumerate(new_lines):
        parts.append(line)
        if index == last:
            break
        if index < same_before and index < len(region_ends):
            parts.append(region_ends[index])
        elif last - index <= same_after and last - index <= len(region_ends):
            parts.append(region_ends[index - last])
        else:
            parts.append(usual)
    return b"".join(parts)


def _refuse_unsafe(content: bytes, matches: list[tuple[int, int]], old: str, new: str, shown: str) -> None:
    """In a file of unknown encoding a match must not begin inside a character, nor the new text mix encodings."""
    for start, _ in matches:
        # in GBK, Shift-JIS or Big5 the second byte of a character may look like ASCII
        if (
            start
            and content[start - 1] >= 0x80
            and content[start] >= 0x30
            and not _ends_utf8_character(content, start)
        ):
            raise ToolFailure(
                f"{shown} is not UTF-8, and old_string may begin inside a character of it;"
                " begin it at the start of a line or after an ASCII character"
            )
    if old.isascii() and not new.isascii():
        raise ToolFailure(
            f"{shown} is not UTF-8 and its encoding is unknown, so new_string must be ASCII;"
            " use a command such as iconv for anything else"
        )


def _ends_utf8_character(content: bytes, end: int) -> bool:
    for length in (2, 3, 4):
        try:
            if len(content[max(end - length, 0) : end].decode("utf-8")) == 1:
                return True
        except UnicodeDecodeError:
            continue
    return False


def _find_in_legacy(
    content: bytes, old: str, new: str, shown: str
) -> tuple[Callable[[str], bytes], list[tuple[int, int]]]:
    """Encoder and matches in the one encoding in which the file holds `old`; no match when there is none."""
    found: dict[tuple[bytes, bytes | None], tuple[str, list[tuple[int, int]]]] = {}
    for codec in _LEGACY:
        try:
            content.decode(codec)
            encoded = old.encode(codec)
        except UnicodeError:
            continue
        matches = _at_characters(content, _find(content, encoded), codec)
        if matches:
            try:
                written: bytes | None = new.encode(codec)
            except UnicodeEncodeError:
                written = None
            found.setdefault((encoded, written), (codec, matches))
    if not found:
        return _encoder("utf-8"), []
    if len(found) > 1:
        names = ", ".join(codec for codec, _ in found.values())
        raise ToolFailure(
            f"{shown} is not UTF-8 and could be {names}; use ASCII text in old_string and new_string, or a command"
        )
    codec, matches = next(iter(found.values()))
    return _encoder(codec), matches


def _at_characters(content: bytes, matches: list[tuple[int, int]], codec: str) -> list[tuple[int, int]]:
    """Those matches that begin where a character does; `content` is valid in `codec`."""
    kept = []
    at = 0
    for match in matches:
        # decoded from where a character is known to begin; the longest has four bytes
        for end in range(match[0], match[0] - 4, -1):
            if end <= at or _is_valid(content[at:end], codec):
                at = max(at, end)
                break
        if at == match[0]:
            kept.append(match)
    return kept


def _is_valid(content: bytes, codec: str) -> bool:
    try:
        content.decode(codec)
    except UnicodeDecodeError:
        return False
    return True


def _replace_in_utf16(
    content: bytes, codec: str, old: str, new: str, *, replace_all: bool, shown: str
) -> Edited:
    """By way of UTF-8, if the file survives the way there and back."""
    text = content[2:].decode(codec, "surrogatepass") if len(content) % 2 == 0 else None
    if text is None or text.encode(codec, "surrogatepass") != content[2:]:
        raise ToolFailure(f"{shown} is damaged UTF-16; use a command")
    try:
        inner = text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolFailure(f"{shown} is damaged UTF-16; use a command") from None
    edited = replace_text(inner, old, new, replace_all=replace_all, shown=shown)
    return Edited(
        content=content[:2] + edited.content.decode("utf-8").encode(codec),
        count=edited.count,
        line=edited.line,
    )


def _line_of(content: bytes, position: int) -> int:
    return content.count(b"\n", 0, position) + 1
