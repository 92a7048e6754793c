"""One `mcode exec` from parsed flags to the end of the process.

Puts together scope, signals, writer and sink, lets the executor run, and turns
the one result into the way the process ends.  Invariant: exactly one result is
handed to the sink; what comes after it (a late signal, a closed pipe, trouble
while closing) changes nothing that was said.  What a run does is the executor's.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from msgspec import structs

from mcode_exec.abort import Aborted, AbortScope
from mcode_exec.cli import descriptors, errors_door, stdin_notice
from mcode_exec.cli.signals import die_by
from mcode_exec.errors import InternalError, McodeError
from mcode_exec.output.files import descriptor_of
from mcode_exec.output.output_files import FileNames
from mcode_exec.output.sink import READER_GRACE_S
from mcode_exec.output.sinks import BaseSink, SinkOptions, open_sink
from mcode_exec.output.writer import Writer
from mcode_exec.records.event import ExecStarted
from mcode_exec.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcode_exec.cli.signals import SignalDoor
    from mcode_exec.executor.delivery import Delivered
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.records.invocation import Invocation
    from mcode_exec.records.result import Result

#: after the deadline the process goes, come what may; a little before, what the loop did not say is said for it
_LAST_GRACE_S = 4.8
_LAST_WORD_S = 4.4
#: main.py turned the collector off: a short run ends before it is needed
_NO_COLLECTOR_S = 0.5
#: how long closing store and connections may take once the result is out
_CLOSE_S = 2.0


def run(invocation: Invocation, *, signals: SignalDoor, is_stdout_closed: bool) -> int:
    """Run `invocation` and return its exit code; a run that a signal ended dies by it."""
    execution = Execution(invocation, signals, stdout_fd=descriptors.take_stdout())
    loop = asyncio.new_event_loop()  # which logs, where somebody has asked for it
    final = loop.run_until_complete(execution.run(loop, is_stdout_closed=is_stdout_closed))
    # the loop is left as it is: closing it would wait for threads that hang in a read
    signum = signals.signum
    if signum is not None and (final.exit_code == 128 + signum or not execution.is_delivered):
        die_by(signum)
    return final.exit_code


class Execution:
    """The parts of one run that must know each other: scope, sink, signals."""

    def __init__(self, invocation: Invocation, signals: SignalDoor, *, stdout_fd: int) -> None:
        self._invocation = invocation
        self._signals = signals
        self._stdout_fd = stdout_fd
        self._scope = AbortScope()
        self._sink: BaseSink
        self._runtime: Runtime | None = None
        #: taken once, by whoever hands the result to the sink
        self._word = threading.Lock()

    @property
    def is_delivered(self) -> bool:
        """Whether stdout got all of the result, or has no reader to get it."""
        return self._sink.is_delivered

    async def run(self, loop: asyncio.AbstractEventLoop, *, is_stdout_closed: bool) -> Result:
        writer = Writer(
            stdout_fd=self._stdout_fd,
            stderr_fd=2,
            on_stdout_gone=lambda: _post(loop, self._stdout_gone),
        )
        sink = self._sink = open_sink(_sink_options(self._invocation), writer)
        descriptors.redirect_prints(sink.say)
        self._tell_of_stray_errors(loop)
        self._watch_deadline(loop)
        self._signals.attach(loop, self._signalled)
        loop.call_later(_NO_COLLECTOR_S, _collect_again)
        if is_stdout_closed:
            writer.stdout.fail(OSError(errno.EPIPE, os.strerror(errno.EPIPE)))
            self._stdout_gone()
        result = await self._result()
        if not self._word.acquire(blocking=False):
            await asyncio.Event().wait()  # the last word is being said, and the process ends with it
        final = await sink.result(result)
        self._report(final)
        await self._write_pages()
        if self._invocation.drains:
            await self._drain(final)
        await self._clean(final)
        await self._close(sink)
        return final

    async def _write_pages(self) -> None:
        """Pages of shared sessions, once the result is out; they change nothing of that."""
        if self._runtime is not None and self._runtime.ended:
            from mcode_exec.executor.sharing import write_pages

            try:
                await write_pages(self._runtime, self._sink.say)
            except Exception as error:  # a bug: the outcome is settled, and told
                self._sink.say(f"unexpected {type(error).__name__} after the run: {error} (-v shows where)")
                self._sink.bug(error)

    async def _clean(self, final: Result) -> None:
        """Forget some of what is kept for a time only; it changes nothing of the run."""
        if self._runtime is None or final.turn_id is None or self._scope.is_tripped:
            return
        from mcode_exec.executor.change_retention import clean_quietly

        await clean_quietly(self._runtime, self._sink.say if self._invocation.verbose else None)

    async def _drain(self, final: Result) -> None:
        """`--drain`: what waits behind the turn, once its result is out; it changes nothing of that."""
        if self._runtime is None or final.session_id is None:
            return
        if final.status not in ("succeeded", "interaction_required"):
            return
        from mcode_exec.executor.draining import DrainOptions, drain

        options = DrainOptions(session=final.session_id)
        try:
            end = await drain(
                self._runtime, self._invocation, options, self._sink, self._scope, self._tell_delivered
            )
        except McodeError as error:
            self._sink.say_error(f"error: the queue was not drained: {error.message} ({error.code})")
            return
        for session_id, left in end.left.items():
            self._sink.say(f"items of session {session_id} are left: {left.why}")

    def _tell_delivered(self, delivered: Delivered) -> None:
        if delivered.exit_code:
            self._sink.say_error(f"error: {delivered.sentence()}")
        else:
            self._sink.say(delivered.sentence())

    async def _result(self) -> Result:
        """The run's one result, however it ends, with the ids that are known."""
        result = await self._ending()
        if result.session_id is None and self._sink.session_id is not None:
            result = structs.replace(result, session_id=self._sink.session_id, turn_id=self._sink.turn_id)
        return result

    async def _ending(self) -> Result:
        invocation, scope = self._invocation, self._scope
        try:
            await self._abortable(self._open())
            assert self._runtime is not None
            return await self._runtime.run(invocation, self._sink, scope)
        except McodeError as error:
            return self._failed(error)
        except (asyncio.CancelledError, Aborted):
            if not scope.is_tripped:
                return self._failed(
                    InternalError("the run was cancelled without a reason; this is a bug in mcode")
                )
            from mcode_exec.executor.outcome import stopped_before_turn

            return stopped_before_turn(scope, invocation, duration_ms=self._duration_ms())
        except (
            Exception
        ) as error:  # a bug, or memory ran out: the user gets a sentence, the diagnostics the rest
            return self._unexpected(error)

    async def _open(self) -> None:
        """All that comes before the runtime takes over."""
        await self._sink.event(ExecStarted(mcode_version=VERSION))
        if self._invocation.input_source != "-" and stdin_notice.has_waiting_bytes():
            self._sink.say(stdin_notice.NOTICE)
        await self._sink.preflight()
        from mcode_exec.executor.runtime import Runtime

        self._runtime = await Runtime.open(self._invocation)

    async def _abortable(self, work: object) -> None:
        assert asyncio.iscoroutine(work)
        task = asyncio.get_running_loop().create_task(work)
        self._scope.bind(task)
        try:
            await task
        finally:
            self._scope.release()

    def _failed(self, error: McodeError) -> Result:
        return errors_door.result_of_error(
            error, run_id=self._invocation.run_id, duration_ms=self._duration_ms()
        )

    def _unexpected(self, error: Exception) -> Result:
        self._sink.bug(error)
        return self._failed(errors_door.as_mcode_error(error))

    def _duration_ms(self) -> int:
        return round((time.monotonic() - self._invocation.started_monotonic_s) * 1000)

    def _tell_of_stray_errors(self, loop: asyncio.AbstractEventLoop) -> None:
        """Errors that nobody waits for (in a task, a thread, a finaliser) are one line, and with -v the rest."""

        def tell(error: BaseException | None) -> None:
            if error is None:
                return
            self._sink.say(f"unexpected {type(error).__name__} in the background: {error} (-v shows where)")
            self._sink.bug(error)

        loop.set_exception_handler(lambda _, context: tell(context.get("exception")))
        threading.excepthook = lambda args: tell(args.exc_value)
        sys.unraisablehook = lambda args: tell(args.exc_value)

    # what may end the run from outside

    def _signalled(self, signum: int) -> None:
        self._scope.trip("signal", signum=signum)
        self._sink.hurry()

    def _stdout_gone(self) -> None:
        invocation = self._invocation
        files = (invocation.events_file, invocation.result_file, invocation.output_file)
        if all(path is None or descriptor_of(path) == 1 for path in files):
            self._scope.trip("stdout-closed")

    def _watch_deadline(self, loop: asyncio.AbstractEventLoop) -> None:
        timeout_s = self._invocation.timeout_s
        if timeout_s is None:  # the configuration may have one, which the executor reads
            return
        deadline_s = self._invocation.started_monotonic_s + timeout_s
        loop.call_at(deadline_s, self._scope.trip, "deadline")
        self._sink.give_up_at(deadline_s + READER_GRACE_S)
        _at(deadline_s + _LAST_WORD_S, self._say_last)
        _at(deadline_s + _LAST_GRACE_S, os._exit, 6)

    def _say_last(self) -> None:
        """A loop that is stuck cannot keep the promise of a deadline, nor that of a result; another thread can.

        What the store knows of the turn stays as it is, as after a kill: the next start settles it.
        """
        if not self._word.acquire(blocking=False):
            return  # the result is being written: who reads it is waited for a little longer
        from mcode_exec.executor.outcome import never_ended

        result = never_ended(
            self._invocation,
            session_id=self._sink.session_id,
            turn_id=self._sink.turn_id,
            duration_ms=self._duration_ms(),
        )
        try:
            self._sink.last_word(result)
        finally:
            os._exit(result.exit_code)

    def _report(self, final: Result) -> None:
        """`--diagnostics-dir`: a report of a run that did not succeed; without it the outcome is the same."""
        invocation = self._invocation
        if final.exit_code == 0 or invocation.diagnostics_dir is None:
            return
        from mcode_exec.executor.diagnostics import write_report

        try:
            write_report(
                invocation.diagnostics_dir,
                invocation=invocation,
                result=final,
                redactor=self._sink.redactor,
                env=os.environ,
                traceback=self._sink.traceback,
            )
        except McodeError as error:
            self._sink.say_error(f"error: {error.message}")

    async def _close(self, sink: BaseSink) -> None:
        """Close what is open; trouble here changes no outcome."""
        try:
            if self._runtime is not None:
                await asyncio.wait_for(self._runtime.close(), _CLOSE_S)
        except Exception as error:  # the result is out: only those who ask hear of it
            if self._invocation.verbose:
                sink.say(f"while closing: {type(error).__name__}: {error}")
        await sink.close()


