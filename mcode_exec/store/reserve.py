"""Space that is kept for a full disk: deleting frees some, and needs a little before it can.

The file that migrations lock holds blocks which nobody uses.  Who deletes lets
them go where the disk has no room for a transaction; whoever closes the store
takes them anew.  Without them nothing is worse than a full disk is anyway.
"""

from __future__ import annotations

import os

from mcode_exec.store.trouble import is_disk_full

#: SQLite's shared memory and the pages of some small transactions
RESERVE_BYTES = 256 * 1024


def lock_file(database_file: str) -> str:
    """What is locked while the database at `database_file` is migrated."""
    return database_file + ".lock"


def keep(database_file: str) -> None:
    """Take the reserve, unless it is there; a disk that has no room for it goes without."""
    path = lock_file(database_file)
    try:
        if os.stat(path).st_size >= RESERVE_BYTES:
            return
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
    except OSError:
        _give_back(path)
    finally:
        os.close(descriptor)


def release(database_file: str) -> None:
    """Let the reserve go, if the disk is full."""
    if is_disk_full(os.path.dirname(database_file), RESERVE_BYTES):
        _give_back(lock_file(database_file))


def _give_back(path: str) -> None:
    try:
        os.truncate(path, 0)
    except OSError:
        pass
