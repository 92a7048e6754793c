"""Putting files of a workspace into the state that they had: what `revert` and `reapply` do to the disk.

Invariants: nothing is written outside the workspace, through a link, or below
`.git`; a file is replaced as a whole or not at all; what is not as it is expected
to be is left alone unless the caller forces it, and what nobody has named (other
files in a directory that would have to go) is left alone always.

`check` only looks; `replace` does what can be done and says what could not.
Between the two looks of a replacement a moment passes: who writes into a file in
that very moment may lose it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable

from msgspec import Struct

from mcode_exec.records.change import FileState
from mcode_exec.workspace.beneath import Beneath
from mcode_exec.workspace.contents import digest_of
from mcode_exec.workspace.snapshot import MAX_FILE_BYTES


class Wanted(Struct, frozen=True):
    """One path, as it should stand now and as it is to be; None: no file."""

    path: bytes
    expected: FileState | None
    target: FileState | None


class Conflict(Struct, frozen=True):
    """A path that is not what it should be."""

    path: bytes
    reason: str
    #: whether force helps
    can_force: bool


class Outcome(Struct, frozen=True):
    """What became of each path."""

    #: put into their state, those that already were included
    done: tuple[bytes, ...]
    kept: tuple[Conflict, ...]


#: the content of a digest; None where it is not kept any more
Content = Callable[[bytes], bytes | None]

_NEVER = "nothing is ever written there: it is git's own, or no file of the workspace"
_NOT_KEPT = "what it held is not known"
_CHANGED = "it has changed since"
_LINK = "a symbolic link or a file stands where its directory was"
_OTHERS = "a directory with other files stands there"


def check(
    workspace: str, wanted: Iterable[Wanted], has_content: Callable[[bytes], bool], *, ignores_mode: bool
) -> list[Conflict]:
    """What stands in the way of bringing `wanted` about.  Raises: OSError where there is no workspace."""
    plan = list(wanted)
    with Beneath(os.fsencode(workspace)) as beneath:
        look = _Look(beneath, plan, ignores_mode=ignores_mode)
        return [found for one in plan if (found := look.conflict(one, has_content)) is not None]


def replace(
    workspace: str, wanted: Iterable[Wanted], content: Content, *, ignores_mode: bool, force: bool
) -> Outcome:
    """Bring `wanted` about, file by file: what goes first, what comes after.

    Raises: OSError where there is no workspace.
    """
    plan = sorted(wanted, key=lambda one: (one.target is not None, one.path.count(b"/")))
    going = [one for one in plan if one.target is None]
    coming = [one for one in plan if one.target is not None]
    done: list[bytes] = []
    kept: list[Conflict] = []
    with Beneath(os.fsencode(workspace)) as beneath:
        look = _Look(beneath, plan, ignores_mode=ignores_mode)
        for one in (*going[::-1], *coming):
            conflict = look.conflict(one, lambda _: True)
            if conflict is not None and not (force and conflict.can_force):
                kept.append(conflict)
                continue
            try:
                if not look.is_target(one):
                    _put(beneath, one, content)
                done.append(one.path)
            except _NotKeptError:
                kept.append(Conflict(one.path, _NOT_KEPT, False))
            except OSError as error:
                kept.append(Conflict(one.path, f"it cannot be replaced: {error.strerror or error}", False))
    return Outcome(tuple(done), tuple(kept))


class _NotKeptError(Exception):
    pass


class _Look:
    """Compares what stands in the workspace with a plan."""

    def __init__(self, beneath: Beneath, plan: list[Wanted], *, ignores_mode: bool) -> None:
        self._beneath = beneath
        self._ignores_mode = ignores_mode
        self._going = {one.path for one in plan if one.target is None}

    def conflict(self, one: Wanted, has_content: Callable[[bytes], bool]) -> Conflict | None:
        if not _may_be_touched(one.path):
            return Conflict(one.path, _NEVER, False)
        target = one.target
        if target is not None and target.digest is None:
            return Conflict(one.path, _NOT_KEPT, False)
        self._beneath.forget()
        if self._is_blocked(one):
            return Conflict(one.path, _LINK, False)
        status = self._beneath.status(one.path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            return self._of_directory(one)
        now = self._now(one.path, status)
        if status is not None and now is None:
            return Conflict(one.path, "it is no regular file any more", False)
        if _is_equal(now, target, self._ignores_mode):
            return None
        if target is not None and target.digest is not None and not has_content(target.digest):
            return Conflict(one.path, _NOT_KEPT, False)
        return (
            None if _is_equal(now, one.expected, self._ignores_mode) else Conflict(one.path, _CHANGED, True)
        )

    def is_target(self, one: Wanted) -> bool:
        status = self._beneath.status(one.path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            return one.target is None
        return _is_equal(self._now(one.path, status), one.target, self._ignores_mode)

    def _is_blocked(self, one: Wanted) -> bool:
        """Whether something that is no directory, and does not go, stands on the way."""
        parts = one.path.split(b"/")
        for depth in range(1, len(parts)):
            directory = b"/".join(parts[:depth])
            status = self._beneath.status(directory)
            if status is None:
                return False
            if not stat.S_ISDIR(status.st_mode):
                return one.target is not None and directory not in self._going
        return False

    def _of_directory(self, one: Wanted) -> Conflict | None:
        """A directory where a file stood, or is to stand: it may go if nothing but what goes is in it."""
        if one.target is None:
            return None  # there is no such file, whatever made a directory of it
        return Conflict(one.path, _OTHERS, False) if self._has_others(one.path) else None

    def _has_others(self, directory: bytes) -> bool:
        try:
            parent, name = self._beneath.parent(directory)
            descriptor = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent
            )
        except OSError:
            return True
        try:
            with os.scandir(descriptor) as entries:
                inner = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(descriptor)
        return any(
            self._has_others(path) if is_directory else path not in self._going
            for path, is_directory in (
                (directory + b"/" + name, is_directory) for name, is_directory in inner
            )
        )

    def _now(self, path: bytes, status: os.stat_result | None) -> FileState | None:
        """What stands there; None for nothing, and for what is neither file nor link."""
        if status is None:
            return None
        is_link = stat.S_ISLNK(status.st_mode)
        if not is_link and not stat.S_ISREG(status.st_mode):
            return None
        try:
            data = self._beneath.read(path, MAX_FILE_BYTES)
        except OSError:
            data = None
        return FileState(
            is_link=is_link,
            permissions=0 if is_link else stat.S_IMODE(status.st_mode) & 0o777,
            size_bytes=status.st_size,
            digest=None if data is None else digest_of(data),
        )


def _is_equal(now: FileState | None, other: FileState | None, ignores_mode: bool) -> bool:
    if now is None or other is None:
        return now is other
    return (
        now.is_link == other.is_link
        and now.digest is not None
        and now.digest == other.digest
        and (ignores_mode or now.is_executable == other.is_executable)
    )


def _may_be_touched(path: bytes) -> bool:
    """Whether a path is one of a file beneath the workspace, and not git's own."""
    parts = path.split(b"/")
    is_odd = not path or b"\0" in path or any(part in (b"", b".", b"..") for part in parts)
    return not is_odd and not any(part.lower() == b".git" for part in parts)


