"""The snapshots on disk: the latest of each workspace, and what a running turn began with.

    <changes>/workspaces/<key>/latest          the newest snapshot: what the next one need not read again
    <changes>/workspaces/<key>/contents/       contents that the snapshots name
    <changes>/open/<session>.<turn>/before     what the workspace held before the turn's first tool
    <changes>/open/<session>.<turn>/turn.jsonl its header, then what it has done; held (flock) while its process lives

A held header is a living turn, a free one a turn that died before its changes
were written down.  Snapshots are never written in place, so a link to one keeps
it.  Nothing is fsynced: what a power loss tears reads as not there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct, structs

from mcode_exec.paths import make_private_dir, private_open
from mcode_exec.workspace import snapshot
from mcode_exec.workspace.contents import Contents
from mcode_exec.workspace.snapshot import Snapshot

_HEADER = "turn.jsonl"
_BEFORE = "before"
_LATEST = "latest"
_NEW = ".new-"
_MAX_SNAPSHOT_BYTES = 1 << 30


class Header(Struct, frozen=True, kw_only=True):
    """The turn that an open snapshot belongs to."""

    session_id: str
    turn_id: str
    #: canonical path
    workspace: str
    begun_ms: int
    #: when its snapshot was taken
    taken_ns: int


class Mark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that the turn has done."""

    #: its write or edit named this file, relative to the workspace
    touched: bytes | None = None
    #: True: its changes stand in the store; False: it goes on and may make more
    is_told: bool | None = None


class Peek(Struct, frozen=True):
    """What another turn's files say of it."""

    header: Header
    touched: frozenset[bytes]
    is_told: bool


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
    temporary = _temporary(directory)
    try:
        _write(temporary, snapshot.encode(taken))
        os.rename(temporary, os.path.join(directory, _LATEST))
    except OSError:
        _unlink(temporary)
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


class OpenTurn:
    """A turn whose changes are not written down yet; held until it is closed."""

    def __init__(self, directory: str, descriptor: int, header: Header) -> None:
        self.header = header
        self._directory = directory
        self._descriptor = descriptor

    @classmethod
    def begin(
        cls, changes_dir: str, header: Header, before: Snapshot, *, latest: Snapshot | None
    ) -> OpenTurn:
        """Keep what a turn begins with; `latest`: the workspace's newest snapshot, as it was read.

        Raises: OSError.
        """
        base = os.path.join(changes_dir, "open")
        make_private_dir(base)
        building = _temporary(base)
        os.mkdir(building, 0o700)
        try:
            _keep_before(changes_dir, header.workspace, before, latest, os.path.join(building, _BEFORE))
            path = os.path.join(building, _HEADER)
            descriptor = private_open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.write(descriptor, msgspec.json.encode(header) + b"\n")
                directory = os.path.join(base, _name(header.session_id, header.turn_id))
                os.rename(building, directory)
            except OSError:
                os.close(descriptor)
                raise
        except OSError:
            shutil.rmtree(building, ignore_errors=True)
            raise
        return cls(directory, descriptor, header)

    def mark(self, mark: Mark) -> None:
        """Note what the turn has done.  Raises: OSError."""
        os.write(self._descriptor, msgspec.json.encode(mark) + b"\n")

    def peek(self) -> Peek | None:
        return _peek(self._directory)

    def before(self) -> Snapshot | None:
        """What the workspace held; None where that cannot be read."""
        found = _load(os.path.join(self._directory, _BEFORE))
        return None if found is None else structs.replace(found, taken_ns=self.header.taken_ns)

    def close(self, *, remove: bool) -> None:
        """Let go; without `remove` it is left to who finds it.  Safe to call twice."""
        if self._descriptor >= 0:
            if remove:
                shutil.rmtree(self._directory, ignore_errors=True)
            os.close(self._descriptor)
            self._descriptor = -1


def _keep_before(
    changes_dir: str, workspace: str, before: Snapshot, latest: Snapshot | None, path: str
) -> None:
    kept = os.path.join(workspace_dir(changes_dir, workspace), _LATEST)
    if latest is None or not is_unchanged(latest, before):
        save_latest(changes_dir, workspace, before)
    try:
        os.link(kept, path)
    except OSError:
        _write(path, snapshot.encode(before))


def is_unchanged(earlier: Snapshot, taken: Snapshot) -> bool:
    """Whether a snapshot that was taken from an earlier one found nothing new."""
    if len(earlier.files) != len(taken.files) or earlier.repositories != taken.repositories:
        return False
    known = {id(seen) for seen in earlier.files}
    return earlier.ignores_mode == taken.ignores_mode and all(id(seen) in known for seen in taken.files)


