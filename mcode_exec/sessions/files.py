"""Reading and writing a session's files so that they survive power loss, and so that nothing read keeps us waiting."""

from __future__ import annotations

import errno
import os
import stat

_TRIES = 100  # to make directories that others remove while they are empty


def read_file(path: str) -> bytes:
    """All of a session's file.  Raises: OSError, also for a FIFO, which must not keep the store waiting."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return file.read()


def make_dirs(path: str, below: str) -> None:
    """Make `path` and its missing parents below `below`, each 0700, and make them survive power loss."""
    for left in range(_TRIES - 1, -1, -1):
        try:
            _make_missing(path, below)
        except FileNotFoundError:
            if not left:
                raise  # else a deletion has just taken away a day that was empty
        else:
            return


def _make_missing(path: str, below: str) -> None:
    missing: list[str] = []
    current = path
    while not os.path.isdir(current) and current != below:
        missing.append(current)
        current = os.path.dirname(current)
    made: list[str] = []
    for directory in reversed(missing):
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            continue
        os.chmod(directory, 0o700)
        made.append(directory)
    # once all are made: an empty one may be removed by a deletion at any moment, and a disk takes its time
    for directory in made:
        sync_dir(os.path.dirname(directory))


def sync_dir(path: str) -> None:
    """fsync a directory, so that names made in it survive power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: str, data: bytes, *, durable: bool, is_new: bool = False) -> int:
    """Write `data` to a new inode and move it over `path`; durable: returns its descriptor, else -1.

    `is_new`: nothing may stand at `path` yet.  Raises: OSError; FileExistsError if something does.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
        if is_new:
            _name_new(temporary, path)
        else:
            os.rename(temporary, path)
        if durable:
            sync_dir(os.path.dirname(path))
            return descriptor
    except BaseException:
        os.close(descriptor)
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
    os.close(descriptor)
    return -1


def _name_new(temporary: str, path: str) -> None:
    """Rename, but never over something: of two who do it at once one gets FileExistsError."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: what cannot be one step is at least looked at first.
        if os.path.lexists(path):
            raise FileExistsError(17, "exists", path) from None
        os.rename(temporary, path)
    else:
        os.unlink(temporary)
