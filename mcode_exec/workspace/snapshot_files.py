"""What is kept of each workspace from snapshot to snapshot, so that the next one need not read what has not changed.

    <changes>/workspaces/<key>/latest      the newest snapshot
    <changes>/workspaces/<key>/contents/   contents that snapshots of it name

Only a saving: without it a snapshot reads more.  Nothing is fsynced, snapshots
are never written in place, and what a power loss tears reads as not there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Collection
from contextlib import suppress

from mcode_exec.paths import make_private_dir, private_open
from mcode_exec.workspace import snapshot
from mcode_exec.workspace.contents import Contents
from mcode_exec.workspace.snapshot import Snapshot

_LATEST = "latest"
_NEW = ".new-"
_MAX_SNAPSHOT_BYTES = 1 << 30


def workspace_dir(changes_dir: str, workspace: str) -> str:
    key = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:32]
    return os.path.join(changes_dir, "workspaces", key)


def contents_of(changes_dir: str, workspace: str) -> Contents:
    return Contents(os.path.join(workspace_dir(changes_dir, workspace), "contents"))


def load_latest(changes_dir: str, workspace: str) -> Snapshot | None:
    return _load(os.path.join(workspace_dir(changes_dir, workspace), _LATEST))


def save_latest(changes_dir: str, workspace: str, taken: Snapshot) -> None:
    """Keep a snapshot as the newest of its workspace.  Raises: OSError."""
    directory = workspace_dir(changes_dir, workspace)
    make_private_dir(directory)
    temporary = os.path.join(directory, f"{_NEW}{os.getpid()}-{os.urandom(4).hex()}")
    try:
        _write(temporary, snapshot.encode(taken))
        os.rename(temporary, os.path.join(directory, _LATEST))
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _load(path: str) -> Snapshot | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return snapshot.decode(file.read(_MAX_SNAPSHOT_BYTES))
    except OSError:
        return None


def _write(path: str, data: bytes) -> None:
    descriptor = private_open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def is_unchanged(earlier: Snapshot, taken: Snapshot) -> bool:
    """Whether a snapshot that was taken from an earlier one found nothing new."""
    if len(earlier.files) != len(taken.files) or earlier.repositories != taken.repositories:
        return False
    known = {id(seen) for seen in earlier.files}
    return earlier.ignores_mode == taken.ignores_mode and all(id(seen) in known for seen in taken.files)


def clean(changes_dir: str, *, unused_s: float, most: int, busy: Collection[str]) -> int:
    """Remove what is kept of workspaces that no turn has used for so long, and contents that nothing names.

    `most`: workspaces that are looked at, those that were not looked at for longest first.  `busy`: workspaces in
    which a turn runs, left alone.  Returns how many workspaces went.
    """
    spared = {workspace_dir(changes_dir, workspace) for workspace in busy}
    removed = 0
    for directory in _by_age(os.path.join(changes_dir, "workspaces"))[:most]:
        if directory in spared:
            continue
        age_s = _age_s(os.path.join(directory, _LATEST))
        if age_s is None:
            age_s = _age_s(directory) or 0.0  # one that is just being made has none yet
        if age_s > unused_s:
            shutil.rmtree(directory, ignore_errors=True)
            removed += 1
            continue
        latest = _load(os.path.join(directory, _LATEST))
        if latest is not None:
            Contents(os.path.join(directory, "contents")).sweep({seen.digest for seen in latest.files})
        _remove_unfinished(directory)
        with suppress(OSError):
            os.utime(directory)
    return removed


def _by_age(base: str) -> list[str]:
    try:
        found = [(entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in os.scandir(base)]
    except OSError:
        return []
    return [path for _, path in sorted(found)]


def _age_s(path: str) -> float | None:
    try:
        return time.time() - os.lstat(path).st_mtime
    except OSError:
        return None


def _remove_unfinished(directory: str) -> None:
    """What a process that died while it was writing has left."""
    try:
        names = [name for name in os.listdir(directory) if name.startswith(_NEW)]
    except OSError:
        return
    for name in names:
        age_s = _age_s(os.path.join(directory, name))
        if age_s is not None and age_s > 3600:
            with suppress(OSError):
                os.unlink(os.path.join(directory, name))
