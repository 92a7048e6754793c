"""A pseudo-terminal with a process on it, and what somebody sees who looks at it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pyte

from tests.support.mcode import Mcode


class Terminal:
    """A process on a pseudo-terminal of its own; `screen` is all it wrote there."""

    def __init__(self, arguments: list[str], mcode: Mcode, *, stdout: Any = None, **env: str | None) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *arguments],
            env=mcode.environment({"TERM": "xterm", **env}),
            cwd=mcode.workspace,
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
        )
        os.close(slave)
        self.screen = b""

    def read(self, until: Callable[[bytes], bool] = lambda _: False, timeout_s: float = 20.0) -> bytes:
        deadline = time.monotonic() + timeout_s
        while not until(self.screen) and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    piece = os.read(self.master, 65536)
                except OSError:
                    break
                if not piece:
                    break
                self.screen += piece
            elif self.process.poll() is not None:
                break
        return self.screen

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self) -> int:
        self.read()
        code = self.process.wait(10)
        os.close(self.master)
        return code

    def seen(self) -> list[str]:
        """The lines that stand on the screen of 80 by 24, without those that are empty."""
        screen = pyte.Screen(80, 24)
        stream = pyte.ByteStream(screen)
        stream.feed(self.screen)
        return [line.rstrip() for line in screen.display if line.strip()]
