"""Who we are, and whether somebody else still lives.

Each process holds `run/<owner token>.lock` with flock for as long as it lives:
the kernel lets go of it however the process ends, so a free lock is a dead
owner, across pid reuse, reboots and containers in which everyone is pid 1.
"""

from __future__ import annotations

import fcntl
import os
from typing import Literal

from mcode_exec.errors import StoreFailedError
from mcode_exec.ids import new_owner_token

_MAX_SIGNATURE = 512  # characters
_SWEEP = 32  # files of dead owners looked at per start

#: what a liveness file says: `held` by a living process, `free` or `missing`: its process is gone
Liveness = Literal["held", "free", "missing", "unknown"]


class Owner:
    """This process, holding its liveness lock.  Make it with `Owner.hold`."""

    def __init__(self, run_dir: str, token: str, descriptor: int) -> None:
        self.token = token
        self.pid = os.getpid()
        self.host = os.uname().nodename
        self.boot_id = read_boot_id()
        #: owners that had died without a word, whose files we removed
        self._swept: list[str] = []
        self._run_dir = run_dir
        self._descriptor = descriptor

    @classmethod
    def hold(cls, run_dir: str) -> Owner:
        """Take a new token and hold its lock; clears away locks of the dead."""
        token = new_owner_token()
        path = _lock_path(run_dir, token)
        try:
            descriptor = _hold(path)
        except OSError as error:
            raise StoreFailedError(f"{path} cannot be made: {error.strerror}") from error
        owner = cls(run_dir, token, descriptor)
        _sign(descriptor, owner.pid, owner.host)
        owner.sweep()
        return owner

    def release(self) -> None:
        """Give the lock up; the file goes first, so that nobody finds a free lock of a live name."""
        if self._descriptor >= 0:
            _unlink(_lock_path(self._run_dir, self.token))
            os.close(self._descriptor)
            self._descriptor = -1

    def is_alive(self, token: str) -> bool:
        """Whether the owner that `token` names still lives."""
        return token == self.token or is_alive(self._run_dir, token)

    def sweep(self, most: int | None = _SWEEP) -> None:
        """Clear away locks of the dead, looking at `most` of them, or at all."""
        try:
            names = os.listdir(self._run_dir)
        except OSError:
            return
        for name in names[:most]:
            token = name.removesuffix(".lock")
            is_other = name.endswith(".lock") and token != self.token
            if is_other and _remove_if_free(_lock_path(self._run_dir, token)):
                self._swept.append(token)

    def take_swept(self) -> list[str]:
        """Owners that had died without a word, found by `sweep` since this was last asked."""
        swept, self._swept = self._swept, []
        return swept


def is_alive(run_dir: str, token: str) -> bool:
    """Whether an owner lives, for who need not be one himself."""
    # Cannot tell: believing it alive costs time, the other error costs data.
    return liveness(run_dir, token) in ("held", "unknown")


def liveness(run_dir: str, token: str) -> Liveness:
    """What the liveness file of an owner says."""
    try:
        descriptor = os.open(_lock_path(run_dir, token), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "unknown"
    try:
        # Shared: two processes that ask at once must not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError:
        return "unknown"
    else:
        return "free"
    finally:
        os.close(descriptor)


def _sign(descriptor: int, pid: int, host: str) -> None:
    try:
        os.write(descriptor, f"{pid} {host}".encode("utf-8", "replace"))
    except OSError:
        pass  # for people alone: the lock is held all the same


def signature(run_dir: str, token: str) -> tuple[int, str] | None:
    """Pid and host that an owner wrote into its liveness file; for people, nothing is decided by them."""
    try:
        with open(_lock_path(run_dir, token), encoding="utf-8", errors="replace") as file:
            pid, _, host = file.read(_MAX_SIGNATURE).partition(" ")
    except OSError:
        return None
    return (int(pid), host) if pid.isdecimal() else None


def _lock_path(run_dir: str, token: str) -> str:
    return os.path.join(run_dir, token + ".lock")


def _hold(path: str) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(descriptor, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # A sweeper may have removed the file between open and flock: then this lock names nothing.
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


def _remove_if_free(path: str) -> bool:
    """Remove the file of a dead owner; False if it lives, or another process was quicker."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # Shared, as in is_alive.  A file that has lost its name is not looked up by it again: the name may
        # be a live owner's by now.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not os.fstat(descriptor).st_nlink:
            return False
        _unlink(path)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def read_boot_id() -> str:
    """The kernel's id of this boot; empty where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
