"""The sinks: one base that stamps, narrates and keeps the files, and one small class per output format.

Invariant: stdout carries the result and nothing else (text: the answer; json:
one object; stream-json: one event a line, `exec.started` first, `exec.completed`
last), and what stdout, the files and the exit code say is one and the same
result.  Lines are stamped only when there is room for them, so sequences have
no gaps.  Where the facts come from is the executor's business.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from mcode_exec.errors import OutputWriteFailedError
from mcode_exec.output import narration
from mcode_exec.output.deltas import DeltaRedaction
from mcode_exec.output.encoding import to_json_line
from mcode_exec.output.escape import escape_text, prefixed, valid
from mcode_exec.output.output_files import FileNames, OutputFiles
from mcode_exec.output.status_line import Lines, StatusBlock, is_wanted, of_turn
from mcode_exec.output.writer import Channel, Writer
from mcode_exec.records.event import AnyEvent, ExecCompleted, ExecStarted
from mcode_exec.records.result import Result, error_info
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcode_exec.records.invocation import OutputFormat

#: how long a reader of stderr, or any reader once the run was told to end, may take nothing
STALL_S = 2.0
#: how long readers are waited for who are told the last word: it comes when all other patience is over
_LAST_WORD_S = 0.3


#: errors after which the same session cannot go on
_DEAD_ENDS = ("LLM_CONTEXT_OVERFLOW", "HISTORY_CORRUPT")


class SinkOptions(Struct, frozen=True, kw_only=True):
    """What the command line says about output."""

    run_id: str
    output_format: OutputFormat = "text"
    files: FileNames = FileNames()
    quiet: bool = False
    verbose: bool = False
    #: what calls mcode here, for the lines that name a command
    program: str = "mcode"
    #: flags without which `mcode exec --session` would not find this session again; None: it cannot
    continue_flags: tuple[str, ...] | None = ()
    #: its session is read, and not gone on with
    is_internal: bool = False


class BaseSink:
    """All that does not depend on the output format."""

    def __init__(self, options: SinkOptions, writer: Writer, env: Mapping[str, str]) -> None:
        self._options = options
        self._writer = writer
        #: until the executor has the configuration's secrets too
        self.redactor = Redactor(secret_values(env))
        self._deltas = DeltaRedaction(self.redactor)
        self._sequence = 0
        #: known from `bind` on; the ids of a result that the executor could not make
        self.session_id: str | None = None
        self.turn_id: str | None = None
        self._files = OutputFiles(options.files, writer, self._patience, self._tell_failure)
        #: where an unexpected error came from
        self.traceback: str | None = None
        #: messages of errors that stderr has had
        self._told: set[str] = set()
        #: False when stdout has a reader that did not read all of the result
        self.is_delivered = True
        #: when the run was told to end: from then on readers are waited for only while they read
        self._hurried_s: float | None = None
        self._give_up_s: float | None = None
        #: the thread that says the last word, where the loop could not
        self._last_speaker: int | None = None
        is_shared = self._wants_lines and writer.stdout.is_terminal  # event lines would run into it
        has_status = not options.quiet and not is_shared and is_wanted(writer.stderr, env)
        self._status = StatusBlock(writer.stderr, with_color="NO_COLOR" not in env) if has_status else None

    # what the formats say on stdout

    @property
    def _wants_lines(self) -> bool:
        """Whether stdout takes event lines."""
        return False

    def _stdout_of(self, result: Result) -> bytes:
        """What stdout gets at the end, event lines apart."""
        raise NotImplementedError

    # events

    def bind(self, *, session_id: str | None = None, turn_id: str | None = None) -> None:
        self.session_id = session_id or self.session_id
        self.turn_id = turn_id or self.turn_id

    def redact_with(self, redactor: Redactor) -> None:
        self.redactor = redactor
        self._deltas = DeltaRedaction(redactor)

    async def event(self, event: AnyEvent) -> None:
        if self._last_speaker not in (None, threading.get_ident()):
            await asyncio.Event().wait()  # nothing comes behind the last word, and the process ends with it
        if isinstance(event, ExecStarted) and self._sequence:
            return  # said already, by the first event whatever it was
        if not self._sequence and not isinstance(event, ExecStarted):
            await self._emit(ExecStarted(mcode_version=VERSION))
        for outgoing in self._deltas.pass_through(event):
            await self._emit(outgoing)

    async def _emit(self, event: AnyEvent) -> None:
        await self._room()
        # nothing is awaited from here on: a number that is given out is written
        stamped = self._stamp(event)
        if self._wants_lines or self._files.wants_lines:
            line = to_json_line(stamped, self.redactor.text)
            self._files.append(line)
            if self._wants_lines:
                self._writer.stdout.post(line)
        sentence = narration.of_event(stamped, verbose=self._options.verbose)
        if sentence is not None:
            self.say(sentence)

    async def _room(self) -> None:
        if self._wants_lines:
            await self._writer.stdout.room(self._patience)
        await self._files.room()

    def _stamp(self, event: AnyEvent) -> AnyEvent:
        self._sequence += 1
        return structs.replace(
            event,
            sequence=self._sequence,
            timestamp_ms=time.time_ns() // 1_000_000,
            run_id=self._options.run_id,
            session_id=self.session_id,
            turn_id=self.turn_id,
        )

    # the files' life

    async def preflight(self) -> None:
        await self._files.begin()

    async def admitted(self) -> None:
        await self._files.admitted()

    async def session_known(self, session_id: str) -> None:
        self.bind(session_id=session_id)
        await self._files.put_session_id(session_id)

    # the end

    async def result(self, result: Result) -> Result:
        await self._files.ensure_begun()
        if not self._sequence:
            await self.event(ExecStarted(mcode_version=VERSION))
        await self.end_status()
        result = self._with_broken_stdout(result)
        result = await self._put_files(result)
        self._say_ending(result)
        result = await self._complete(result)
        stdout = self._writer.stdout
        await stdout.write(self._stdout_of(result), self._patience)
        is_written = await stdout.drain(self._patience)
        result = await self._with_delivery(result, is_written)
        self._say_session(result)
        return result

    def last_word(self, result: Result) -> None:
        """`result`, from another thread than the loop's, which is stuck; what the loop still says is not heard."""
        self._last_speaker = threading.get_ident()
        self.give_up_at(time.monotonic() + _LAST_WORD_S)

        async def say() -> None:
            await self.result(result)
            await self.close()

        asyncio.run(say())

    async def _put_files(self, result: Result) -> Result:
        """The answer and the result file; whatever could not be written is in the returned result."""
        files = self._files
        if result.output is not None and result.exit_code in (0, 5):
            await files.put_answer(self._text_of(result.output))
        files.check_events()
        result = _with_failure(result, files.failure)
        await files.put_result(to_json_line(result, self.redactor.text))
        return _with_failure(result, files.failure)

    async def _complete(self, result: Result) -> Result:
        """The last line of the stream: first where it may fail, then on stdout, so that they say the same."""
        if not self._wants_lines and not self._files.wants_lines:
            return result
        await self._room()
        last = self._stamp(ExecCompleted(result=result))
        await self._files.finish_events(to_json_line(last, self.redactor.text))
        failed = _with_failure(result, self._files.failure)
        if failed is not result:
            await self._files.correct_result(to_json_line(failed, self.redactor.text))
        if self._wants_lines:
            self._writer.stdout.post(to_json_line(structs.replace(last, result=failed), self.redactor.text))
        return failed

    def _with_broken_stdout(self, result: Result) -> Result:
        """`result`, or what it was aborted for: event lines that stdout, though not closed, did not take."""
        stdout = self._writer.stdout
        if stdout.error is None or stdout.is_closed:
            return result
        return _with_failure(result, self._stdout_failure(), codes=(141,))

    def _stdout_failure(self) -> OutputWriteFailedError:
        error = self._writer.stdout.error
        reason = "its reader does not read" if error is None else error.strerror
        return OutputWriteFailedError(f"stdout: cannot write the result: {reason}.")

    async def _with_delivery(self, result: Result, is_written: bool) -> Result:
        """`result`, or a failed one if stdout did not take it all for another reason than a closed reader."""
        stdout = self._writer.stdout
        if is_written or stdout.is_closed:
            return result
        self.is_delivered = stdout.error is not None
        failure = self._stdout_failure()
        self._tell_failure(failure)
        result = _with_failure(result, failure, codes=(0, 5, 141))
        await self._files.correct_result(to_json_line(result, self.redactor.text))
        return result

    def _text_of(self, output: object) -> bytes:
        """The answer as text with its line end; a parsed value as JSON."""
        if not isinstance(output, str):
            return to_json_line(output, self.redactor.text)
        text = valid(self.redactor.text(output))
        return (text if text.endswith("\n") else text + "\n").encode()

    def _say_ending(self, result: Result) -> None:
        if result.exit_code == 0 and self._options.quiet:
            return  # what may be said of a success is no error
        for sentence in narration.of_ending(result):
            self._say_once(result.error.message if result.error is not None else sentence, sentence)

    def _tell_failure(self, error: OutputWriteFailedError) -> None:
        self._say_once(error.message, f"error: {error.message} ({error.code})")

    def _say_once(self, message: str, sentence: str) -> None:
        """Say `sentence` unless its `message` has been told: a file's failure may also be the run's."""
        if message not in self._told:
            self._told.add(message)
            self.say_error(sentence)

    def _say_session(self, result: Result) -> None:
        pass

    def _patience(self, channel: Channel) -> float | None:
        """Until when to wait for the reader of `channel`; None: as long as it is there."""
        limits = [] if self._give_up_s is None else [self._give_up_s]
        if self._hurried_s is not None:
            limits.append(max(channel.last_progress_s, self._hurried_s) + STALL_S)
        elif channel is self._writer.stderr:
            limits.append(channel.last_progress_s + STALL_S)
        return min(limits, default=None)

    def hurry(self) -> None:
        """The run was told to end: wait for readers only while they read."""
        self._hurried_s = time.monotonic()
        self._writer.reconsider()

    def give_up_at(self, monotonic_s: float) -> None:
        """Wait for no reader beyond this second."""
        self._give_up_s = monotonic_s

    async def close(self) -> None:
        self._clear_status()
        await self._writer.stdout.drain(self._patience)
        await self._writer.stderr.drain(self._patience)
        self._files.close()

    # stderr

    def status(
        self, *, step: int, tool: str | None, tokens: int | None, cost_usd: Decimal | None, phase: str
    ) -> None:
        if self._status is not None:
            self._status.show(of_turn(step=step, tool=tool, tokens=tokens, cost_usd=cost_usd, phase=phase))

    def show(self, lines: Lines) -> bool:
        """Show these lines below all others from now on; whether there is a terminal for them."""
        if self._status is not None:
            self._status.show(lines)
        return self._status is not None

    def say(self, line: str) -> None:
        if not self._options.quiet:
            self.say_error(line)

    def bug(self, error: BaseException) -> None:
        import traceback

        self.traceback = self.redactor.text("".join(traceback.format_exception(error)))
        if self._options.verbose:
            self.say(self.traceback)

    def say_error(self, line: str) -> None:
        cleared = self._status.clear().decode() if self._status is not None else ""
        self._writer.say(cleared + prefixed(self.redactor.text(line)))

    def _clear_status(self) -> None:
        if self._status is not None:
            self._writer.stderr.post(self._status.stop())

    async def end_status(self) -> None:
        """Take the status lines away before stdout says anything on the same terminal."""
        if self._status is not None:
            self._clear_status()
            await self._writer.stderr.drain(self._patience)


