"""Answers that come compressed, though only plain ones were asked for; imported by such an answer."""

from __future__ import annotations

import zlib
from typing import Any

#: what one read from the network may become: text shrinks to a twentieth, not to a hundredth
_MAX_PIECE_BYTES = 16 * 1024 * 1024


class TooLargeError(ValueError):
    """A few bytes that unpack to more than any use has."""


class Inflater:
    """gzip or deflate, as it comes, in bounded pieces."""

    def __init__(self, coding: str) -> None:
        self._is_gzip = coding != "deflate"
        self._stream: Any = None
        #: a first byte on its own: it does not tell yet which deflate this is
        self._held = b""
        #: what is wrong with the bytes behind those that were handed on
        self._damage: str | None = None

    def decode(self, data: bytes) -> bytes:
        """What `data` brings; raises TooLargeError, and ValueError for what is damaged."""
        if self._damage is not None:
            raise ValueError(self._damage)
        pieces: list[bytes] = []
        size = 0
        data = self._held + data
        self._held = b""
        if self._stream is None and len(data) == 1:
            self._held = data
            return b""
        while data:
            if self._stream is None or self._stream.eof:
                self._stream = zlib.decompressobj(self._window(data))
            try:
                piece = self._stream.decompress(data, _MAX_PIECE_BYTES)
            except zlib.error as error:
                if not pieces:
                    raise ValueError(str(error)) from None
                self._damage = str(error)  # what came before it is told first
                break
            size += len(piece)
            if size > _MAX_PIECE_BYTES:
                raise TooLargeError
            pieces.append(piece)
            data = self._stream.unconsumed_tail or self._stream.unused_data
        return b"".join(pieces)

    @property
    def is_cut(self) -> bool:
        """Whether what came so far lacks its end."""
        return (
            self._damage is not None
            or bool(self._held)
            or (self._stream is not None and not self._stream.eof)
        )

    def _window(self, data: bytes) -> int:
        if self._is_gzip:
            return 31
        # "deflate" means zlib's format, but some send the bare one
        return 15 if data[0] & 0x0F == 8 and len(data) > 1 and (data[0] << 8 | data[1]) % 31 == 0 else -15


def decoder_for(coding: str) -> Inflater | None:
    """What decodes `coding`, None if nothing here does."""
    return Inflater(coding) if coding in ("gzip", "x-gzip", "deflate") else None
