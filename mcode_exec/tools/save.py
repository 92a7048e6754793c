"""Replacing a file atomically: a reader or a crash sees the old content or the new, nothing else.

The new content is written to a file without a name, where the file system has
such, so that a killed process leaves nothing behind; else beside the target.
It is flushed, given the old file's owner, mode and extended attributes, and
renamed over it.  Symlinks are followed, so the link stays.  A file with several
hard links is replaced too, and its other names keep the old content: writing in
place would keep the links but could destroy all of them (and would change a
package store's copy).

Of two processes that change the same state of a file at once, one is refused.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat as stat_module
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mcode_exec.tools.failure import ToolFailure, explain

_ACL = "system.posix_acl_access"
#: the change time tells what a restored modification time hides, and a new mode or owner
_UNCHANGED = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
#: a lock is held for one rename; who holds it longer is stopped, or locks for reasons of his own
_LOCK_S = 2.0


def replace_file(path: str, data: bytes, old: os.stat_result | None, shown: str) -> os.stat_result:
    """Make `data` the content of `path` (the real path); `old` is the file's state, None for a new file.

    Raises: ToolFailure; the old content is then untouched.
    """
    directory = os.path.dirname(path)
    try:
        if old is not None and not os.access(path, os.W_OK):
            raise ToolFailure(f"{shown} is read-only")
        written = _put_unnamed(directory, path, data, old, shown) or _put(directory, path, data, old, shown)
    except PermissionError as error:
        raise ToolFailure(f"{shown}: no permission to replace files in its directory") from error
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise ToolFailure(
                f"{shown} is mounted on its own and cannot be replaced; use a command"
            ) from error
        raise ToolFailure(explain(error, shown)) from error
    _sync_directory(directory)
    return written


def _put_unnamed(
    directory: str, path: str, data: bytes, old: os.stat_result | None, shown: str
) -> os.stat_result | None:
    """By way of a file that has no name until it is whole; None where that cannot be done."""
    try:
        fd = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, _first_mode(old))
    except OSError:
        return None
    temp = _temp_name(directory)
    try:
        written = _fill(fd, data, path, old)
        try:
            # src_dir_fd makes this linkat, which alone can follow the link in /proc
            os.link(f"/proc/self/fd/{fd}", path if old is None else temp, src_dir_fd=fd, follow_symlinks=True)
        except FileExistsError:
            raise _created_meanwhile(shown) from None
        except OSError:
            return None
    finally:
        os.close(fd)
    if old is not None:
        _rename(temp, path, old, shown)
    return written


def _put(directory: str, path: str, data: bytes, old: os.stat_result | None, shown: str) -> os.stat_result:
    temp = _temp_name(directory)
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _first_mode(old))
    try:
        try:
            written = _fill(fd, data, path, old)
        finally:
            os.close(fd)
    except BaseException:
        os.unlink(temp)
        raise
    _rename(temp, path, old, shown)
    return written


def _first_mode(old: os.stat_result | None) -> int:
    """A new file gets the caller's umask from the kernel; a replacement starts as narrow as can be."""
    return 0o666 if old is None else 0o600


def _temp_name(directory: str) -> str:
    return os.path.join(directory, f".mcode-{os.urandom(8).hex()}.tmp")


def _fill(fd: int, data: bytes, path: str, old: os.stat_result | None) -> os.stat_result:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    if old is not None:
        _take_over(fd, path, old)
    os.fsync(fd)
    return os.fstat(fd)


def _take_over(fd: int, path: str, old: os.stat_result) -> None:
    """Owner, mode and extended attributes (ACLs among them) of the old file, as far as we may."""
    mode = stat_module.S_IMODE(old.st_mode)
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        for uid in (old.st_uid, -1):
            try:
                os.fchown(fd, uid, old.st_gid)
                break
            except OSError:
                continue
        new = os.fstat(fd)
        if new.st_uid != old.st_uid:
            mode &= ~stat_module.S_ISUID
        if new.st_gid != old.st_gid:
            # the bits were meant for another group
            mode &= ~(stat_module.S_ISGID | stat_module.S_IRWXG)
    try:
        names = os.listxattr(path)
    except OSError:
        names = []
    if _ACL not in names:
        try:
            # inherited from the directory: the mode's group bits would become its mask
            os.removexattr(fd, _ACL)
        except OSError:
            pass
    os.fchmod(fd, mode)
    for name in names:
        try:
            os.setxattr(fd, name, os.getxattr(path, name))
        except OSError:
            continue  # trusted and security attributes need rights that we may lack


def _rename(temp: str, path: str, old: os.stat_result | None, shown: str) -> None:
    """`temp` becomes `path`, if that is still what it was; else it goes."""
    try:
        with _locked(path, old):
            _refuse_changed(path, old, shown)
            os.rename(temp, path)
    except BaseException:
        os.unlink(temp)
        raise


@contextmanager
def _locked(path: str, old: os.stat_result | None) -> Iterator[None]:
    """Keeps other mcodes from replacing this file between our last look at it and the rename.

    The lock is on the old file itself: whoever waited for it finds another file
    under the name.  As good as it gets: not every file system has such locks.
    """
    fd = None
    try:
        if old is not None:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            deadline_s = time.monotonic() + _LOCK_S
            while not _try_lock(fd) and time.monotonic() < deadline_s:
                time.sleep(0.005)
    except OSError:
        pass
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _refuse_changed(path: str, old: os.stat_result | None, shown: str) -> None:
    """The window between reading and replacing is small, not empty."""
    try:
        now = os.stat(path)
    except FileNotFoundError:
        if old is None:
            return
        raise ToolFailure(f"{shown} was removed while it was being changed") from None
    if old is None:
        raise _created_meanwhile(shown)
    if any(getattr(now, name) != getattr(old, name) for name in _UNCHANGED):
        raise ToolFailure(f"{shown} changed while it was being changed; read it again")


def _created_meanwhile(shown: str) -> ToolFailure:
    return ToolFailure(f"{shown} was created by someone else in the meantime; read it first")


def _sync_directory(directory: str) -> None:
    """What was renamed is there for every reader; this is for a loss of power, and may be refused."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)
