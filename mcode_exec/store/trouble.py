"""What a failure of the database means, in a sentence with what to do about it.

SQLite tells a full disk as whatever it was about to do, so the disk itself is asked.
"""

from __future__ import annotations

import os

from mcode_exec.errors import DiskFullError, StoreFailedError

#: SQLite's shared memory alone takes 32 KiB
_NEEDED_BYTES = 64 * 1024


def is_busy(error: Exception) -> bool:
    text = str(error)
    return "is locked" in text or "database is busy" in text


def first_cause(error: Exception) -> Exception:
    """What went wrong first: on a full disk SQLite rolls back itself, and peewee's own rollback then fails."""
    first = error.__context__
    while "no transaction is active" in str(error) and isinstance(first, Exception):
        error, first = first, first.__context__
    return error


def failure_of(error: Exception, path: str) -> StoreFailedError:
    """`error` of the database or of the file at `path`."""
    text = str(error)
    if "not a database" in text or "malformed" in text:
        return StoreFailedError(damaged(path, text))
    if "is full" in text or is_disk_full(os.path.dirname(path)):
        return DiskFullError(
            f"the disk that holds {path} is full; free some space and run the command again (`mcode sessions list` "
            "reads all the same, and `mcode sessions delete ID` has 256 KiB of its own for it)"
        )
    if isinstance(error, OSError):
        return StoreFailedError(f"the store {path} cannot be used: {error.strerror or error}")
    if "readonly" in text or "unable to open" in text:
        return StoreFailedError(f"{path} cannot be written ({text}); check its owner and permissions")
    return StoreFailedError(f"the store {path} failed: {text}")


def damaged(path: str, what: str) -> str:
    """The sentence for a file that is no sound database; `what` may have several lines."""
    told = " ".join(what.replace("*** in database main ***", "").split())
    return (
        f"{path} is not a usable database ({told}); move it away, put a backup in its place, "
        "or name another directory with --data-dir"
    )


def is_disk_full(directory: str, needed_bytes: int = _NEEDED_BYTES) -> bool:
    """Whether the disk of a directory has less room than that."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return False
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail  # what is left over is kept for root
    return free * disk.f_frsize < needed_bytes or (disk.f_files > 0 and disk.f_ffree == 0)
