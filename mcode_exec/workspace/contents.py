"""Contents of files by their SHA-256, packed: what the snapshots of one workspace need and git has not.

Few new contents are a file each, many are batches of a few MiB: making ten thousand
files takes longer than all the rest of a snapshot.  What is put in is there for this
process at once, for others after `flush`, which comes before any snapshot that names
it is kept.  A content is whole under its name or not there; one that is damaged reads
as not there.  Bounded by who puts things in, and by the room on the disk: the last of
it is left to histories.  What no snapshot names any more goes by `sweep`.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress

from mcode_exec.paths import make_private_dir, private_open

#: left free for everything else
_KEPT_FREE_BYTES = 32 * 1024 * 1024
_LEVEL = 1  # the fastest: most of it is read once or never
#: a content that nothing names yet may belong to a snapshot that is being taken
_YOUNG_S = 3600.0
#: so many new contents at once are a batch
_BATCH_FROM = 32
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH = "batch-"
_TEMPORARY = ".new-"
_DIGEST_BYTES = 32
_HEAD_BYTES = _DIGEST_BYTES + 4  # digest, length


def digest_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


class Contents:
    """A directory of contents; made when the first is put in.  For one thread at a time."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        #: put in and not written yet, packed
        self._waiting: dict[bytes, bytes] = {}
        self._waiting_bytes = 0
        #: digest → name of its batch, offset, length; None: not looked at yet
        self._batched: dict[bytes, tuple[str, int, int]] | None = None

    def has(self, digest: bytes) -> bool:
        return digest in self._waiting or digest in self._index() or os.path.exists(self._path(digest))

    def put(self, data: bytes, digest: bytes) -> bool:
        """Keep a content; False where the disk is all but full.  Raises: OSError."""
        if digest in self._waiting:
            return True
        batched = self._index().get(digest)
        path = self._path(digest) if batched is None else os.path.join(self._directory, batched[0])
        with suppress(FileNotFoundError):
            os.utime(path)  # it is young again: no sweep takes it away meanwhile
            return True
        packed = zlib.compress(data, _LEVEL)
        if not self._has_room(self._waiting_bytes + len(packed)):
            return False
        self._waiting[digest] = packed
        self._waiting_bytes += len(packed)
        if self._waiting_bytes >= _BATCH_BYTES:
            self.flush()
        return True

    def _has_room(self, wanted_bytes: int) -> bool:
        if not os.path.isdir(self._directory):
            make_private_dir(self._directory)
        room = os.statvfs(self._directory)
        return room.f_bavail * room.f_frsize >= _KEPT_FREE_BYTES + wanted_bytes

    def flush(self) -> None:
        """Write what was put in.  Raises: OSError."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        if len(waiting) < _BATCH_FROM:
            for digest, packed in waiting.items():
                path = self._path(digest)
                make_private_dir(os.path.dirname(path))
                self._write(path, packed)
            return
        name = _BATCH + os.urandom(8).hex()
        self._write(os.path.join(self._directory, name), _joined(waiting))
        self._index().update(_places(name, waiting))

    def _write(self, path: str, data: bytes) -> None:
        directory, name = os.path.split(path)
        temporary = os.path.join(directory, f"{_TEMPORARY}{name}-{os.getpid()}-{os.urandom(4).hex()}")
        descriptor = private_open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
            finally:
                os.close(descriptor)
            os.rename(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def get(self, digest: bytes, limit: int) -> bytes | None:
        """A content of at most `limit` bytes; None where it is not kept, or damaged."""
        packed = self._waiting.get(digest)
        if packed is None:
            packed = self._read(digest)
        data = None if packed is None else unpacked(packed, limit)
        return data if data is not None and digest_of(data) == digest else None

    def _read(self, digest: bytes) -> bytes | None:
        name, begin, length = self._index().get(digest, ("", 0, -1))
        path = os.path.join(self._directory, name) if name else self._path(digest)
        try:
            with open(path, "rb") as file:
                file.seek(begin)
                return file.read(length)
        except OSError:
            return None

    def _index(self) -> dict[bytes, tuple[str, int, int]]:
        if self._batched is None:
            self._batched = {}
            for path in _inner(self._directory):
                name = os.path.basename(path)
                if name.startswith(_BATCH):
                    for digest, begin, packed in _records(path):
                        self._batched[digest] = (name, begin, len(packed))
        return self._batched

    def sweep(self, named: Set[bytes]) -> int:
        """Remove what is not among `named` and not young; how many."""
        removed = 0
        before_s = time.time() - _YOUNG_S
        wanted = {digest.hex() for digest in named}
        for path in _inner(self._directory):
            name = os.path.basename(path)
            if name.startswith((_BATCH, _TEMPORARY)):
                removed += self._sweep_batch(path, named, before_s)
                continue
            for entry in _inner(path):
                if name + os.path.basename(entry) not in wanted and _is_older(entry, before_s):
                    with suppress(OSError):
                        os.unlink(entry)
                        removed += 1
        self._batched = None
        return removed

    def _sweep_batch(self, path: str, named: Set[bytes], before_s: float) -> int:
        """A batch of which less than half is named is written anew without the rest."""
        if not _is_older(path, before_s):
            return 0
        records = {digest: packed for digest, _, packed in _records(path)}
        kept = {digest: packed for digest, packed in records.items() if digest in named}
        with suppress(OSError):
            if not kept:
                os.unlink(path)
            elif 2 * len(kept) < len(records):
                self._write(path, _joined(kept))
            else:
                return 0
            return len(records) - len(kept)
        return 0

    def _path(self, digest: bytes) -> str:
        name = digest.hex()
        return os.path.join(self._directory, name[:2], name[2:])


def _joined(contents: Mapping[bytes, bytes]) -> bytes:
    return b"".join(digest + len(packed).to_bytes(4, "big") + packed for digest, packed in contents.items())


def _places(name: str, contents: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, tuple[str, int, int]]]:
    at = 0
    for digest, packed in contents.items():
        yield digest, (name, at + _HEAD_BYTES, len(packed))
        at += _HEAD_BYTES + len(packed)


def _records(path: str) -> Iterator[tuple[bytes, int, bytes]]:
    """(digest, offset, packed content) of a batch, as far as it is whole."""
    try:
        with open(path, "rb") as file:
            data = file.read(64 * _BATCH_BYTES)
    except OSError:
        return
    at = 0
    while at + _HEAD_BYTES <= len(data):
        digest, begin = data[at : at + _DIGEST_BYTES], at + _HEAD_BYTES
        at = begin + int.from_bytes(data[at + _DIGEST_BYTES : begin], "big")
        if at > len(data):
            return
        yield digest, begin, data[begin:at]


def unpacked(packed: bytes, limit: int) -> bytes | None:
    """What `zlib.compress` was given; None for anything damaged or longer than `limit`."""
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(packed, limit + 1)
    except zlib.error:
        return None
    return data if inflate.eof and len(data) <= limit else None


def _is_older(path: str, before_s: float) -> bool:
    try:
        return os.lstat(path).st_mtime < before_s
    except OSError:
        return False


def _inner(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory)]
    except OSError:
        return []
