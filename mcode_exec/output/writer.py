"""The one thread that owns stdout, stderr and every pipe that a flag names.

Invariant: bytes handed to a channel come out whole and in order, or the channel
says why not (`error`); nobody else writes to these descriptors.  The thread
waits with poll, so a reader that is slow on one channel never holds up another,
a closed reader is noticed while nothing is being said, and descriptors that
others have set non-blocking are written completely.  A channel takes new bytes
only while it has room: the caller waits, and the ring of frames stays the only
buffer.  What the bytes mean, and when to give up, is the sink's business.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    #: the monotonic second after which not to wait any longer, None for never; asked again after every change
    Patience = Callable[["Channel"], float | None]

#: a channel with this much unwritten takes no more; small, because it is no buffer
ROOM_BYTES = 64 * 1024
#: lines for people are dropped beyond this when nobody reads stderr
POST_LIMIT_BYTES = 1024 * 1024
#: what a pipe that polls writable takes without blocking (PIPE_BUF on Linux)
_PIPE_CHUNK = 4096
_FILE_CHUNK = 256 * 1024
#: pause after a descriptor said "writable" and then "again"
_AGAIN_S = 0.005
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def write_fully(fd: int, data: bytes) -> None:
    """Write all of `data` from this thread, whatever the descriptor's mode.

    For commands that have no event loop.  Raises: OSError, BrokenPipeError among them.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            poller = select.poll()
            poller.register(fd, select.POLLOUT)
            poller.poll(1000)


def check_reader(fd: int) -> None:
    """Raise BrokenPipeError if what reads from `fd` has gone; who writes rarely learns it only so."""
    poller = select.poll()
    poller.register(fd, 0)
    if any(state & _GONE for _, state in poller.poll(0)):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


