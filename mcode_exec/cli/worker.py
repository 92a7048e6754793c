"""What a command does that runs turns for others: an open runtime, a scope that signals trip, the ways out.

stdout gets what the command posts, stderr what happens meanwhile.  The first
signal ends the turns that run, which are settled, and the command with them.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcode_exec.abort import AbortScope
from mcode_exec.cli import descriptors
from mcode_exec.cli.exec_command import to_invocation
from mcode_exec.cli.exec_flags import values_of_absent
from mcode_exec.cli.signals import die_by
from mcode_exec.errors import McodeError, OutputWriteFailedError
from mcode_exec.executor.change_retention import clean_quietly
from mcode_exec.executor.runtime import Runtime
from mcode_exec.output.sinks import SinkOptions, open_sink
from mcode_exec.output.writer import Writer
from mcode_exec.records.invocation import Invocation

if TYPE_CHECKING:
    import click

    from mcode_exec.cli.signals import SignalDoor
    from mcode_exec.output.sinks import BaseSink

_CLOSE_S = 2.0  # as after a run


class Worker:
    """The parts that must know each other."""

    def __init__(self, invocation: Invocation, scope: AbortScope, writer: Writer, sink: BaseSink) -> None:
        self.invocation = invocation
        self.scope = scope
        self.sink = sink
        self.writer = writer
        self.runtime: Runtime

    def post(self, data: bytes) -> None:
        """Bytes for stdout."""
        self.writer.stdout.post(data)


def run_worker(
    ctx: click.Context, flags: dict[str, Any], work: Callable[[Worker], Awaitable[int]], **fixed: Any
) -> int:
    """Do `work` in an open runtime; the exit code.  `fixed`: fields of the invocation that the command decides."""
    started_s, closed, signals = ctx.obj
    invocation = to_invocation(ctx, {**values_of_absent(), **flags, "prompt": "-"}, started_s, **fixed)
    loop = asyncio.new_event_loop()
    code = loop.run_until_complete(_main(loop, invocation, work, signals, is_stdout_closed=1 in closed))
    if signals.signum is not None:
        die_by(signals.signum)
    return code


async def _main(
    loop: asyncio.AbstractEventLoop,
    invocation: Invocation,
    work: Callable[[Worker], Awaitable[int]],
    signals: SignalDoor,
    *,
    is_stdout_closed: bool,
) -> int:
    scope = AbortScope()  # before the writer, whose thread may find at once that nobody reads
    writer = Writer(
        stdout_fd=descriptors.take_stdout(),
        stderr_fd=2,
        on_stdout_gone=lambda: _stdout_gone(loop, scope),
    )
    options = SinkOptions(
        run_id=invocation.run_id, quiet=invocation.quiet, verbose=invocation.verbose, continue_flags=None
    )
    sink = open_sink(options, writer, os.environ)
    worker = Worker(invocation, scope, writer, sink)
    signals.attach(loop, lambda signum: _signalled(worker, signum))
    if is_stdout_closed:
        writer.stdout.fail(OSError(errno.EPIPE, os.strerror(errno.EPIPE)))
        scope.trip("stdout-closed")
    try:
        worker.runtime = await Runtime.open(invocation)
        try:
            code = await work(worker)
            if not scope.is_tripped:
                await clean_quietly(worker.runtime, sink.say if invocation.verbose else None)
        finally:
            await asyncio.wait_for(worker.runtime.close(), _CLOSE_S)
    except McodeError as error:
        sink.say_error(f"error: {error.message} ({error.code})")
        code = error.exit_code
    await sink.close()
    code = _with_stdout(code, worker, writer)
    await sink.close()  # what was just said
    return code


def _signalled(worker: Worker, signum: int) -> None:
    worker.scope.trip("signal", signum=signum)
    worker.sink.hurry()


def _stdout_gone(loop: asyncio.AbstractEventLoop, scope: AbortScope) -> None:
    loop.call_soon_threadsafe(scope.trip, "stdout-closed")


def _with_stdout(code: int, worker: Worker, writer: Writer) -> int:
    """`code`, or what became of a stdout that did not take every line; what has failed before says more."""
    error = writer.stdout.error
    if error is not None and not writer.stdout.is_closed:
        failure = OutputWriteFailedError(f"stdout: cannot write the result: {error.strerror}.")
        worker.sink.say_error(f"error: {failure.message} ({failure.code})")
        return failure.exit_code if code in (0, 141) else code
    if worker.scope.reason == "stdout-closed":
        worker.sink.say_error("error: stopped: stdout was closed by its reader")
        return 141
    return code