def _put(beneath: Beneath, one: Wanted, content: Content) -> None:
    if one.target is None:
        _remove(beneath, one.path)
        return
    assert one.target.digest is not None
    data = content(one.target.digest)
    if data is None:
        raise _NotKeptError
    beneath.forget()
    parent, name = beneath.parent(one.path, make=True)
    _clear_directory(parent, name)
    temporary = f".mcode-{os.urandom(8).hex()}.tmp".encode()
    try:
        if one.target.is_link:
            os.symlink(data, temporary, dir_fd=parent)
        else:
            _fill(parent, temporary, data, one.target, _old_status(parent, name))
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        try:
            os.unlink(temporary, dir_fd=parent)
        except OSError:
            pass
        raise


def _old_status(parent: int, name: bytes) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _fill(parent: int, temporary: bytes, data: bytes, target: FileState, old: os.stat_result | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=parent)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        permissions = target.permissions
        if old is not None:
            # what stands there keeps who may read it; only whether it can be run is of the change
            permissions = stat.S_IMODE(old.st_mode) & 0o777
            runs = (permissions & 0o444) >> 2
            permissions = permissions & ~0o111 | (runs if target.is_executable else 0)
            try:
                os.fchown(descriptor, old.st_uid, old.st_gid)
            except OSError:
                pass  # another user's file: it becomes ours, as every replacement does
        os.fchmod(descriptor, permissions)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _clear_directory(parent: int, name: bytes) -> None:
    """Remove a directory in the place of a file, and empty ones in it; nothing else."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return
    try:
        for inner in os.listdir(descriptor):
            _clear_directory(descriptor, os.fsencode(inner))
    finally:
        os.close(descriptor)
    os.rmdir(name, dir_fd=parent)


def _remove(beneath: Beneath, path: bytes) -> None:
    """Remove a file, and the directories above it that are empty then."""
    beneath.forget()
    try:
        parent, name = beneath.parent(path)
        os.unlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
    directory = path.rpartition(b"/")[0]
    while directory:
        beneath.forget()
        try:
            parent, name = beneath.parent(directory)
            os.rmdir(name, dir_fd=parent)
        except OSError:
            return
        directory = directory.rpartition(b"/")[0]
