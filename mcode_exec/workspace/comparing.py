"""What became of a workspace between two tree snapshots: the paths that differ, and what they held before and after.

A file whose content one of the snapshots does not know is changed when its
status is; a new file that is older than the first snapshot was only not
followed then (ignored, hidden by a mistake that was mended), and is none.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Set

from msgspec import Struct

from mcode_exec.workspace.contents import Contents, digest_of
from mcode_exec.workspace.git_contents import read_blobs
from mcode_exec.workspace.snapshot import (
    COARSE_TICK_NS,
    MAX_FILE_BYTES,
    TICK_NS,
    Seen,
    Snapshot,
    by_repository,
)


class Pair(Struct, frozen=True):
    """One path that differs; None: it was not there."""

    path: bytes
    before: Seen | None
    after: Seen | None


def differences(before: Snapshot, after: Snapshot, *, looked_at: Set[bytes] = frozenset()) -> list[Pair]:
    """The paths that differ, in their order.  `looked_at`: what the first snapshot lacks of these was not there."""
    ignores_mode = after.ignores_mode
    left = {seen.path: seen for seen in before.files}
    found: list[Pair] = []
    for seen in after.files:
        was = left.pop(seen.path, None)
        if was is seen:
            continue
        if was is None:
            if seen.path in looked_at or not seen.ctime_ns or is_later(seen, before.taken_ns):
                found.append(Pair(seen.path, None, seen))
        elif not _is_same(was, seen, ignores_mode=ignores_mode):
            found.append(Pair(seen.path, was, seen))
    found += [Pair(path, was, None) for path, was in left.items()]
    found.sort(key=lambda pair: pair.path)
    return found


def _is_same(was: Seen, now: Seen, *, ignores_mode: bool) -> bool:
    if was.kind != now.kind:
        return False
    if stat.S_ISREG(now.mode) and not ignores_mode and (was.mode ^ now.mode) & 0o100:
        return False
    if was.is_known and now.is_known:
        # of one known by its digest and one by its blob, who reads both sees whether they differ
        return bool(was.digest and was.digest == now.digest) or bool(was.blob and was.blob == now.blob)
    same_times = was.ctime_ns == now.ctime_ns or not was.ctime_ns or not now.ctime_ns
    return same_times and (was.size, was.mtime_ns, was.inode) == (now.size, now.mtime_ns, now.inode)


def is_later(seen: Seen, instant_ns: int) -> bool:
    """Whether a file changed at or after an instant, as far as the clock of its file system tells."""
    newest_ns = max(seen.ctime_ns, seen.mtime_ns)
    slack_ns = COARSE_TICK_NS if newest_ns % 1_000_000_000 == 0 else TICK_NS
    return newest_ns >= instant_ns - slack_ns


class Sides:
    """The contents of what differs, by digest, as far as they are to be had."""

    def __init__(self, workspace: str, contents: Contents, repositories: Iterable[bytes]) -> None:
        self._root = os.fsencode(workspace)
        self._contents = contents
        self._repositories = tuple(repositories)
        self._by_blob: dict[bytes, bytes] = {}

    def fetch(self, pairs: Iterable[Pair], limit_bytes: int) -> None:
        """Read from git what only git has, as much of it as fits into the limit."""
        wanted: dict[bytes, bytes] = {}
        for pair in pairs:
            for seen in (pair.before, pair.after):
                if seen is None or not seen.blob or self._has(seen):
                    continue
                if seen.size <= min(MAX_FILE_BYTES, limit_bytes):
                    limit_bytes -= seen.size
                    wanted[seen.path] = seen.blob
        for prefix, paths in by_repository(wanted, self._repositories).items():
            directory = os.fsdecode(os.path.join(self._root, prefix)).rstrip("/")
            self._by_blob.update(read_blobs(directory, [wanted[path] for path in paths]))

    def _has(self, seen: Seen) -> bool:
        return bool(seen.digest) and self._contents.has(seen.digest)

    def content(self, seen: Seen) -> bytes | None:
        """What a file held; None: not known any more."""
        if seen.digest:
            data = self._contents.get(seen.digest, MAX_FILE_BYTES)
            if data is not None:
                return data
        data = self._by_blob.get(seen.blob) if seen.blob else None
        if data is None or len(data) != seen.size or (seen.digest and digest_of(data) != seen.digest):
            return None
        return data


def renames(gone: Mapping[bytes, bytes | None], made: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
    """New path → old path, where exactly one file that went held what exactly one that came holds.

    Shape: path → digest of its content, None or empty where that is not known.
    """
    old, new = _by_digest(gone), _by_digest(made)
    return {
        paths[0]: old[digest][0]
        for digest, paths in new.items()
        if len(paths) == 1 and len(old.get(digest, ())) == 1
    }


def _by_digest(paths: Mapping[bytes, bytes | None]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for path, digest in paths.items():
        if digest and digest != digest_of(b""):
            found.setdefault(digest, []).append(path)
    return found
