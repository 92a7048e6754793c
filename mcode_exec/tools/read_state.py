"""What this session has read of which file, so that a change behind its back is noticed.

Keyed by the real path and by the path that was named, which may lead elsewhere
by now.  The digest of the content decides, since a modification time can be
restored; of a file that was read in part, device, inode, size and modification
time.  Lives in memory: after a restart nothing counts as read.
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

    def note(self, path: str, real: str, stat: os.stat_result, content: bytes | None) -> None:
        """`real` is where `path` leads; `content` the whole of the file, if it was read."""
        self._seen[path] = self._seen[real] = Seen(
            (stat.st_dev, stat.st_ino),
            stat.st_size,
            stat.st_mtime_ns,
            _digest(content) if content is not None else None,
        )

    def has_changed(self, path: str, real: str, stat: os.stat_result, content: bytes) -> bool:
        """Whether the file differs from what was read; False for one that was never read."""
        seen = self._seen.get(real) or self._seen.get(path)
        if seen is None:
            return False
        if seen.digest is not None:
            return seen.digest != _digest(content)
        return (seen.inode, seen.size, seen.mtime_ns) != (
            (stat.st_dev, stat.st_ino),
            stat.st_size,
            stat.st_mtime_ns,
        )


def _digest(content: bytes) -> bytes:
    import hashlib

    return hashlib.blake2b(content, digest_size=16).digest()
