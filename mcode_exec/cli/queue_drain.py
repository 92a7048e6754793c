"""`mcode queue drain` and `queue steer`: turns for others, from parsed flags to the end of the process.

stdout gets one line per item; what happens meanwhile is said on stderr.  The
first signal ends the turn that runs, which is settled, and the drain with it.
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
from mcode_exec.errors import BusyError, McodeError, OutputWriteFailedError, SessionError
from mcode_exec.executor.delivery import Delivered
from mcode_exec.executor.draining import DEFAULT_JOBS, DrainEnd, DrainOptions, drain
from mcode_exec.executor.runtime import Runtime
from mcode_exec.executor.sending import send_now
from mcode_exec.executor.sharing import write_pages
from mcode_exec.output import narration
from mcode_exec.output.encoding import to_json_line
from mcode_exec.output.sinks import SinkOptions, open_sink
from mcode_exec.output.writer import Writer
from mcode_exec.records.invocation import Invocation

if TYPE_CHECKING:
    import click

    from mcode_exec.cli.signals import SignalDoor
    from mcode_exec.output.sinks import BaseSink

_CLOSE_S = 2.0  # as after a run


def run_drain(ctx: click.Context, flags: dict[str, Any]) -> int:
    """`mcode queue drain`; the exit code."""
    session, follows, stops = flags.pop("session"), flags.pop("follow"), flags.pop("stop_on_failure")
    jobs = flags.pop("jobs") or DEFAULT_JOBS
    flags.pop("every")
    is_jsonl = flags.pop("output_format") == "jsonl"

    async def work(worker: Worker) -> int:
        options = DrainOptions(session=session, follows=follows, stops_on_failure=stops, jobs=jobs)
        end = await drain(
            worker.runtime, worker.invocation, options, worker.sink, worker.scope, worker.tell_delivered
        )
        return _code_of(worker, end)

    return _run(ctx, flags, work, is_jsonl=is_jsonl)


def run_steer(ctx: click.Context, item_id: str, flags: dict[str, Any]) -> int:
    """`mcode queue steer`; the exit code."""
    is_json = flags.pop("output_format") == "json"

    async def work(worker: Worker) -> int:
        delivered = await send_now(worker.runtime, worker.invocation, item_id, worker.sink, worker.scope)
        worker.tell_delivered(delivered)
        await write_pages(worker.runtime, worker.sink.say)
        return worker.failed_code or 0

    return _run(ctx, flags, work, is_jsonl=is_json)


def _code_of(worker: Worker, end: DrainEnd) -> int:
    """What the end of a drain is to a script: nothing that waits is passed over in silence."""
    for session_id, left in end.left.items():
        worker.sink.say(f"items of session {session_id} are left: {left.why}")
    if worker.scope.is_tripped or worker.failed_code is not None:
        return worker.failed_code or 0
    if not worker.count and not end.left:
        worker.sink.say("nothing waits")
    if any(left.reason == "busy" for left in end.left.values()):
        raise BusyError(
            "items are left, because another process is at work in their session; try again later"
        )
    paused = [session_id for session_id, left in end.left.items() if left.reason == "paused"]
    if paused:
        raise SessionError(
            f"the queue of {paused[0]} is paused; `mcode queue unpause {paused[0]}` lets it go on"
            if len(paused) == 1
            else f"the queues of {len(paused)} sessions are paused; `mcode queue unpause SESSION` lets one go on",
            code="queue_paused",
        )
    return 0


class Worker:
    """What draining needs: the open runtime, a scope that signals trip, the ways out."""

    def __init__(
        self, invocation: Invocation, scope: AbortScope, writer: Writer, sink: BaseSink, *, is_jsonl: bool
    ) -> None:
        self.invocation = invocation
        self.scope = scope
        self.sink = sink
        self._writer = writer
        self._is_jsonl = is_jsonl
        self.runtime: Runtime
        #: how many items were taken
        self.count = 0
        #: exit code of the first turn that did not succeed
        self.failed_code: int | None = None

    def tell_delivered(self, delivered: Delivered) -> None:
        self.count += 1
        result, error, item = delivered.result, delivered.error, delivered.item
        if self._is_jsonl:
            line = {
                "itemId": item.id,
                "sessionId": item.session_id,
                "outcome": delivered.outcome,
                **({"turnId": delivered.turn_id} if delivered.outcome == "steered" else {}),
                "result": result,
                "error": None if error is None else {"code": error.code, "message": error.message},
            }
            self._writer.stdout.post(
                to_json_line(line, lambda text: self.sink.redactor.text(delivered.mask(text)))
            )
        elif delivered.outcome == "ran":
            answer = (
                narration.cut(delivered.mask(str(result.output)), 100) if result and result.output else ""
            )
            text = self.sink.redactor.text(f"{item.id} {result.status if result else ''} {answer}".rstrip())
            self._writer.stdout.post((text + "\n").encode("utf-8", "replace"))
        if delivered.exit_code:
            self.sink.say_error(f"error: {delivered.sentence()}")
            self.failed_code = self.failed_code or delivered.exit_code
        elif delivered.outcome not in ("ran", "steered"):  # that it was handed over has been said
            self.sink.say(delivered.sentence())


def _run(
    ctx: click.Context, flags: dict[str, Any], work: Callable[[Worker], Awaitable[int]], *, is_jsonl: bool
) -> int:
    started_s, closed, signals = ctx.obj
    invocation = to_invocation(ctx, {**values_of_absent(), **flags, "prompt": "-"}, started_s)
    loop = asyncio.new_event_loop()
    code = loop.run_until_complete(
        _main(loop, invocation, work, signals, is_jsonl=is_jsonl, is_stdout_closed=1 in closed)
    )
    if signals.signum is not None:
        die_by(signals.signum)
    return code


async def _main(
    loop: asyncio.AbstractEventLoop,
    invocation: Invocation,
    work: Callable[[Worker], Awaitable[int]],
    signals: SignalDoor,
    *,
    is_jsonl: bool,
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
    worker = Worker(invocation, scope, writer, sink, is_jsonl=is_jsonl)
    signals.attach(loop, lambda signum: _signalled(worker, signum))
    if is_stdout_closed:
        writer.stdout.fail(OSError(errno.EPIPE, os.strerror(errno.EPIPE)))
        scope.trip("stdout-closed")
    try:
        worker.runtime = await Runtime.open(invocation)
        try:
            code = await work(worker)
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
