"""An `mcode` process that is running: read as it goes, signalled, waited for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.mcode import Mcode, Run


class Running:
    """Drains stdout and stderr by threads, so that the process never waits for the test."""

    def __init__(self, process: subprocess.Popen[bytes], owner: Mcode) -> None:
        self.process = process
        self._owner = owner
        self._started_s = time.monotonic()
        self._changed = threading.Condition()
        self._out, self._err = bytearray(), bytearray()
        self._threads = [
            threading.Thread(target=self._drain, args=(pipe, into), daemon=True)
            for pipe, into in ((process.stdout, self._out), (process.stderr, self._err))
            if pipe is not None
        ]
        self._open_pipes = len(self._threads)
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> bytes:
        """What stdout has brought so far."""
        return bytes(self._out)

    @property
    def err(self) -> bytes:
        return bytes(self._err)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The whole event lines that have come so far."""
        return [json.loads(line) for line in self.out.split(b"\n")[:-1] if line.startswith(b"{")]

    def wait_event(
        self, kind: str, *, where: Callable[[dict[str, Any]], bool] = lambda _: True, timeout: float = 20.0
    ) -> dict[str, Any]:
        """The first event line of type `kind` that satisfies `where`."""

        def found() -> dict[str, Any] | None:
            return next((one for one in self.events if one["type"] == kind and where(one)), None)

        self._wait(lambda: found() is not None, timeout, f"no event {kind}")
        event = found()
        assert event is not None
        return event

    def wait_err(self, text: str, timeout: float = 20.0) -> None:
        """Until stderr holds `text`."""
        self._wait(lambda: text.encode() in self.err, timeout, f"stderr never said {text!r}")

    def feed(self, data: bytes | None, *, close: bool = True) -> None:
        """Write to stdin; a process that does not read it is no error."""
        if self.process.stdin is None or data is None:
            return
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
            if close:
                self.process.stdin.close()
        except BrokenPipeError:
            pass

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, after which commands may stay behind."""
        self._owner.may_leave_processes = True
        self.process.kill()

    def kill_group(self) -> None:
        self._owner.may_leave_processes = True
        os.killpg(self.process.pid, signal.SIGKILL)

    def finish(self, timeout: float = 40.0) -> Run:
        """Wait for the end and for both pipes; a process that does not end is killed and reported."""
        from tests.support.mcode import Run

        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait(5)
            raise AssertionError(f"still running after {timeout} s\n{self._said()}") from None
        duration_s = time.monotonic() - self._started_s
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive(), f"a pipe stayed open after the end\n{self._said()}"
        self._close()
        out, err = self.out, self.err
        return Run(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), out, duration_s)

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass

    def _wait(self, is_true: Callable[[], bool], timeout: float, complaint: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: is_true() or not self._open_pipes, timeout)
        assert is_true(), f"{complaint}\n{self._said()}"

    def _said(self) -> str:
        out, err = self.out.decode(errors="replace"), self.err.decode(errors="replace")
        return f"exit {self.process.poll()}\n--- out\n{out}\n--- err\n{err}"

    def _drain(self, pipe: IO[bytes], into: bytearray) -> None:
        descriptor = pipe.fileno()
        while True:
            try:
                data = os.read(descriptor, 65536)
            except OSError:
                data = b""
            with self._changed:
                into += data
                self._open_pipes -= not data
                self._changed.notify_all()
            if not data:
                return