def _at(monotonic_s: float, action: Callable[..., object], *args: object) -> None:
    """Do something in another thread than the loop's, which may be stuck."""
    wait_s = min(monotonic_s - time.monotonic(), threading.TIMEOUT_MAX)
    timer = threading.Timer(wait_s, action, args=args)
    timer.daemon = True
    timer.start()


def _collect_again() -> None:
    """From here on garbage is collected; what was loaded so far stays and is not looked at again."""
    gc.freeze()
    gc.enable()


def _post(loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(action)


def _sink_options(invocation: Invocation) -> SinkOptions:
    found_by = {"--data-dir": invocation.data_dir, "--config": invocation.config_file}
    flags = tuple(word for flag, value in found_by.items() if value for word in (flag, value))
    return SinkOptions(
        run_id=invocation.run_id,
        output_format=invocation.output_format,
        files=_file_names(invocation),
        quiet=invocation.quiet,
        verbose=invocation.verbose,
        program=_program(sys.argv[0]),
        continue_flags=None if invocation.ephemeral else flags,
        is_internal=invocation.side_of is not None,
    )


def _program(called: str) -> str:
    """What calls mcode again from here: its name where PATH has it, else the path of this one."""
    on_path = (os.path.join(part, "mcode") for part in os.environ.get("PATH", "").split(os.pathsep) if part)
    is_script = os.path.basename(called) == "mcode" and "/" in called
    return called if is_script and not any(os.access(path, os.X_OK) for path in on_path) else "mcode"


def _file_names(invocation: Invocation) -> FileNames:
    named = (
        invocation.events_file,
        invocation.output_file,
        invocation.result_file,
        invocation.session_id_file,
    )
    if all(path is None for path in named):
        return FileNames()
    from mcode_exec.cli.output_targets import names_of

    return names_of(structs.asdict(invocation))
