"""Whether a directory can hold the store: who owns it, and what file system it is on.

SQLite's WAL needs shared memory between processes and honest locks, which
network and most virtual file systems do not give; there the store is refused
rather than risked.
"""

from __future__ import annotations

import os

from mcode_exec.errors import StoreFailedError

#: file systems on which WAL is unsafe; `fuse` and `fuse.*` likewise
_UNSAFE = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb",
        "smb3",
        "smbfs",
        "ncpfs",
        "9p",
        "virtiofs",
        "vboxsf",
        "prl_fs",
        "vmhgfs",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "gpfs",
        "beegfs",
        "orangefs",
        "ocfs2",
        "gfs2",
        "davfs",
    ]
)


def file_system_of(path: str, mountinfo: str = "/proc/self/mountinfo") -> str | None:
    """The type of the file system that holds `path` (an absolute, resolved path); None if unknown."""
    try:
        with open(mountinfo, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except OSError:
        return None
    best, found = -1, None
    for line in lines:
        fields = line.split()
        try:
            mount_point = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
            fs_type = fields[fields.index("-") + 1]
        except (IndexError, ValueError):
            continue
        inside = mount_point in ("/", path) or path.startswith(mount_point + "/")
        # A later mount over the same point hides the earlier one.
        if inside and len(mount_point) >= best:
            best, found = len(mount_point), fs_type
    return found


def is_wal_safe(fs_type: str | None) -> bool:
    return fs_type is None or not (fs_type in _UNSAFE or fs_type == "fuse" or fs_type.startswith("fuse."))


def check_directory(path: str) -> None:
    """Raise StoreFailedError, naming `path`, unless it can hold the store."""
    if not os.path.isdir(path):
        raise StoreFailedError(f"the data directory {path} is not a directory; name another with --data-dir")
    status = os.stat(path)
    user = os.geteuid()
    if user not in (0, status.st_uid):
        raise StoreFailedError(
            f"the data directory {path} belongs to user {status.st_uid}, not to {user}; "
            "name another with --data-dir or MCODE_HOME"
        )
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise StoreFailedError(f"the data directory {path} is not writable; name another with --data-dir")
    fs_type = file_system_of(os.path.realpath(path))
    if not is_wal_safe(fs_type):
        raise StoreFailedError(
            f"the data directory {path} is on {fs_type}, where SQLite's WAL is unsafe; "
            "name one on a local file system with --data-dir or MCODE_HOME"
        )
