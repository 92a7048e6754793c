"""Files beneath one directory, reached without following a symbolic link on the way.

Each part of a path is opened from the one before, so that nothing that a link,
a renamed directory or `..` says can lead outside.  The last directory stays
open: files that stand side by side cost one look at the way.  Never waits for a
FIFO or a device.
"""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Beneath:
    """A directory, held open.  Close it, or use it in a `with`."""

    def __init__(self, root: bytes) -> None:
        """Raises: OSError."""
        self._root = os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
        self._parent: tuple[bytes, int] | None = None

    def __enter__(self) -> Beneath:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.forget()
        os.close(self._root)

    def forget(self) -> None:
        """Look at the way anew: directories have come or gone."""
        if self._parent is not None:
            os.close(self._parent[1])
            self._parent = None

    def parent(self, path: bytes, *, make: bool = False) -> tuple[int, bytes]:
        """A descriptor of the directory that `path` is in, good until the next call, and the last part of `path`.

        `make`: missing directories are made.  Raises: OSError; ELOOP or ENOTDIR where a link is in the way.
        """
        directory, _, name = path.rpartition(b"/")
        if not directory:
            return self._root, name
        if self._parent is not None and self._parent[0] == directory:
            return self._parent[1], name
        current = os.dup(self._root)
        try:
            for part in directory.split(b"/"):
                inner = _step(current, part, make=make)
                os.close(current)
                current = inner
        except OSError:
            os.close(current)
            raise
        self.forget()
        self._parent = (directory, current)
        return current, name

    def status(self, path: bytes) -> os.stat_result | None:
        """What stands at `path`, links not followed; None where nothing does, or something else is in the way."""
        try:
            parent, name = self.parent(path)
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise

    def read(self, path: bytes, limit: int) -> bytes | None:
        """The content of a regular file, or the target of a link; None where it is neither, or longer than `limit`.

        Raises: OSError.
        """
        parent, name = self.parent(path)
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return os.readlink(name, dir_fd=parent)
        if not stat.S_ISREG(found.st_mode):
            return None
        descriptor = os.open(name, _FILE, dir_fd=parent)
        try:
            now = os.fstat(descriptor)
            if not stat.S_ISREG(now.st_mode) or now.st_size > limit:
                return None
            return _read(descriptor, limit)
        finally:
            os.close(descriptor)


def _step(current: int, part: bytes, *, make: bool) -> int:
    if part in (b"", b".", b".."):
        raise OSError(errno.EINVAL, "no part of a path beneath a directory", part)
    try:
        return os.open(part, _DIRECTORY, dir_fd=current)
    except FileNotFoundError:
        if not make:
            raise
    try:
        os.mkdir(part, 0o777, dir_fd=current)
    except FileExistsError:
        pass
    return os.open(part, _DIRECTORY, dir_fd=current)


def _read(descriptor: int, limit: int) -> bytes | None:
    pieces: list[bytes] = []
    left = limit + 1
    while left > 0:
        piece = os.read(descriptor, min(left, 1 << 20))
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        left -= len(piece)
    return None  # it grows beyond the limit while it is read
