"""The sinks: one base that stamps, narrates and keeps the files, and one small class per output format.

Invariant: stdout carries the result and nothing else (text: the answer; json:
one object; stream-json: one event a line, `exec.started` first, `exec.completed`
last), and what stdout, the files and the exit code say is one and the same
result.  Lines are stamped only when there is room for them, so sequences have
no gaps.  Where the facts come from is the executor's business.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from mcode_exec.errors import McodeError, OutputWriteFailedError
from mcode_exec.output import narration
from mcode_exec.output.deltas import DeltaRedaction
from mcode_exec.output.encoding import to_json_line
from mcode_exec.output.escape import escape_text, prefixed, valid
from mcode_exec.output.files import OutputFile
from mcode_exec.output.status_line import StatusLine, is_wanted
from mcode_exec.output.writer import Channel, Writer
from mcode_exec.records.event import AnyEvent, ExecCompleted, ExecStarted
from mcode_exec.records.result import ErrorInfo, Result
from mcode_exec.redaction import Redactor
from mcode_exec.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcode_exec.records.invocation import OutputFormat

#: how long a reader of stderr, or any reader once the run was told to end, may take nothing
STALL_S = 2.0


class SinkOptions(Struct, frozen=True, kw_only=True):
    """What the command line says about output."""

    run_id: str
    output_format: OutputFormat = "text"
    events_file: str | None = None
    output_file: str | None = None
    result_file: str | None = None
    session_id_file: str | None = None
    quiet: bool = False
    verbose: bool = False
    #: flags without which `mcode exec --session` would not find this session again; None: it cannot
    continue_flags: tuple[str, ...] | None = ()


class BaseSink:
    """All that does not depend on the output format."""

    def __init__(self, options: SinkOptions, writer: Writer, env: Mapping[str, str]) -> None:
        self._options = options
        self._writer = writer
        self._redactor = Redactor()
        self._deltas = DeltaRedaction(self._redactor)
        self._sequence = 0
        #: known from `bind` on; the ids of a result that the executor could not make
        self.session_id: str | None = None
        self.turn_id: str | None = None
        self._events = self._file("--events", options.events_file)
        self._answer = self._file("-o", options.output_file)
        self._result = self._file("--result", options.result_file)
        self._session_file = self._file("--session-id-file", options.session_id_file)
        #: event lines before the events file may be begun anew
        self._early_lines: list[bytes] | None = []
        self._is_session_written = False
        #: messages of errors that stderr has had
        self._told: set[str] = set()
        #: the first output file that could not be written
        self._failure: OutputWriteFailedError | None = None
        #: False when stdout has a reader and yet did not take all of the result
        self.is_delivered = True
        #: when the run was told to end: from then on readers are waited for only while they read
        self._hurried_s: float | None = None
        self._give_up_s: float | None = None
        has_status = not options.quiet and is_wanted(writer.stderr, env)
        self._status = StatusLine(writer.stderr, with_color="NO_COLOR" not in env) if has_status else None

    def _file(self, flag: str, path: str | None) -> OutputFile | None:
        return None if path is None else OutputFile(flag, path, self._writer)

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
        self._redactor = redactor
        self._deltas = DeltaRedaction(redactor)

    async def event(self, event: AnyEvent) -> None:
        if isinstance(event, ExecStarted) and self._sequence:
            return  # said already, by the first event whatever it was
        if not self._sequence and not isinstance(event, ExecStarted):
            await self._emit(ExecStarted(mcode_version=VERSION))
        for outgoing in self._deltas.pass_through(event):
            await self._emit(outgoing)

    async def _emit(self, event: AnyEvent) -> None:
        if self._wants_lines:
            await self._writer.stdout.room(self._patience)
        events = self._events
        if events is not None and events.channel is not None:
            await events.channel.room(self._patience)
        # nothing is awaited from here on: a number that is given out is written
        self._sequence += 1
        stamped = structs.replace(
            event,
            sequence=self._sequence,
            timestamp_ms=time.time_ns() // 1_000_000,
            run_id=self._options.run_id,
            session_id=self.session_id,
            turn_id=self.turn_id,
        )
        if self._wants_lines or events is not None:
            line = to_json_line(stamped, self._redactor.text)
            if self._wants_lines:
                self._writer.stdout.post(line)
            if events is not None:
                self._append(events, line)
        sentence = narration.of_event(stamped, verbose=self._options.verbose)
        if sentence is not None:
            self.say(sentence)

    def _append(self, events: OutputFile, line: bytes) -> None:
        if self._early_lines is not None:
            self._early_lines.append(line)
        elif self._failure is None or self._failure.details.get("flag") != "--events":
            self._guarded("--events", lambda: events.append(line))

    def _guarded(self, flag: str, action: Callable[[], None]) -> None:
        """Do `action`; a failure is said once and remembered for the result."""
        try:
            action()
        except OutputWriteFailedError as error:
            self._note_failure(flag, error)

    def _note_failure(self, flag: str, error: OutputWriteFailedError) -> None:
        self._say_once(error.message, f"error: {error.message}")
        if self._failure is None:
            error.details["flag"] = flag
            self._failure = error

    # the files' life

    async def preflight(self) -> None:
        for file in self._files():
            await file.prepare()

    def _files(self) -> list[OutputFile]:
        return [f for f in (self._events, self._answer, self._result, self._session_file) if f is not None]

    async def admitted(self) -> None:
        await self.preflight()
        for file in (self._answer, self._result, None if self._is_session_written else self._session_file):
            if file is not None:
                self._guarded(file.flag, file.remove_stale)
        self._start_events()

    def _start_events(self) -> None:
        early, self._early_lines = self._early_lines, None
        events = self._events
        if events is None or early is None:
            return

        def start() -> None:
            events.start_lines()
            events.append(b"".join(early))

        self._guarded("--events", start)

    async def session_known(self, session_id: str) -> None:
        self.bind(session_id=session_id)
        if self._session_file is None or self._is_session_written:
            return
        self._is_session_written = True
        try:
            await self._session_file.put(f"{session_id}\n".encode(), self._patience)
        except OutputWriteFailedError as error:
            self._note_failure("--session-id-file", error)

    # the end

    async def result(self, result: Result) -> Result:
        if not self._sequence:
            await self.event(ExecStarted(mcode_version=VERSION))
        self._clear_status()
        result = await self._put_files(result)
        self._say_ending(result)
        if self._wants_lines or self._events is not None:
            await self._complete_events(result)
        stdout = self._writer.stdout
        await stdout.write(self._stdout_of(result), self._patience)
        is_written = await stdout.drain(self._patience)
        result = await self._with_delivery(result, is_written)
        self._say_session(result)
        return result

    async def _put_files(self, result: Result) -> Result:
        """The answer and the result file; whatever could not be written is in the returned result."""
        if self._answer is not None and result.output is not None and result.exit_code in (0, 5):
            await self._put(self._answer, self._text_of(result.output))
        if self._events is not None:
            self._guarded("--events", self._events.check_channel)
        if self._failure is not None:
            result = _unwritten(result, self._failure)
        if self._result is not None:
            before = self._failure
            await self._put(self._result, to_json_line(result, self._redactor.text))
            if self._failure is not None and before is None:
                result = _unwritten(result, self._failure)
        return result

    async def _put(self, file: OutputFile, data: bytes) -> None:
        try:
            await file.put(data, self._patience)
            if file.channel is not None and file.channel is not self._writer.stdout:
                await file.channel.drain(self._patience)
                file.check_channel()
        except OutputWriteFailedError as error:
            self._note_failure(file.flag, error)

    async def _complete_events(self, result: Result) -> None:
        """The last line of the stream, and of the events file of a run that may have one."""
        refused = result.error is not None and result.error.category == "admission"
        if self._early_lines is not None and self._events is not None:
            if refused and self._events.has_content:
                self._events = None  # it may be another run's, which goes on
            else:
                try:
                    await self._events.prepare()
                    self._start_events()
                except OutputWriteFailedError as error:
                    self._note_failure("--events", error)
                    self._events = None
        await self._emit(ExecCompleted(result=result))
        if self._events is not None and self._events.channel not in (None, self._writer.stdout):
            assert self._events.channel is not None
            await self._events.channel.drain(self._patience)

    async def _with_delivery(self, result: Result, is_written: bool) -> Result:
        """`result`, or a failed one if stdout did not take it all for another reason than a closed reader."""
        stdout = self._writer.stdout
        if is_written or stdout.is_closed:
            return result
        self.is_delivered = False
        reason = "its reader does not read" if stdout.error is None else stdout.error.strerror
        failure = OutputWriteFailedError(f"stdout: cannot write the result: {reason}.")
        self._say_error(f"error: {failure.message}")
        result = _unwritten(result, failure, codes=(0, 5, 141))
        if self._result is not None and self._result.channel is None:
            await self._put(self._result, to_json_line(result, self._redactor.text))
        return result

    def _text_of(self, output: object) -> bytes:
        """The answer as text with its line end; a parsed value as JSON."""
        if not isinstance(output, str):
            return to_json_line(output, self._redactor.text)
        text = valid(self._redactor.text(output))
        return (text if text.endswith("\n") else text + "\n").encode()

    def _say_ending(self, result: Result) -> None:
        for sentence in narration.of_ending(result):
            self._say_once(result.error.message if result.error is not None else sentence, sentence)

    def _say_once(self, message: str, sentence: str) -> None:
        """Say `sentence` unless its `message` has been told: a file's failure may also be the run's."""
        if message not in self._told:
            self._told.add(message)
            self._say_error(sentence)

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
        for file in self._files():
            file.close()

    # stderr

    def status(
        self, *, step: int, tool: str | None, tokens: int | None, cost_usd: Decimal | None, phase: str
    ) -> None:
        if self._status is not None:
            self._status.update(step=step, tool=tool, tokens=tokens, cost_usd=cost_usd, phase=phase)

    def say(self, line: str) -> None:
        if not self._options.quiet:
            self._say_error(line)

    def _say_error(self, line: str) -> None:
        cleared = self._status.clear().decode() if self._status is not None else ""
        self._writer.say(cleared + prefixed(self._redactor.text(line)))

    def _clear_status(self) -> None:
        if self._status is not None:
            self._writer.stderr.post(self._status.stop())


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
            self.say(narration.continue_line(result.session_id, flags))


class JsonSink(BaseSink):
    """For programs that want the end: one result object."""

    def _stdout_of(self, result: Result) -> bytes:
        return to_json_line(result, self._redactor.text)


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


def error_info(error: McodeError) -> ErrorInfo:
    """`error` as the result's error object."""
    facts = {
        name: value
        for name in ("number", "retry_after_ms", "http_status", "request_id")
        if (value := getattr(error, name, None)) is not None
    }
    return ErrorInfo(
        category=error.category,  # type: ignore[arg-type]  # the tree's categories are the record's
        code=error.code,
        message=error.message,
        retryable=error.retryable,
        **facts,
    )


def _unwritten(result: Result, failure: OutputWriteFailedError, *, codes: tuple[int, ...] = (0, 5)) -> Result:
    """`result` turned into a failed one if its exit code is one of `codes`; others say more than 74 does."""
    if result.exit_code not in codes:
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
