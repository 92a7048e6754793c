"""Opening a file of the user for reading without ever waiting for it.

Devices, FIFOs and sockets are refused by what `stat` says, before they are
opened; what turns into one in between is opened without blocking and refused
then.  Text is whatever has no NUL byte near its start.
"""

from __future__ import annotations

import os
import stat as stat_module

from mcode_exec.tools.failure import ToolFailure, explain

#: files up to this size are read whole
WHOLE_BYTES = 16 * 1024 * 1024

_KINDS = (
    (stat_module.S_ISFIFO, "a named pipe"),
    (stat_module.S_ISSOCK, "a socket"),
    (stat_module.S_ISCHR, "a character device"),
    (stat_module.S_ISBLK, "a block device"),
)


def open_regular(path: str, shown: str) -> tuple[int, os.stat_result]:
    """A descriptor and what it is; the caller closes it.

    Raises: ToolFailure for anything but a readable regular file.
    """
    try:
        _refuse_irregular(os.stat(path), shown)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise ToolFailure(explain(error, shown)) from error
    try:
        stat = os.fstat(fd)
        _refuse_irregular(stat, shown)
    except BaseException:
        os.close(fd)
        raise
    return fd, stat


def _refuse_irregular(stat: os.stat_result, shown: str) -> None:
    if stat_module.S_ISREG(stat.st_mode):
        return
    if stat_module.S_ISDIR(stat.st_mode):
        raise ToolFailure(f"{shown} is a directory; use list")
    for is_kind, kind in _KINDS:
        if is_kind(stat.st_mode):
            raise ToolFailure(f"{shown} is {kind}, not a regular file")
    raise ToolFailure(f"{shown} is not a regular file")


def read_up_to(fd: int, limit: int) -> bytes:
    """At most `limit` bytes, fewer at the end of the file or where a read would have to wait."""
    parts = []
    while limit > 0:
        try:
            part = os.read(fd, min(limit, 1 << 20))
        except BlockingIOError:
            break
        if not part:
            break
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def read_whole(path: str, shown: str) -> tuple[bytes, os.stat_result]:
    """Content and state of a regular file that is to be edited.

    Raises: ToolFailure, also for a file larger than 64 MiB.
    """
    fd, stat = open_regular(path, shown)
    try:
        content = read_up_to(fd, 4 * WHOLE_BYTES + 1)
    except OSError as error:
        raise ToolFailure(explain(error, shown)) from error
    finally:
        os.close(fd)
    if len(content) > 4 * WHOLE_BYTES:
        raise ToolFailure(f"{shown} is larger than {4 * WHOLE_BYTES >> 20} MiB; change it with a command")
    return content, stat


def is_binary(start: bytes) -> bool:
    return b"\0" in start[:8192] and utf16_of(start) is None


def utf16_of(start: bytes) -> str | None:
    """The codec of a file that begins with a UTF-16 byte order mark."""
    if start.startswith(b"\xff\xfe") and not start.startswith(b"\xff\xfe\0\0"):
        return "utf-16-le"
    if start.startswith(b"\xfe\xff"):
        return "utf-16-be"
    return None


def is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
