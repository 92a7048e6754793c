"""The four files of a run, as one: when they are checked, emptied, written, and what a failure means.

Invariant: the events file belongs to this run only from admission on (a run
that was refused leaves another's alone); what was said before is kept and comes
first.  The first failure is remembered, because the result must tell it.  How
one file is written is files.py's; what is in them is the sink's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec.errors import OutputWriteFailedError
from mcode_exec.output.files import OutputFile

if TYPE_CHECKING:
    from mcode_exec.output.writer import Patience, Writer


class FileNames(Struct, frozen=True, kw_only=True):
    """What the flags name; None where a flag is not given."""

    events: str | None = None
    answer: str | None = None
    result: str | None = None
    session_id: str | None = None


class OutputFiles:
    """`--events`, `-o`, `--result` and `--session-id-file` of one run."""

    def __init__(
        self,
        names: FileNames,
        writer: Writer,
        patience: Patience,
        tell: Callable[[OutputWriteFailedError], None],
    ) -> None:
        def file(flag: str, path: str | None) -> OutputFile | None:
            return None if path is None else OutputFile(flag, path, writer)

        self._events = file("--events", names.events)
        self._answer = file("-o", names.answer)
        self._result = file("--result", names.result)
        self._session_id = file("--session-id-file", names.session_id)
        self._patience = patience
        self._tell = tell
        #: the first file that could not be written, and why
        self.failure: OutputWriteFailedError | None = None
        #: lines from before the events file was begun
        self._early_lines: list[bytes] | None = []
        self._is_events_broken = False
        self._is_session_written = False

    # before the run

    async def preflight(self) -> None:
        """Check every file.  Raises: OutputWriteFailedError."""
        for file in self._all():
            await file.prepare()

    def _all(self) -> list[OutputFile]:
        return [f for f in (self._events, self._answer, self._result, self._session_id) if f is not None]

    async def admitted(self) -> None:
        """Stale files go, the events file starts anew."""
        await self.preflight()
        stale = [self._answer, self._result, None if self._is_session_written else self._session_id]
        for file in stale:
            if file is not None:
                self._try(file.remove_stale)
        self._start_events()

    async def put_session_id(self, session_id: str) -> None:
        if self._session_id is not None and not self._is_session_written:
            self._is_session_written = True
            await self._put(self._session_id, f"{session_id}\n".encode())

    # events

    @property
    def wants_lines(self) -> bool:
        return self._events is not None and not self._is_events_broken

    async def room(self) -> None:
        """Wait until the reader of the events has room."""
        if self._events is not None and self._events.channel is not None:
            await self._events.channel.room(self._patience)

    def append(self, line: bytes) -> None:
        """One event line, at once."""
        events = self._events
        if self._early_lines is not None:
            self._early_lines.append(line)
        elif events is not None and not self._is_events_broken:
            self._is_events_broken = not self._try(lambda: events.append(line))

    def _start_events(self) -> None:
        early, self._early_lines = self._early_lines, None
        events = self._events
        if events is None or early is None:
            return

        def start() -> None:
            events.start_lines()
            events.append(b"".join(early))

        self._is_events_broken = not self._try(start)

    async def finish_events(self, line: bytes, *, is_refused: bool) -> None:
        """The last line; the whole file for a run that was never admitted, unless it may be another run's."""
        events = self._events
        if events is None:
            return
        if self._early_lines is not None:
            if is_refused and events.has_content:
                return
            if not await self._try_async(events):
                return
            self._start_events()
        self.append(line)
        if events.channel is not None:
            await events.channel.drain(self._patience)
            self._try(events.check_channel)

    async def _try_async(self, events: OutputFile) -> bool:
        try:
            await events.prepare()
        except OutputWriteFailedError as error:
            self._fail(error)
            return False
        return True

    # at the end

    def check_events(self) -> None:
        """Notice a reader of the events that went away."""
        if self._events is not None:
            self._try(self._events.check_channel)

    async def put_answer(self, data: bytes) -> None:
        if self._answer is not None:
            await self._put(self._answer, data)

    async def put_result(self, data: bytes) -> None:
        if self._result is not None:
            await self._put(self._result, data)

    async def correct_result(self, data: bytes) -> None:
        """Replace what the result file says, where a file can be replaced."""
        if self._result is not None and self._result.channel is None:
            await self._put(self._result, data)

    async def _put(self, file: OutputFile, data: bytes) -> None:
        try:
            await file.put(data, self._patience)
            if file.channel is not None:
                await file.channel.drain(self._patience)
                file.check_channel()
        except OutputWriteFailedError as error:
            self._fail(error)

    def _try(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except OutputWriteFailedError as error:
            self._fail(error)
            return False
        return True

    def _fail(self, error: OutputWriteFailedError) -> None:
        self._tell(error)
        self.failure = self.failure or error

    def close(self) -> None:
        for file in self._all():
            file.close()
