"""Blocking file work off the loop, in daemon threads.

A daemon thread that hangs in a read (a dead network mount) holds up neither
the turn's abort nor the end of the process; asyncio's own executor would.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: how long an abort waits for a write that is under way
_FINISH_S = 2.0


async def in_thread(work: Callable[[], T], *, finish: bool = False) -> T:
    """The result of `work`.

    Cancellation: the thread is left alone; with `finish` it is given a moment
    first, so that no file changes after the turn has settled.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def body() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:  # carried over to the waiting task
            error = raised
        try:
            loop.call_soon_threadsafe(deliver, result, error)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=body, daemon=True, name="mcode-tool").start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        if finish:
            await asyncio.wait((done,), timeout=_FINISH_S)
        if done.done() and not done.cancelled():
            done.exception()  # retrieved, so that nothing is logged
        else:
            done.cancel()
        raise
