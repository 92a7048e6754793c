"""A document that is written in pieces: to stdout, or as a file of its own.

Invariant: a regular file is there as a whole or as it was, never in parts, and
only its owner can read it (0600), whatever stood there before.  What is no
regular file (`-`, `/dev/fd/N`, a FIFO, a device) is written in place.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mcode_exec import paths
from mcode_exec.errors import OutputWriteFailedError
from mcode_exec.output.files import FIFO_READER_S, descriptor_of
from mcode_exec.output.writer import write_fully

_RETRY_S = 0.05
#: pieces are gathered to so many bytes before they are written
_GATHERED_BYTES = 256 * 1024

Write = Callable[[bytes], None]


@contextmanager
def document_file(flag: str, path: str, *, data: str | None = None) -> Iterator[Write]:
    """Takes the pieces of a document for `path`; the file is there when the block has ended without an error.

    `data`: the data directory, whose own files are nobody's target.
    Raises: OutputWriteFailedError; BrokenPipeError where stdout has no reader.
    """
    number = descriptor_of(path)
    if number is not None:
        with _gathered(number) as write:
            yield write
        return
    try:
        if data is not None and paths.is_kept(path, data):
            raise PermissionError(errno.EACCES, "it is mcode's own, in the data directory")
        target = os.path.realpath(path)
        with _in_place(target) if _is_special(target) else _replaced(target) as write:
            yield write
    except OSError as error:
        raise OutputWriteFailedError(f"{flag}: cannot write {path!r}: {error.strerror or error}.") from error


def _is_special(target: str) -> bool:
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return not stat.S_ISREG(mode)


@contextmanager
def _in_place(target: str) -> Iterator[Write]:
    descriptor = _open_special(target)
    try:
        os.set_blocking(descriptor, True)
        with _gathered(descriptor) as write:
            yield write
    finally:
        os.close(descriptor)


def _open_special(target: str) -> int:
    give_up_s = time.monotonic() + FIFO_READER_S
    while True:
        try:
            return os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() >= give_up_s:
                raise OSError(
                    errno.ENXIO, f"the FIFO had no reader for {FIFO_READER_S:.0f} seconds"
                ) from error
        time.sleep(_RETRY_S)


@contextmanager
def _replaced(target: str) -> Iterator[Write]:
    directory, name = os.path.split(target)
    temporary = os.path.join(directory, f".{name[:100]}.{os.urandom(6).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, paths.FILE_MODE)
    try:
        try:
            os.fchmod(descriptor, paths.FILE_MODE)
            with _gathered(descriptor) as write:
                yield write
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def replace_page(path: str, data: bytes) -> None:
    """Put a whole file in the place of `path` for others to read: the mode is the umask's, or what stood there had.

    A link in its place is replaced and not followed.  Raises: OSError.
    """
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.{os.urandom(6).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            before = os.lstat(path) if os.path.lexists(path) else None
            if before is not None and stat.S_ISREG(before.st_mode):
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)
            write_fully(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def _gathered(descriptor: int) -> Iterator[Write]:
    pieces: list[bytes] = []
    size = 0

    def write(piece: bytes) -> None:
        nonlocal size
        pieces.append(piece)
        size += len(piece)
        if size >= _GATHERED_BYTES:
            flush()

    def flush() -> None:
        nonlocal size
        write_fully(descriptor, b"".join(pieces))
        pieces.clear()
        size = 0

    yield write
    flush()