class Channel:
    """One descriptor and what is still to be written to it."""

    def __init__(self, writer: Writer, fd: int, *, on_gone: Callable[[], None] | None = None) -> None:
        self.fd = fd
        #: why nothing more can be written; EPIPE when the reader is gone
        self.error: OSError | None = None
        self.pending_bytes = 0
        self.last_progress_s = 0.0
        self._writer = writer
        self._pending: deque[memoryview] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._on_gone = on_gone
        mode = os.fstat(fd).st_mode
        self._chunk = _FILE_CHUNK if stat.S_ISREG(mode) else _PIPE_CHUNK
        self.is_terminal = stat.S_ISCHR(mode) and os.isatty(fd)

    @property
    def is_closed(self) -> bool:
        """Whether the reader went away (as opposed to a full disk)."""
        return self.error is not None and self.error.errno in (errno.EPIPE, errno.EIO, errno.ECONNRESET)

    @property
    def has_room(self) -> bool:
        return self.pending_bytes < ROOM_BYTES or self.error is not None

    def post(self, data: bytes) -> None:
        """Hand `data` over without waiting; the caller has asked for room, or keeps it short."""
        if self.error is not None or not data:
            return
        with self._writer.lock:
            if not self._pending:
                self.last_progress_s = time.monotonic()
            self._pending.append(memoryview(data))
            self.pending_bytes += len(data)
        self._writer.wake()

    async def room(self, give_up_s: Patience) -> None:
        """Wait until `post` is welcome, or until there is no patience left."""
        await self._until(lambda: self.has_room, give_up_s)

    async def write(self, data: bytes, give_up_s: Patience) -> None:
        await self.room(give_up_s)
        self.post(data)

    async def drain(self, give_up_s: Patience) -> bool:
        """Wait until everything is written; False if it cannot be, or patience ended before."""
        await self._until(lambda: not self.pending_bytes or self.error is not None, give_up_s)
        return not self.pending_bytes and self.error is None

    async def _until(self, is_met: Callable[[], bool], give_up_s: Patience) -> None:
        while not is_met():
            limit = give_up_s(self)
            timeout_s = None if limit is None else limit - time.monotonic()
            if timeout_s is not None and timeout_s <= 0:
                return
            await self._changed(is_met, timeout_s)

    async def _changed(self, is_met: Callable[[], bool], timeout_s: float | None) -> None:
        import asyncio

        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._writer.lock:
            if is_met():
                return
            self._waiters.append(future)
        await asyncio.wait((future,), timeout=timeout_s)

    def notify(self) -> None:
        """Wake whoever waits for this channel; called by the thread, and to make waits be reconsidered."""
        with self._writer.lock:
            waiters, self._waiters = self._waiters, []
        for future in waiters:
            try:
                future.get_loop().call_soon_threadsafe(_settle, future)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass

    def step(self) -> None:
        """Write one chunk; the descriptor has polled writable.  Only the writer's thread calls this."""
        view = self._pending[0]
        try:
            count = os.write(self.fd, view[: self._chunk])
        except BlockingIOError:
            time.sleep(_AGAIN_S)
            return
        except OSError as error:
            self.fail(error)
            return
        with self._writer.lock:
            self.pending_bytes -= count
            self.last_progress_s = time.monotonic()
            if count == len(view):
                self._pending.popleft()
            else:
                self._pending[0] = view[count:]
        if self._waiters and self.has_room:
            self.notify()

    def fail(self, error: OSError) -> None:
        """Nothing more can be written: forget what is pending and tell everyone."""
        with self._writer.lock:
            if self.error is not None:
                return
            self.error = error
            self._pending.clear()
            self.pending_bytes = 0
        if self._on_gone is not None:
            self._on_gone()
        self.notify()

    @property
    def poll_mask(self) -> int:
        return select.POLLOUT if self._pending else 0


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Writer:
    """Starts the thread and gives out channels; `stdout` and `stderr` are there from the start."""

    def __init__(
        self, *, stdout_fd: int, stderr_fd: int, on_stdout_gone: Callable[[], None] | None = None
    ) -> None:
        self.lock = threading.Lock()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_stopping = False
        self.stdout = Channel(self, stdout_fd, on_gone=on_stdout_gone)
        self.stderr = Channel(self, stderr_fd)
        self._channels = [self.stdout, self.stderr]
        self._thread = threading.Thread(target=self._run, name="mcode-writer", daemon=True)
        self._thread.start()

    def open_channel(self, fd: int) -> Channel:
        """A further descriptor for the thread to own."""
        channel = Channel(self, fd)
        with self.lock:
            self._channels.append(channel)
        self.wake()
        return channel

    def wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def say(self, text: str) -> None:
        """Post already prefixed lines to stderr; beyond the bound they are dropped, because nobody reads."""
        if self.stderr.pending_bytes < POST_LIMIT_BYTES:
            self.stderr.post(text.encode("utf-8", "replace"))

    def reconsider(self) -> None:
        """Make every wait ask again whether to go on."""
        for channel in self._channels:
            channel.notify()

    def stop(self) -> None:
        """End the thread; what is pending is lost, so drain first."""
        self._is_stopping = True
        self.wake()
        self._thread.join(0.2)
        if not self._thread.is_alive():  # else it hangs in a write: the process is about to end anyway
            os.close(self._wake_fd)

    def _run(self) -> None:
        while not self._is_stopping:
            poller = select.poll()
            poller.register(self._wake_fd, select.POLLIN)
            with self.lock:
                by_fd = {channel.fd: channel for channel in self._channels if channel.error is None}
            for fd, channel in by_fd.items():
                poller.register(fd, channel.poll_mask)
            for fd, mask in poller.poll():
                if fd == self._wake_fd:
                    os.eventfd_read(fd)
                elif mask & _GONE:
                    by_fd[fd].fail(OSError(errno.EPIPE, os.strerror(errno.EPIPE)))
                elif mask & select.POLLOUT:
                    by_fd[fd].step()
