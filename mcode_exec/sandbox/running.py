"""One shell that runs: its pipe, its end, its tree.

Invariant: the end is the shell's own, seen through a pidfd; the pipe is read
all the time and never waited for beyond a short drain.  Who starts commands,
and what becomes of those that leave something behind, is the runner's matter.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable

from mcode_exec.sandbox import trees
from mcode_exec.sandbox.capture import OutputCapture
from mcode_exec.sandbox.ending import end_processes
from mcode_exec.sandbox.procfs import ProcessStat

READ_BYTES = 64 * 1024
#: after the shell's end: read on until the pipe has been silent this long, at most DRAIN_S
_QUIET_S = 0.05
DRAIN_S = 0.3
#: how long a killed shell may take to end
_KILLED_S = 1.0


class RunningCommand:
    """One running shell: its pipe, its end, its tree."""

    def __init__(
        self,
        shell: subprocess.Popen[bytes],
        pipe: int,
        trace: trees.Trace,
        *,
        spill_path: str | None,
        is_alone: Callable[[], bool],
    ) -> None:
        self._shell = shell
        self._pipe = pipe
        self._trace = trace
        #: whether an orphan of unknown origin can only come from this command
        self._is_alone = is_alone
        #: ended because the commands of its runner had too many processes
        self.was_crowded = False
        self.capture = OutputCapture(spill_path)
        self._loop = asyncio.get_running_loop()
        trees.own_children.add(shell.pid)
        self._wait_status: int | None = None
        self._has_ended = self._loop.create_future()
        self._pipe_changed = asyncio.Event()
        self._pipe_is_open = True
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._on_output)
        self._pidfd = -1
        self._watch_end()

    def _watch_end(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._shell.pid)
        except OSError:
            self._watch_end_in_thread()
        else:
            self._loop.add_reader(self._pidfd, self._on_end)

    def _watch_end_in_thread(self) -> None:
        """A kernel without pidfds."""
        import threading

        def watch() -> None:
            try:
                os.waitid(os.P_PID, self._shell.pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                pass
            try:
                self._loop.call_soon_threadsafe(self._on_end)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more

        threading.Thread(target=watch, daemon=True).start()

    def _on_end(self) -> None:
        if self._has_ended.done():
            return
        try:
            pid, status = os.waitpid(self._shell.pid, os.WNOHANG)
            if pid == 0:
                return
            self._wait_status = status
        except ChildProcessError:
            pass  # someone else has waited for it: its state is unknown
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
        # Popen must neither wait nor warn any more
        self._shell.returncode = 0
        trees.own_children.discard(self._shell.pid)
        self._trace.shell_pid = None
        self._has_ended.set_result(None)

    def _on_output(self) -> None:
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self.capture.add(data)
        else:
            self._loop.remove_reader(self._pipe)
            self._pipe_is_open = False
        self._pipe_changed.set()

    async def wait(self, limit_s: float) -> bool:
        """True when the shell ended within `limit_s`."""
        late: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(limit_s, late.cancel)
        try:
            await asyncio.wait((self._has_ended, late), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            late.cancel()
        return self._has_ended.done()

    async def end(self) -> None:
        """End everything that belongs to this command."""
        await end_processes(self.find)
        # killed, so its end is a matter of microseconds; a shell that became another user's cannot be killed
        if not self._has_ended.done():
            await asyncio.wait((self._has_ended,), timeout=_KILLED_S)

    def find(self) -> list[ProcessStat]:
        """The live processes of this command, its shell included."""
        return trees.find((self._trace,), unknown_since=self._trace.start if self._is_alone() else None)

    async def drain(self) -> None:
        """Take what is in the pipe; give a background writer a moment, but never wait for it to close."""
        deadline_s = self._loop.time() + DRAIN_S
        while self._pipe_is_open:
            self._pipe_changed.clear()
            self._on_output()
            if self._pipe_changed.is_set():
                if self._loop.time() >= deadline_s:
                    return
                continue
            timeout_s = min(_QUIET_S, deadline_s - self._loop.time())
            if timeout_s <= 0:
                return
            try:
                async with asyncio.timeout(timeout_s):
                    await self._pipe_changed.wait()
            except TimeoutError:
                return

    def find_left(self) -> list[ProcessStat]:
        """What outlives the shell; almost always nothing, which one look at our children tells."""
        if not any(not orphan.is_zombie for orphan in trees.orphans()):
            return []
        return self.find()

    def exit_state(self) -> tuple[int | None, int | None]:
        """(exit code, signal); both None when the state is unknown."""
        status = self._wait_status
        if status is None:
            return None, None
        if os.WIFSIGNALED(status):
            return None, os.WTERMSIG(status)
        return os.waitstatus_to_exitcode(status), None

    def take_pipe(self) -> int | None:
        """The pipe, if someone may still write to it; from now on the caller's to read and close."""
        if not self._pipe_is_open:
            return None
        pipe, self._pipe = self._pipe, -1
        self._loop.remove_reader(pipe)
        return pipe

    def close(self) -> None:
        if self._pipe >= 0:
            if self._pipe_is_open:
                self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self.capture.close()
