"""Attached bytes of a session, kept once under their SHA-256; history and messages name them by digest.

Functions block: callers run `keep` on the store thread, before the record that
names the digest is committed.
"""

from __future__ import annotations

import os

from mcode_exec.errors import StoreFailedError
from mcode_exec.sessions.files import make_dirs, read_file, replace_file
from mcode_exec.sessions.layout import HistoryPaths


class Attachments:
    """One session's."""

    def __init__(self, paths: HistoryPaths, data_dir: str) -> None:
        self._directory = paths.attachments
        self._data_dir = data_dir

    def keep(self, data: bytes) -> str:
        """Store `data` so that it survives power loss; its digest."""
        import hashlib

        digest = hashlib.sha256(data).hexdigest()
        path = os.path.join(self._directory, digest)
        try:
            if not os.path.exists(path):
                make_dirs(self._directory, self._data_dir)
                os.close(replace_file(path, data, durable=True))
        except OSError as error:
            raise StoreFailedError(f"{path} could not be written: {error.strerror}") from error
        return digest

    def read(self, digest: str) -> bytes:
        """The bytes of `digest`.  Raises: StoreFailedError."""
        path = os.path.join(self._directory, digest)
        try:
            return read_file(path)
        except OSError as error:
            raise StoreFailedError(f"the attachment {path} cannot be read: {error.strerror}") from error

    def find(self, digest: str) -> bytes | None:
        """The bytes of `digest`; None where they are gone, or it is no digest at all."""
        if len(digest) != 64 or digest.strip("0123456789abcdef"):
            return None
        try:
            return self.read(digest)
        except StoreFailedError:
            return None
