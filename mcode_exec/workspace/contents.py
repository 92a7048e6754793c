"""Contents of files by their SHA-256, packed, one file each: what the snapshots of one workspace need and git has not.

A content is whole under its name or not there; one that is damaged reads as
not there.  Bounded by who puts things in, and by the room on the disk: the last
of it is left to histories.  What no snapshot names any more goes by `sweep`.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Set

from mcode_exec.paths import make_private_dir, private_open

#: left free for everything else
_KEPT_FREE_BYTES = 32 * 1024 * 1024
_LEVEL = 1  # the fastest: most of it is read once or never
#: a content that nothing names yet may belong to a snapshot that is being taken
_YOUNG_S = 3600.0


def digest_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


class Contents:
    """A directory of contents; made when the first is put in."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._made: set[str] = set()

    def has(self, digest: bytes) -> bool:
        return os.path.exists(self._path(digest))

    def put(self, data: bytes, digest: bytes) -> bool:
        """Keep a content; False where the disk is all but full.  Raises: OSError."""
        path = self._path(digest)
        if os.path.exists(path):
            os.utime(path)  # it is young again: no sweep takes it away meanwhile
            return True
        directory = os.path.dirname(path)
        if directory not in self._made:
            make_private_dir(directory)
            self._made.add(directory)
        room = os.statvfs(directory)
        if room.f_bavail * room.f_frsize < _KEPT_FREE_BYTES + len(data):
            return False
        temporary = f"{path}.{os.getpid()}-{os.urandom(4).hex()}"
        descriptor = private_open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                view = memoryview(zlib.compress(data, _LEVEL))
                while view:
                    view = view[os.write(descriptor, view) :]
            finally:
                os.close(descriptor)
            os.rename(temporary, path)
        except OSError:
            _unlink(temporary)
            raise
        return True

    def get(self, digest: bytes, limit: int) -> bytes | None:
        """A content of at most `limit` bytes; None where it is not kept, or damaged."""
        try:
            with open(self._path(digest), "rb") as file:
                data = unpacked(file.read(), limit)
        except OSError:
            return None
        return data if data is not None and digest_of(data) == digest else None

    def sweep(self, named: Set[bytes]) -> int:
        """Remove what is not among `named` and not young; how many."""
        removed = 0
        before_s = time.time() - _YOUNG_S
        wanted = {digest.hex() for digest in named}
        for directory in _inner(self._directory):
            for entry in _inner(directory):
                name = os.path.basename(directory) + os.path.basename(entry)
                try:
                    if name not in wanted and os.lstat(entry).st_mtime < before_s:
                        os.unlink(entry)
                        removed += 1
                except OSError:
                    continue
        return removed

    def _path(self, digest: bytes) -> str:
        name = digest.hex()
        return os.path.join(self._directory, name[:2], name[2:])


def unpacked(packed: bytes, limit: int) -> bytes | None:
    """What `zlib.compress` was given; None for anything damaged or longer than `limit`."""
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(packed, limit + 1)
    except zlib.error:
        return None
    return data if inflate.eof and len(data) <= limit else None


def _inner(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory)]
    except OSError:
        return []


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
