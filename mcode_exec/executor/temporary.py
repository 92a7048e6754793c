"""Private directories below the temporary directory: made, held, removed, and what dead runs left of them.

Invariant: its maker holds a flock on each directory for as long as it lives, and
the kernel lets go of it however the process ends; so a free lock is a dead
owner, whatever became of its pid.  Only what is ours is ever removed: a real
directory of this user, 0700, under a name of ours, whose lock we hold ourselves
and which no living process was given as its TMPDIR.  Removing never fails a run.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from itertools import islice

from mcode_exec import paths

_PREFIX = "mcode-run-"
_HEX_DIGITS = 16
#: what one run looks at in the temporary directory, and what it removes
_SEEN_NAMES = 20_000
_SEEN_LEFT = 256
_REMOVED = 16
_ATTEMPTS = 5
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class HeldDirectory:
    """One directory of this run; nothing exists before `make`."""

    def __init__(self, base: str) -> None:
        self.path = os.path.join(base, _PREFIX + os.urandom(_HEX_DIGITS // 2).hex())
        self._fd: int | None = None

    @property
    def is_made(self) -> bool:
        return self._fd is not None

    def make(self) -> None:
        """Make and hold it.  Raises: OSError.

        Another run may find it in the instant before it is locked and take it for one of the dead: then
        it is made again.
        """
        error = OSError(errno.EEXIST, "other runs take it away", self.path)
        for _ in range(_ATTEMPTS):
            try:
                paths.make_private_dir(self.path)
                fd = _hold(self.path)
            except FileNotFoundError as raised:
                error = raised
                continue
            if fd is not None:
                self._fd = fd
                return
        raise error

    def remove(self) -> None:
        """Remove it with all that is in it; safe to call twice."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            _remove(self.path, fd)


def _hold(path: str) -> int | None:
    """A descriptor that holds the directory, or None where it has been removed in the meantime."""
    try:
        fd = os.open(path, _OPEN)
    except FileNotFoundError:
        return None
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise FileExistsError(errno.EEXIST, "it is another user's", path)
        _lock(fd, fcntl.LOCK_EX)
        if os.path.samestat(os.fstat(fd), os.lstat(path)):
            return fd
    except FileNotFoundError:
        pass
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _lock(fd: int, how: int) -> None:
    """Where a file system has no such locks nobody gets one, so nobody takes a directory for a dead one's."""
    try:
        fcntl.flock(fd, how)
    except BlockingIOError:
        raise
    except OSError:
        if how & fcntl.LOCK_NB:
            raise


def find_left(base: str) -> list[str]:
    """Directories below `base` that runs made, the living ones' included; one look at the names."""
    try:
        with os.scandir(base) as entries:
            ours = (entry.name for entry in islice(entries, _SEEN_NAMES) if _is_ours(entry.name))
            return list(islice(ours, _SEEN_LEFT))
    except OSError:
        return []


def _is_ours(name: str) -> bool:
    digits = name.removeprefix(_PREFIX)
    return digits != name and len(digits) == _HEX_DIGITS and not digits.strip("0123456789abcdef")


async def remove_dead(base: str, names: list[str]) -> None:
    """Remove those of `names` whose owners are dead, and end what their commands left running."""
    taken: dict[str, int] = {}
    for name in names:
        path = os.path.join(base, name)
        fd = _take(path)
        if fd is not None:
            taken[path] = fd
        if len(taken) == _REMOVED:
            break
    try:
        tokens = [token for path in taken for token in _owners_in(path)]
        if tokens:
            from mcode_exec.sandbox.strays import end_strays

            await end_strays(tokens)
    finally:
        if taken:
            await asyncio.to_thread(_remove_unused, taken)


def _take(path: str) -> int | None:
    """A descriptor that holds a directory of ours whose owner is dead."""
    try:
        fd = os.open(path, _OPEN)
    except OSError:
        return None
    try:
        info = os.fstat(fd)
        if info.st_uid == os.geteuid() and stat.S_IMODE(info.st_mode) & 0o777 == paths.DIR_MODE:
            _lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _owners_in(path: str) -> list[str]:
    """The owners of a private store, which no later run on that store can find dead."""
    try:
        names = os.listdir(paths.run_dir(path))
    except OSError:
        return []
    return [name.removesuffix(".lock") for name in names if name.endswith(".lock")]


def _remove_unused(taken: dict[str, int]) -> None:
    in_use = _temporary_directories_in_use()
    for path, fd in taken.items():
        if path in in_use or _has_held(path):
            os.close(fd)
        else:
            _remove(path, fd)


def _temporary_directories_in_use() -> set[str]:
    """What living processes, as far as they can be seen, were given as TMPDIR."""
    from mcode_exec.sandbox import procfs

    values = (procfs.find_variable(pid, b"TMPDIR") for pid in procfs.every_pid())
    return {os.fsdecode(value) for value in values if value}


def _has_held(path: str) -> bool:
    """Whether a run that was itself started by a command keeps something below `path`."""
    for name in find_left(path):
        fd = _take(os.path.join(path, name))
        if fd is None:
            return True
        os.close(fd)
    return False


def _remove(path: str, fd: int) -> None:
    """Remove exactly the directory that `fd` holds, symbolic links not followed; what cannot go stays."""
    import shutil

    try:
        with os.scandir(fd) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_directory in found:
            if is_directory:
                shutil.rmtree(name, ignore_errors=True, dir_fd=fd)
            else:
                os.unlink(name, dir_fd=fd)
        os.rmdir(path)
    except OSError:
        pass
    finally:
        os.close(fd)
