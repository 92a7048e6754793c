"""A tree snapshot: every followed file of a workspace at one moment, and the content of each by digest.

Taken by looking at each file's status and reading only what is not as the last
snapshot knew it: git's index works so, and so an unchanged workspace costs one
listing.  What git keeps already is named by its blob and not read at all; every
other content is read and kept, within bounds, and where they end a file is known
by its status alone: that it changes is seen then, and what it held is not known.
Contents are the bytes on disk: nothing is converted.

Blocking; run on a thread.  Writes nothing in the workspace or its repository.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
from msgspec import Struct, structs

from mcode_exec.records.change import FileState
from mcode_exec.workspace.beneath import Beneath
from mcode_exec.workspace.contents import Contents, digest_of
from mcode_exec.workspace.followed import Ancestors, is_followed, list_followed
from mcode_exec.workspace.git_contents import blob_id, unchanged_blobs
from mcode_exec.workspace.programs import Stop

#: of a larger file the content is not kept, only that it changed
MAX_FILE_BYTES = 8 * 1024 * 1024
#: what one snapshot reads and keeps; the next one goes on
MAX_READ_BYTES = 256 * 1024 * 1024
MAX_READ_S = 3.0
#: so few files are read at once; of more git is asked first what it has
_FEW_FILES = 32
#: a file that is this young may change again under the same times: clocks of file systems tick
TICK_NS = 50_000_000
COARSE_TICK_NS = 2_000_000_000
_SECOND_NS = 1_000_000_000
VERSION = 1


class Seen(Struct, frozen=True, array_like=True, gc=False):
    """One file as it was seen."""

    path: bytes
    #: st_mode
    mode: int
    size: int
    mtime_ns: int
    #: 0: too young to be known again by its times
    ctime_ns: int
    inode: int
    #: SHA-256; empty: not read
    digest: bytes = b""
    #: id of the blob in the repository around it; empty: not known to be one
    blob: bytes = b""

    @property
    def is_known(self) -> bool:
        return bool(self.digest or self.blob)

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.mode)


class Snapshot(Struct, frozen=True, array_like=True):
    """What was seen of a workspace."""

    version: int
    taken_ns: int
    files: list[Seen]
    #: what the paths of each repository in it begin with
    repositories: tuple[bytes, ...]
    ignores_mode: bool


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)


def encode(snapshot: Snapshot) -> bytes:
    return _encoder.encode(snapshot)


def decode(data: bytes) -> Snapshot | None:
    """None for what no snapshot of this kind can be read from."""
    try:
        snapshot = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError):
        return None
    return snapshot if snapshot.version == VERSION else None


def is_as_seen(seen: Seen, status: os.stat_result) -> bool:
    """Whether a file is, by its status, the one that was seen."""
    return (
        seen.ctime_ns == status.st_ctime_ns
        and seen.mtime_ns == status.st_mtime_ns
        and seen.size == status.st_size
        and seen.inode == status.st_ino
        and seen.mode == status.st_mode
    )


def state_of(seen: Seen) -> FileState:
    """What is kept of a file that changed."""
    is_link = stat.S_ISLNK(seen.mode)
    return FileState(
        is_link=is_link,
        permissions=0 if is_link else stat.S_IMODE(seen.mode) & 0o777,
        size_bytes=seen.size,
        digest=seen.digest or None,
    )


def take(
    workspace: str,
    contents: Contents,
    *,
    earlier: Snapshot | None,
    excluded: Iterable[str],
    limit_s: float,
    stop: Stop,
    all_of_earlier: bool = False,
    also: Iterable[bytes] = (),
) -> Snapshot:
    """Look at the workspace (canonical) now.

    `excluded`: absolute paths that are mcode's own.  `all_of_earlier`: look at the files of the earlier snapshot
    too, though they would not be listed any more: what has just been ignored is not gone.  `also`: further paths
    to look at, listed or not.
    Units: `limit_s` seconds.
    Raises: NotFollowedError; TimeoutError; OSError.
    """
    deadline_s = time.monotonic() + limit_s
    taken_ns = time.time_ns()
    listing = list_followed(workspace, deadline_s=deadline_s, stop=stop)
    root = os.fsencode(workspace)
    known = {} if earlier is None else {seen.path: seen for seen in earlier.files}
    found = dict(listing.files)
    _look_at(root, (*known, *also) if all_of_earlier else tuple(also), found)
    is_excluded = _excluder(root, excluded)
    files: list[Seen] = []
    cold: dict[bytes, os.stat_result] = {}
    for path, status in found.items():
        if is_excluded is not None and is_excluded(path):
            continue
        seen = known.get(path)
        if seen is not None and is_as_seen(seen, status) and seen.is_known:
            files.append(seen)
        else:
            cold[path] = status
    if cold:
        reader = _Reader(root, contents, known, taken_ns, deadline_s, stop)
        files += reader.read(cold, listing.repositories)
    return Snapshot(VERSION, taken_ns, files, listing.repositories, listing.ignores_mode)


def see(workspace: str, paths: Iterable[bytes], contents: Contents, *, stop: Stop) -> list[Seen]:
    """Those of the paths that are files or links now, and what they hold.  Raises: OSError, TimeoutError."""
    root = os.fsencode(workspace)
    found: dict[bytes, os.stat_result] = {}
    _look_at(root, tuple(paths), found)
    reader = _Reader(root, contents, {}, time.time_ns(), time.monotonic() + MAX_READ_S, stop)
    return reader.read(found, ())


def _look_at(root: bytes, paths: Iterable[bytes], found: dict[bytes, os.stat_result]) -> None:
    ancestors = Ancestors(root)
    for path in paths:
        if path in found or not ancestors.are_real(path):
            continue
        try:
            status = os.lstat(root + b"/" + path)
        except OSError:
            continue
        if is_followed(status):
            found[path] = status


def _excluder(root: bytes, excluded: Iterable[str]) -> Callable[[bytes], bool] | None:
    """Tells what lies at or below one of the paths; None where none is in the workspace."""
    inside = root.rstrip(b"/") + b"/"
    names = [os.fsencode(os.path.realpath(path)) for path in excluded]
    relative = tuple(name[len(inside) :] for name in names if name.startswith(inside))
    if not relative:
        return None
    below = tuple(name + b"/" for name in relative)
    return lambda path: path in relative or path.startswith(below)


class _Reader:
    """Finds out what files hold that are not as they were seen before."""

    def __init__(
        self,
        root: bytes,
        contents: Contents,
        known: dict[bytes, Seen],
        taken_ns: int,
        deadline_s: float,
        stop: Stop,
    ) -> None:
        self._root = root
        self._contents = contents
        self._known = known
        self._taken_ns = taken_ns
        self._deadline_s = deadline_s
        self._stop = stop
        self._left_bytes = MAX_READ_BYTES

    def read(self, cold: dict[bytes, os.stat_result], repositories: tuple[bytes, ...]) -> list[Seen]:
        blobs = self._blobs(cold, repositories) if len(cold) > _FEW_FILES else {}
        until_s = min(self._deadline_s, time.monotonic() + MAX_READ_S)
        files: list[Seen] = []
        with Beneath(self._root) as beneath:
            for path, status in cold.items():
                if self._stop.is_set:
                    raise TimeoutError
                seen = _seen(path, status)
                if path in blobs:
                    seen = structs.replace(seen, blob=blobs[path])
                elif status.st_size <= self._left_bytes and time.monotonic() < until_s:
                    seen = self._with_content(seen, beneath)
                files.append(self._marked_young(seen))
        with suppress(OSError):  # a full disk: what they held is not known
            self._contents.flush()
        return files

    def _blobs(
        self, cold: dict[bytes, os.stat_result], repositories: tuple[bytes, ...]
    ) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for prefix, paths in by_repository(cold, repositories).items():
            inner = {path[len(prefix) :]: cold[path] for path in paths}
            directory = os.fsdecode(os.path.join(self._root, prefix)).rstrip("/")
            blobs = unchanged_blobs(directory, inner, deadline_s=self._deadline_s, stop=self._stop)
            found.update((prefix + path, blob) for path, blob in blobs.items())
        return found

    def _with_content(self, seen: Seen, beneath: Beneath) -> Seen:
        """The file with its digest, its content kept; as it is where that cannot be."""
        try:
            data = beneath.read(seen.path, MAX_FILE_BYTES)
        except OSError:
            return seen  # unreadable, or just gone
        if data is None:
            return seen
        self._left_bytes -= len(data)
        digest = digest_of(data)
        before = self._known.get(seen.path)
        is_same = before is not None and before.kind == seen.kind
        if before is not None and is_same and before.blob and blob_id(data) == before.blob:
            return structs.replace(seen, digest=digest, blob=before.blob)
        try:
            is_kept = self._contents.put(data, digest)
        except OSError:
            is_kept = False
        if not is_kept:
            self._left_bytes = -1  # a full disk is asked once
        return structs.replace(seen, digest=digest)

    def _marked_young(self, seen: Seen) -> Seen:
        if not seen.is_known:
            return seen
        tick_ns = TICK_NS if seen.mtime_ns % _SECOND_NS else COARSE_TICK_NS
        is_young = max(seen.ctime_ns, seen.mtime_ns) > self._taken_ns - tick_ns
        return structs.replace(seen, ctime_ns=0) if is_young else seen


def by_repository(paths: Iterable[bytes], repositories: tuple[bytes, ...]) -> dict[bytes, list[bytes]]:
    """Paths by the prefix of the innermost repository that they are in; those in none are missing."""
    innermost = sorted(repositories, key=len, reverse=True)
    found: dict[bytes, list[bytes]] = {}
    for path in paths:
        prefix = next((one for one in innermost if path.startswith(one)), None)
        if prefix is not None:
            found.setdefault(prefix, []).append(path)
    return found


def _seen(path: bytes, status: os.stat_result) -> Seen:
    return Seen(path, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
