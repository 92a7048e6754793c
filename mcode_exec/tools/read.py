"""read: lines of a text file with their numbers, or an image.

Bounded in memory and time whatever the file: a large one is scanned in pieces
for the lines that were asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mcode_exec.plurals import counted
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.tools import files, images
from mcode_exec.tools.context import ToolContext
from mcode_exec.tools.failure import ToolFailure
from mcode_exec.tools.paths import absolute, display
from mcode_exec.tools.threads import in_thread

MAX_LINES = 2000
MAX_BYTES = 50 * 1024
MAX_LINE_CHARS = 2000
_UTF16_NOTICE = "the file is UTF-16; edit keeps that"
_BYTES_NOTICE = "such bytes are shown as \ufffd. edit leaves them alone; do not write the file as a whole"


async def run(arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    path = ctx.kept_output(absolute(arguments["file_path"], ctx.workspace))
    return await in_thread(lambda: _read(path, arguments, ctx))


def _read(path: str, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    shown = display(path, ctx.workspace)
    fd, stat = files.open_regular(path, shown)
    try:
        start = files.read_up_to(fd, files.WHOLE_BYTES + 1)
        is_whole = len(start) <= files.WHOLE_BYTES
        if images.mime_of(start) or shown.lower().endswith(images.SUFFIXES):
            return _image(start, shown, ctx)
        if files.is_binary(start):
            raise ToolFailure(f"{shown} is a binary file of {counted(max(stat.st_size, len(start)), 'byte')}")
        ctx.reads.note(path, os.path.realpath(path), stat, start if is_whole else None)
        offset = arguments.get("offset", 1)
        limit = min(arguments.get("limit", MAX_LINES), MAX_LINES)
        if is_whole:
            return _text(start, offset, limit, shown)
        return _part_of_large(fd, start, offset, limit, shown=shown, size=stat.st_size)
    finally:
        os.close(fd)


def _image(content: bytes, shown: str, ctx: ToolContext) -> ToolOutcome:
    mime = images.mime_of(content)
    if not content:
        raise ToolFailure(f"{shown} is an empty file, not an image")
    if mime is None:
        raise ToolFailure(
            f"{shown} is not an image, whatever its name; look at it with a command such as head"
        )
    if len(content) > images.MAX_RAW_BYTES:
        raise ToolFailure(
            f"{shown} is {len(content)} bytes; encoded for the model that is more than"
            f" {images.MAX_ENCODED_BYTES} bytes. Scale it down first"
        )
    width, height = images.check_image(mime, content, shown)
    if not ctx.takes_images:
        raise ToolFailure(f"{shown} is an image ({mime}, {width}x{height}), and this model cannot see images")
    return ToolOutcome(
        content=f"image {shown}: {mime}, {width}x{height}, {counted(len(content), 'byte')}",
        title=shown,
        images=((mime, content),),
    )


def _text(content: bytes, offset: int, limit: int, shown: str) -> ToolOutcome:
    if not content:
        return ToolOutcome(content="(empty)", title=shown)
    text, notice = _decode(content)
    notes = [notice] if notice else []
    if not text:
        return _outcome("(empty)", notes, shown, is_cut=False)
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if offset > max(len(lines), 1):
        raise ToolFailure(f"{shown} has {counted(len(lines), 'line')}; offset {offset} is beyond its end")
    wanted = lines[offset - 1 : offset - 1 + limit]
    body, shown_count = _numbered(wanted, offset)
    last = offset + shown_count - 1
    if last < len(lines):
        notes.append(f"lines {offset} to {last} of {len(lines)}; go on with offset {last + 1}")
    return _outcome(body, notes, shown, is_cut=last < len(lines))


def _part_of_large(fd: int, start: bytes, offset: int, limit: int, *, shown: str, size: int) -> ToolOutcome:
    from mcode_exec.tools.large import read_part

    part = read_part(fd, start, offset, limit, chars=4 * MAX_BYTES, shown=shown, size=size)
    body, shown_count = _numbered(part.lines, offset)
    last = offset + shown_count - 1
    notes = []
    if files.utf16_of(start):
        notes.append(_UTF16_NOTICE)
    if part.bad_byte is not None:
        notes.append(f"the file is not UTF-8 (byte 0x{part.bad_byte:02x} near here); {_BYTES_NOTICE}")
    if part.is_torn:
        notes.append(f"line {offset} is longer than {4 * MAX_BYTES} characters")
    is_cut = shown_count < len(part.lines) or not part.is_end
    more = f"go on with offset {last + 1}" if is_cut else "nothing follows"
    notes.append(f"lines {offset} to {last} of a file of {counted(size, 'byte')}; {more}")
    return _outcome(body, notes, shown, is_cut=is_cut)


def _decode(content: bytes) -> tuple[str, str | None]:
    """Text, and what the model must know of how it was made."""
    utf16 = files.utf16_of(content)
    if utf16 is not None:
        return content[2:].decode(utf16, "replace"), _UTF16_NOTICE
    try:
        return content.decode("utf-8").removeprefix("\ufeff"), None
    except UnicodeDecodeError as error:
        return content.decode("utf-8", "replace"), (
            f"the file is not UTF-8 (byte 0x{content[error.start]:02x} at offset {error.start}); {_BYTES_NOTICE}"
        )


def _numbered(lines: list[str], first: int) -> tuple[str, int]:
    """The lines that fit, each with its number, and how many they are; at least one."""
    shown: list[str] = []
    size = 0
    for number, line in enumerate(lines, first):
        text = line.removesuffix("\r")
        if len(text) > MAX_LINE_CHARS:
            text = f"{text[:MAX_LINE_CHARS]} [line of {len(text)} characters cut]"
        text = f"{number:>6}\t{text}"
        size += len(text.encode("utf-8", "replace")) + 1
        if size > MAX_BYTES and shown:
            break
        shown.append(text)
    return "\n".join(shown), len(shown)


def _outcome(body: str, notes: list[str], shown: str, *, is_cut: bool) -> ToolOutcome:
    content = body + "".join(f"\n[{note}]" for note in notes)
    return ToolOutcome(content=content, title=shown, metadata={"truncated": is_cut})
