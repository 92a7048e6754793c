"""Replacing a file atomically: a reader or a crash sees the old content or the new, nothing else.

The new content is written beside the target, flushed, given the old file's
owner, mode and extended attributes, and renamed over it.  Symlinks are
followed, so the link stays.  A file with several hard links is replaced too,
and its other names keep the old content: writing in place would keep the links
but could destroy all of them (and would change a package store's copy).
"""

from __future__ import annotations

import os
import stat as stat_module

from mcode_exec.tools.failure import ToolFailure, explain

_ACL = "system.posix_acl_access"
_UNCHANGED = ("st_dev", "st_ino", "st_size", "st_mtime_ns")


def replace_file(path: str, data: bytes, old: os.stat_result | None, shown: str) -> os.stat_result:
    """Make `data` the content of `path` (the real path); `old` is the file's state, None for a new file.

    Raises: ToolFailure; the old content is then untouched.
    """
    directory = os.path.dirname(path)
    temp = os.path.join(directory, f".mcode-{os.urandom(8).hex()}.tmp")
    try:
        if old is not None and not os.access(path, os.W_OK):
            raise ToolFailure(f"{shown} is read-only")
        # a new file gets the caller's umask from the kernel; a replacement starts as narrow as can be
        fd = os.open(
            temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if old is None else 0o600
        )
        try:
            try:
                _write_all(fd, data)
                if old is not None:
                    _take_over(fd, path, old)
                os.fsync(fd)
                written = os.fstat(fd)
            finally:
                os.close(fd)
            _refuse_changed(path, old, shown)
            os.rename(temp, path)
        except BaseException:
            os.unlink(temp)
            raise
        _sync_directory(directory)
    except PermissionError as error:
        raise ToolFailure(f"{shown}: no permission to replace files in its directory") from error
    except OSError as error:
        raise ToolFailure(explain(error, shown)) from error
    return written


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


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


def _refuse_changed(path: str, old: os.stat_result | None, shown: str) -> None:
    """The window between reading and replacing is small, not empty."""
    try:
        now = os.stat(path)
    except FileNotFoundError:
        if old is None:
            return
        raise ToolFailure(f"{shown} was removed while it was being changed") from None
    if old is None:
        raise ToolFailure(f"{shown} was created by someone else in the meantime; read it first")
    if any(getattr(now, name) != getattr(old, name) for name in _UNCHANGED):
        raise ToolFailure(f"{shown} changed while it was being changed; read it again")


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems cannot; the rename itself has happened
    finally:
        os.close(fd)
