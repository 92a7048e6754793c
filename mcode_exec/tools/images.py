"""Images by content: what they are, their size, and whether a provider would take them.

Only headers are parsed.  Providers count the base64 text, so the limit is on
that; an image that is cut short or has no sensible size is a tool error, never
an image block.
"""

from __future__ import annotations

import struct

from mcode_exec.tools.failure import ToolFailure

MAX_ENCODED_BYTES = 5_000_000
#: what 5 MB of base64 hold
MAX_RAW_BYTES = MAX_ENCODED_BYTES // 4 * 3
MAX_PIXELS_A_SIDE = 8000
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


def mime_of(start: bytes) -> str | None:
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if start.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if start.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return None


def check_image(mime: str, content: bytes, shown: str) -> tuple[int, int]:
    """(width, height).

    Raises: ToolFailure for an image that cannot be sent.
    """
    size = _SIZES[mime](content)
    if size is None:
        raise ToolFailure(f"{shown} begins like {mime} but is damaged or cut short")
    width, height = size
    if not (0 < width <= MAX_PIXELS_A_SIDE and 0 < height <= MAX_PIXELS_A_SIDE):
        raise ToolFailure(
            f"{shown} is {width}x{height} pixels; images may have 1 to {MAX_PIXELS_A_SIDE} a side. Scale it down first"
        )
    return width, height


def _png_size(content: bytes) -> tuple[int, int] | None:
    if len(content) < 45 or content[12:16] != b"IHDR" or b"IEND" not in content[-1024:]:
        return None
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def _jpeg_size(content: bytes) -> tuple[int, int] | None:
    if b"\xff\xd9" not in content[-4096:]:
        return None
    at = 2
    while at + 9 < len(content):
        if content[at] != 0xFF:
            return None
        marker = content[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        # SOF0..SOF15 without DHT, JPG and DAC
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", content[at + 5 : at + 9])
            return width, height
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 2
            continue
        at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    return None


def _gif_size(content: bytes) -> tuple[int, int] | None:
    if len(content) < 14 or b";" not in content[-64:]:
        return None
    width, height = struct.unpack("<HH", content[6:10])
    return width, height


def _webp_size(content: bytes) -> tuple[int, int] | None:
    if len(content) < 30 or int.from_bytes(content[4:8], "little") + 8 > len(content) + 1:
        return None
    kind = content[12:16]
    if kind == b"VP8X":
        return int.from_bytes(content[24:27], "little") + 1, int.from_bytes(content[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(content[21:25], "little")
        return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", content[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


_SIZES = {
    "image/png": _png_size,
    "image/jpeg": _jpeg_size,
    "image/gif": _gif_size,
    "image/webp": _webp_size,
}