def open_names(changes_dir: str) -> list[tuple[str, str]]:
    """(session id, turn id) of the turns whose changes are not written down, the living ones' included."""
    try:
        names = os.listdir(os.path.join(changes_dir, "open"))
    except OSError:
        return []
    pairs = (name.partition(".") for name in names if not name.startswith(_NEW))
    return sorted((session_id, turn_id) for session_id, _, turn_id in pairs if turn_id)


def take_dead(changes_dir: str, session_id: str, turn_id: str) -> OpenTurn | None:
    """The open snapshot of a turn whose process is gone, held by us now; None where it lives, or there is none."""
    directory = os.path.join(changes_dir, "open", _name(session_id, turn_id))
    path = os.path.join(directory, _HEADER)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = _peek(directory)
        if found is not None and os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            return OpenTurn(directory, descriptor, found.header)
        if found is None:
            shutil.rmtree(directory, ignore_errors=True)  # torn: nothing can be made of it
    except OSError:
        pass
    os.close(descriptor)
    return None


def others_at_work(changes_dir: str, header: Header) -> Iterator[Peek]:
    """The turns of living processes that work in the same workspace, in one around it or in it."""
    for session_id, turn_id in open_names(changes_dir):
        if turn_id == header.turn_id:
            continue
        directory = os.path.join(changes_dir, "open", _name(session_id, turn_id))
        found = _peek(directory)
        if found is not None and shares(found.header.workspace, header.workspace) and _is_held(directory):
            yield found


def shares(one: str, other: str) -> bool:
    """Whether two workspaces have files in common."""
    return one == other or f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _is_held(directory: str) -> bool:
    try:
        descriptor = os.open(os.path.join(directory, _HEADER), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _peek(directory: str) -> Peek | None:
    try:
        with open(os.path.join(directory, _HEADER), "rb") as file:
            first, *rest = file.read().split(b"\n")
        header = msgspec.json.decode(first, type=Header)
    except (OSError, msgspec.MsgspecError):
        return None
    marks = []
    for line in rest:
        with suppress(msgspec.MsgspecError):  # a last line that was cut off
            marks.append(msgspec.json.decode(line, type=Mark))
    told = [mark.is_told for mark in marks if mark.is_told is not None]
    touched = frozenset(mark.touched for mark in marks if mark.touched is not None)
    return Peek(header, touched, bool(told and told[-1]))


def remove_session(changes_dir: str, session_id: str) -> None:
    """Remove what the turns of a session began with."""
    for one, turn_id in open_names(changes_dir):
        if one == session_id:
            shutil.rmtree(os.path.join(changes_dir, "open", _name(one, turn_id)), ignore_errors=True)


def remove_workspace(changes_dir: str, workspace: str) -> None:
    """Remove what is kept of a workspace."""
    shutil.rmtree(workspace_dir(changes_dir, workspace), ignore_errors=True)


def clean(changes_dir: str, *, unused_s: float, most: int) -> int:
    """Remove what is kept of workspaces that no turn has used for so long, and contents that nothing names.

    `most`: workspaces that are looked at, those that were not looked at for longest first.  Returns how many
    workspaces went.
    """
    base = os.path.join(changes_dir, "workspaces")
    removed = 0
    for directory in _by_age(base)[:most]:
        used_s = _age_s(os.path.join(directory, _LATEST))
        if used_s is None or used_s > unused_s:
            shutil.rmtree(directory, ignore_errors=True)
            removed += 1
            continue
        named = _named(changes_dir, directory)
        if named is not None:
            Contents(os.path.join(directory, "contents")).sweep(named)
        with suppress(OSError):
            os.utime(directory)
    _remove_unfinished(os.path.join(changes_dir, "open"))
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


def _named(changes_dir: str, directory: str) -> set[bytes] | None:
    """Digests that the newest snapshot of a workspace, or one of a turn in it, names; None: cannot be told."""
    snapshots = [_load(os.path.join(directory, _LATEST))]
    for session_id, turn_id in open_names(changes_dir):
        at = os.path.join(changes_dir, "open", _name(session_id, turn_id))
        found = _peek(at)
        if found is None or workspace_dir(changes_dir, found.header.workspace) == directory:
            snapshots.append(_load(os.path.join(at, _BEFORE)))
    if any(one is None for one in snapshots):
        return None
    return {seen.digest for one in snapshots if one is not None for seen in one.files}


def _remove_unfinished(base: str) -> None:
    """What a process that died while it was making it has left."""
    try:
        names = [name for name in os.listdir(base) if name.startswith(_NEW)]
    except OSError:
        return
    for name in names:
        age_s = _age_s(os.path.join(base, name))
        if age_s is not None and age_s > 3600:
            shutil.rmtree(os.path.join(base, name), ignore_errors=True)


def _name(session_id: str, turn_id: str) -> str:
    return f"{session_id}.{turn_id}"


def _temporary(directory: str) -> str:
    return os.path.join(directory, f"{_NEW}{os.getpid()}-{os.urandom(4).hex()}")


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
