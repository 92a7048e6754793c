"""What this session has read of which file, so that a change behind its back is noticed.

Keyed by the real path.  A file counts as unchanged while device, inode, size
and modification time are the same; where the time differs, the digest of the
content decides.  Lives in memory: after a restart nothing counts as read.
"""

from __future__ import annotations

import os

from msgspec import Struct


class Seen(Struct, frozen=True):
    """A file as it was when read or last written by us."""

    inode: tuple[int, int]
    size: int
    mtime_ns: int
    #: None when only a part of a large file was read
    digest: bytes | None


class ReadState:
    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def note(self, path: str, stat: os.stat_result, content: bytes | None) -> None:
        """`path` is the real one; `content` the whole of it, if it was read."""
        self._seen[path] = Seen(
            (stat.st_dev, stat.st_ino),
            stat.st_size,
            stat.st_mtime_ns,
            _digest(content) if content is not None else None,
        )

    def has_changed(self, path: str, stat: os.stat_result, content: bytes) -> bool:
        """Whether the file differs from what was read; False for one that was never read."""
        seen = self._seen.get(path)
        if seen is None:
            return False
        same_times = seen.mtime_ns == stat.st_mtime_ns and seen.inode == (stat.st_dev, stat.st_ino)
        if same_times and seen.size == stat.st_size:
            return False
        return seen.digest is None or seen.digest != _digest(content)


def _digest(content: bytes) -> bytes:
    import hashlib

    return hashlib.blake2b(content, digest_size=16).digest()
