"""Pictures made on the spot, as large as a test wants them, and where requests carry them."""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

from tests.support.peer import Request


def png(width: int = 2, height: int = 2, *, padding: int = 0) -> bytes:
    """A valid PNG; `padding` random bytes make it as large as wanted."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x80" * (3 * width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    extra = chunk(b"prVt", os.urandom(padding)) if padding else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + extra
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def images_of(request: Request) -> list[str]:
    """The base64 texts of the images of a request, in order, as this wire format carries them."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, list):
            for one in value:
                walk(one)
        elif isinstance(value, dict):
            source = value.get("source")
            if value.get("type") == "image" and isinstance(source, dict):
                assert source["media_type"].startswith("image/")
                found.append(source["data"])
            elif value.get("type") == "image_url":
                found.append(value["image_url"]["url"].partition(";base64,")[2])
            elif value.get("type") == "input_image":
                found.append(value["image_url"].partition(";base64,")[2])
            else:
                for one in value.values():
                    walk(one)

    walk(request.json)
    return found