class TextSink(BaseSink):
    """For people: the answer on stdout, the session's name as the last line of stderr."""

    def _stdout_of(self, result: Result) -> bytes:
        if result.output is None or result.exit_code not in (0, 5):
            return b""
        answer = self._text_of(result.output)
        return escape_text(answer.decode()).encode() if self._writer.stdout.is_terminal else answer

    def _say_session(self, result: Result) -> None:
        flags = self._options.continue_flags
        if result.session_id is not None and flags is not None:
            leads_nowhere = result.error is not None and result.error.code in _DEAD_ENDS
            is_read = leads_nowhere or self._options.is_internal
            line = narration.read_line if is_read else narration.continue_line
            self.say(line(result.session_id, self._options.program, flags))


class JsonSink(BaseSink):
    """For programs that want the end: one result object."""

    def _stdout_of(self, result: Result) -> bytes:
        return to_json_line(result, self.redactor.text)


class StreamJsonSink(BaseSink):
    """For programs that follow: one event a line."""

    @property
    def _wants_lines(self) -> bool:
        return True

    def _stdout_of(self, result: Result) -> bytes:
        return b""


def open_sink(options: SinkOptions, writer: Writer, env: Mapping[str, str] = os.environ) -> BaseSink:
    """The sink for `options.output_format`."""
    kinds: dict[str, type[BaseSink]] = {"text": TextSink, "json": JsonSink, "stream-json": StreamJsonSink}
    return kinds[options.output_format](options, writer, env)


def _with_failure(
    result: Result, failure: OutputWriteFailedError | None, *, codes: tuple[int, ...] = (0, 5)
) -> Result:
    """`result` turned into a failed one if its exit code is one of `codes`; others say more than 74 does."""
    if failure is None or result.exit_code not in codes:
        return result
    output = result.output
    return structs.replace(
        result,
        status="failed",
        exit_code=failure.exit_code,
        error=error_info(failure),
        retryable=False,
        output=None,
        partial_output=output if isinstance(output, str) else result.partial_output,
    )
