"""How much of an output the model gets: head and tail, cut between lines or characters, its size stated.

Invariant: what is left out is never left out silently, and the whole text is
in a file that `read` can open, 0600.
"""

from __future__ import annotations

import os

from msgspec import Struct

from mcode_exec.paths import make_private_dir, private_open
from mcode_exec.plurals import counted

#: what the model gets of one output; the rest is in the file
MAX_BYTES = 50 * 1024
MAX_LINES = 2000


class Capped(Struct, frozen=True, kw_only=True):
    text: str
    is_cut: bool = False
    #: where the whole text is, if it was cut and could be written
    output_path: str | None = None


def cap(
    text: str,
    output_path: str,
    *,
    raw: bytes | None = None,
    max_bytes: int = MAX_BYTES,
    max_lines: int = MAX_LINES,
) -> Capped:
    """`text` itself, or its head and tail around a line that says what is missing.

    `raw` is what goes to the file, where the text was decoded from bytes.
    """
    if raw is None:
        raw = text.encode("utf-8", "replace")
    if len(raw) <= max_bytes and raw.count(b"\n") <= max_lines:
        return Capped(text=text)
    path = output_path if write_output(raw, output_path) else None
    head, tail = head_and_tail(raw, raw, max_bytes=max_bytes, max_lines=max_lines)
    return Capped(
        text=join(
            head,
            tail,
            total_bytes=len(raw),
            total_lines=count_lines(raw),
            path=path,
            file_bytes=len(raw),
        ),
        is_cut=True,
        output_path=path,
    )


def head_and_tail(
    start: bytes, end: bytes, *, max_bytes: int = MAX_BYTES, max_lines: int = MAX_LINES
) -> tuple[str, str]:
    """The first half of the cap from `start` and the second half from `end`, whole lines where lines are short."""
    head = start[: max_bytes // 2]
    tail = end[-(max_bytes // 2) :]
    half = max_lines // 2
    if head.count(b"\n") > half:
        head = b"\n".join(head.split(b"\n", half)[:half]) + b"\n"
    elif (cut := head.rfind(b"\n")) > len(head) - 2000:
        head = head[: cut + 1]
    if tail.count(b"\n") > half:
        tail = b"\n".join(tail.rsplit(b"\n", half + 1)[1:])
    elif 0 <= (cut := tail.find(b"\n")) < 2000:
        tail = tail[cut + 1 :]
    return decode(head, is_end_cut=True), decode(tail, is_start_cut=True)


def join(
    head: str, tail: str, *, total_bytes: int, total_lines: int | None, path: str | None, file_bytes: int
) -> str:
    """Head and tail around a line that says what is missing, and how much of the whole `path` holds."""
    shown = len(head.encode("utf-8", "replace")) + len(tail.encode("utf-8", "replace"))
    lines = f" ({counted(total_lines, 'line')})" if total_lines is not None else ""
    held = (
        "the whole output is"
        if file_bytes >= total_bytes
        else f"its first {counted(file_bytes, 'byte is', 'bytes are')}"
    )
    where = f"; {held} in {path}" if path else ""
    note = f"[{max(total_bytes - shown, 0)} of {total_bytes} bytes{lines} left out here{where}]"
    return f"{head.rstrip(chr(10))}\n\n{note}\n\n{tail}"


def decode(raw: bytes, *, is_start_cut: bool = False, is_end_cut: bool = False) -> str:
    """Text of bytes; what is no UTF-8 becomes U+FFFD, but a character that our own cut tore is left out."""
    start, end = 0, len(raw)
    while is_start_cut and start < min(3, len(raw)) and 0x80 <= raw[start] < 0xC0:
        start += 1
    for back in range(1, min(4, end - start + 1) if is_end_cut else 0):
        byte = raw[end - back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            if back < length:
                end -= back
            break
        if byte < 0x80:
            break
    text = raw[start:end].decode("utf-8", "replace")
    return text.replace("\0", "�") if "\0" in text else text


def count_lines(raw: bytes) -> int:
    return raw.count(b"\n") + (0 if raw.endswith(b"\n") or not raw else 1)


def write_output(raw: bytes, path: str) -> bool:
    """Whether the whole output could be kept; failing to keep it does not fail the tool."""
    try:
        make_private_dir(os.path.dirname(path))
        with open(private_open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW), "wb") as file:
            file.write(raw)
    except OSError:
        try:
            os.unlink(path)  # a full disk: what is half there is of less use than its room
        except OSError:
            pass
        return False
    return True
