"""Reading what a user names as input: stdin, a file, a pipe.

A FIFO without a writer blocks already when it is opened, a pipe when it is
read: both happen in a daemon thread that nobody waits for, so that an abort
and the end of the process wait for neither.  A terminal of which mcode is in
the background is an error: the kernel would stop the whole process.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import stat

from mcode_exec.errors import InvocationError

STDIN = "-"
_PIECE_BYTES = 1 << 16


async def read_source(source: str, limit: int, *, what: str) -> bytes:
    """The bytes of `source` (`-`: stdin) to its end, or one byte more than `limit`.

    Raises: InvocationError that begins with `what`.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def deliver(data: bytes, reason: str | None) -> None:
        if done.cancelled():
            return
        if reason is not None:
            done.set_exception(InvocationError(f"{what} {reason}"))
        else:
            done.set_result(data)

    def read() -> None:
        data, reason = b"", None
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN})
        try:
            data = _read(source, limit)
        except IsADirectoryError:
            reason = "is a directory"
        except (OSError, ValueError) as error:
            reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            if isinstance(error, OSError) and error.errno == errno.EIO:
                reason += " (a terminal can be read in the foreground only)"
        try:
            loop.call_soon_threadsafe(deliver, data, reason)
        except RuntimeError:
            pass  # the run was aborted meanwhile

    import threading

    threading.Thread(target=read, name="mcode-input", daemon=True).start()
    return await done


def _read(source: str, limit: int) -> bytes:
    if source == STDIN:
        return _read_descriptor(0, limit)
    descriptor = os.open(os.path.expanduser(source), os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError
        return _read_descriptor(descriptor, limit)
    finally:
        os.close(descriptor)


def _read_descriptor(descriptor: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    left = limit + 1
    while left > 0:
        try:
            piece = os.read(descriptor, min(left, _PIECE_BYTES))
        except BlockingIOError:  # whoever started us shares it with us and wants it so
            select.select([descriptor], [], [])
            continue
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
