"""A real browser without a window: what a page looks like in it, and what becomes of its document.

Debian's `chromium` (or any of its names on PATH); where none is, tests that need one are skipped.  Pictures are read
here from PNG, so that a test can look at single points.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PROGRAM = next((found for name in _NAMES if (found := shutil.which(name))), None)

needs_browser = pytest.mark.skipif(
    PROGRAM is None, reason="no Chromium here (Debian: apt-get install chromium)"
)


@dataclass(frozen=True)
class Picture:
    """Points of a screenshot, row by row."""

    width: int
    height: int
    rows: list[list[tuple[int, int, int]]]

    def column(self, x: int) -> set[tuple[int, int, int]]:
        return {row[x] for row in self.rows}

    def colours(self) -> set[tuple[int, int, int]]:
        return {point for row in self.rows for point in row}


class Browser:
    """Starts Chromium anew for each look, with a profile of its own and without a network to speak of."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def screenshot(self, page: Path, *, width: int, height: int, dark: bool = False) -> Picture:
        target = self._directory / "shot.png"
        target.unlink(missing_ok=True)
        self._run(
            page,
            f"--window-size={width},{height}",
            f"--screenshot={target}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        )
        return read_png(target.read_bytes())

    def document(self, page: Path) -> str:
        """The page's document after it was loaded and everything in it that may run has run."""
        return self._run(page, "--dump-dom")

    def _run(self, page: Path, *flags: str) -> str:
        assert PROGRAM is not None
        done = subprocess.run(
            [
                PROGRAM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--no-first-run",
                "--disable-background-networking",
                f"--user-data-dir={self._directory / 'profile'}",
                *flags,
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=50,
            check=True,
        )
        return done.stdout


def read_png(data: bytes) -> Picture:
    """An eight-bit PNG with or without alpha, as Chromium writes it."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, packed, header = 8, b"", b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        header = body if kind == b"IHDR" else header
        packed += body if kind == b"IDAT" else b""
        at += length + 12
    width, height, depth, colour = struct.unpack(">IIBB", header[:10])
    assert depth == 8
    assert colour in (2, 6)
    size = 3 if colour == 2 else 4
    raw, line_bytes = zlib.decompress(packed), width * size
    rows, above = [], bytearray(line_bytes)
    for y in range(height):
        start = y * (line_bytes + 1)
        above = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + line_bytes]), above, size)
        rows.append([(above[x], above[x + 1], above[x + 2]) for x in range(0, line_bytes, size)])
    return Picture(width, height, rows)


def _unfiltered(kind: int, line: bytearray, above: bytearray, size: int) -> bytearray:
    if kind == 2:
        return bytearray((one + up) & 255 for one, up in zip(line, above, strict=True))
    for x in range(len(line)):
        left = line[x - size] if x >= size else 0
        if kind == 1:
            line[x] = (line[x] + left) & 255
        elif kind == 3:
            line[x] = (line[x] + (left + above[x]) // 2) & 255
        elif kind == 4:
            corner = above[x - size] if x >= size else 0
            guess = left + above[x] - corner
            distances = (abs(guess - left), abs(guess - above[x]), abs(guess - corner))
            best = (left, above[x], corner)[distances.index(min(distances))]
            line[x] = (line[x] + best) & 255
    return line
