"""Contents of files that a turn changed, before and after: one pack a turn, in the session's own directory.

    <session directory>/changes/<turn id>.pack

A pack is whole or not there: it is written beside its place and renamed, and goes
before the row that tells of it, or with the session.  A damaged one reads as one
without contents: nothing is put back that is not, byte for byte, what it says it is.
"""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct

from mcode_exec.paths import make_private_dir, open_regular, private_open
from mcode_exec.sessions.layout import history_paths

#: of one content, unpacked
MAX_CONTENT_BYTES = 64 * 1024 * 1024
_MAX_PACK_BYTES = 256 * 1024 * 1024
_LEVEL = 1
_VERSION = 1
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")


class Pack(Struct, frozen=True, array_like=True):
    """Contents by digest, each packed."""

    version: int
    #: SHA-256 → what zlib made of the content
    packed: dict[bytes, bytes]

    def has(self, digest: bytes) -> bool:
        return digest in self.packed

    def get(self, digest: bytes) -> bytes | None:
        """A content; None where it is not kept, or is not what its digest says."""
        packed = self.packed.get(digest)
        if packed is None:
            return None
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(packed, MAX_CONTENT_BYTES + 1)
        except zlib.error:
            return None
        is_whole = inflate.eof and hashlib.sha256(data).digest() == digest
        return data if is_whole else None


EMPTY = Pack(_VERSION, {})

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Pack)


def _path(sessions_dir: str, relative_dir: str, turn_id: str) -> str:
    name = turn_id if _PLAIN.fullmatch(turn_id) else hashlib.sha256(os.fsencode(turn_id)).hexdigest()
    return os.path.join(history_paths(sessions_dir, relative_dir).changes, f"{name}.pack")


def packed(contents: Mapping[bytes, bytes]) -> bytes:
    """The pack of contents by digest; empty for none."""
    if not contents:
        return b""
    inner = {digest: zlib.compress(data, _LEVEL) for digest, data in contents.items()}
    return _encoder.encode(Pack(_VERSION, inner))


def write_pack(sessions_dir: str, relative_dir: str, turn_id: str, data: bytes) -> None:
    """Keep a pack in place of an earlier one of the turn; an empty one is none.

    Only in a session that is there: a deletion that has been quicker stays one.
    Raises: OSError.
    """
    path = _path(sessions_dir, relative_dir, turn_id)
    if not data:
        with suppress(FileNotFoundError):
            os.unlink(path)
        return
    directory = os.path.dirname(path)
    os.stat(os.path.dirname(directory))
    make_private_dir(directory)
    temporary = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    descriptor = private_open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def read_pack(sessions_dir: str, relative_dir: str, turn_id: str) -> Pack:
    """What a turn's changes held; nothing where that is not kept any more, or damaged."""
    try:
        descriptor = open_regular(_path(sessions_dir, relative_dir, turn_id), os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            data = file.read(_MAX_PACK_BYTES + 1)
        pack = _decoder.decode(data) if len(data) <= _MAX_PACK_BYTES else EMPTY
    except (OSError, msgspec.MsgspecError, ValueError):
        return EMPTY
    return pack if pack.version == _VERSION else EMPTY


def remove_pack(sessions_dir: str, relative_dir: str, turn_id: str) -> None:
    """Remove what a turn's changes held, and what writing it has left behind.  Raises: OSError."""
    path = _path(sessions_dir, relative_dir, turn_id)
    directory, name = os.path.split(path)
    with suppress(FileNotFoundError):
        os.unlink(path)
    with suppress(OSError):
        for left in os.listdir(directory):
            if left.startswith(f"{name}.") and left.endswith(".tmp"):
                os.unlink(os.path.join(directory, left))
        os.rmdir(directory)  # when it is empty
