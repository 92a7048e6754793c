"""Files of JSON lines, read line by line: what is in memory is one line, and lines that are too long are counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from mcode_exec.importers.source import UnusableSourceError
from mcode_exec.importers.values import MAX_JSON_BYTES, UnreadableError, read_object
from mcode_exec.paths import open_regular


def open_lines(path: str) -> BinaryIO:
    """Raises: UnusableSourceError."""
    try:
        return open(open_regular(path), "rb")
    except OSError as error:
        raise UnusableSourceError(f"{path} cannot be read: {error.strerror}") from error


def read_lines(file: BinaryIO) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """(offset, object) of each line from the start; None for one that cannot be read.

    A last line without its end is being written, or was torn: it is none.
    """
    file.seek(0)
    offset = 0
    while line := file.readline(MAX_JSON_BYTES + 1):
        at, offset = offset, offset + len(line)
        if not line.endswith(b"\n"):
            rest = len(line)
            while rest and not line.endswith(b"\n"):  # the rest of a line that is too long
                line = file.readline(MAX_JSON_BYTES)
                rest = len(line)
                offset += rest
            if not line.endswith(b"\n") and offset - at <= MAX_JSON_BYTES:
                return
            yield at, None
            continue
        if not line.strip():
            continue
        try:
            yield at, read_object(line)
        except UnreadableError:
            yield at, None


def read_line_at(file: BinaryIO, offset: int) -> dict[str, Any] | None:
    """The object of the line at an offset."""
    file.seek(offset)
    try:
        return read_object(file.readline(MAX_JSON_BYTES + 1))
    except UnreadableError:
        return None


def state_of(path: str) -> str:
    """What changes when a file does."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise UnusableSourceError(f"{path} cannot be read: {error.strerror}") from error
    return f"{status.st_size}/{status.st_mtime_ns}"


def modified_ms(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except OSError:
        return 0
