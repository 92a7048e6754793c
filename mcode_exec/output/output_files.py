"""The four files of a run, as one: when they are checked, emptied, written, and what a failure means.

Invariant: from `begin` on events and result are not an earlier run's, however
this run ends, nor from `admitted` on answer and session id: a run that is refused
costs nobody an answer, or the id to go on with.  Only what this run reads is kept
until it is replaced, and the events of a run that is still writing them until
this one is admitted.  What was said before
the events file was begun comes first in it.  The first failure is remembered,
because the result must tell it.  How one file is written is files.py's; what is
in them is the sink's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
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
    #: files that the run reads: one of them may be a target too
    read: tuple[str, ...] = ()
    #: the data directory, where it is known
    data: str | None = None


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
            return None if path is None else OutputFile(flag, path, writer, data=names.data)

        self._events = file("--events", names.events)
        self._answer = file("-o", names.answer)
        self._result = file("--result", names.result)
        self._session_id = file("--session-id-file", names.session_id)
        self._patience = patience
        self._tell = tell
        #: the first file that could not be written, and why
        self.failure: OutputWriteFailedError | None = None
        self._read = frozenset(map(_real, names.read))
        self._is_admitted = False
        #: answer and session id of an earlier run, until this one is admitted
        self._kept: list[OutputFile] = []
        #: those that have not been looked at yet
        self._earlier = self._all()
        #: lines from before the events file was begun
        self._early_lines: list[bytes] | None = None if self._events is None else []
        self._is_events_broken = False
        self._written_session: str | None = None

    # before the run

    def _all(self) -> list[OutputFile]:
        return [f for f in (self._events, self._answer, self._result, self._session_id) if f is not None]

    async def begin(self) -> None:
        """Check every file, and take away what an earlier run left in those that can be written.

        Raises: OutputWriteFailedError, the first, when all have been looked at.
        """
        first: OutputWriteFailedError | None = None
        while self._earlier:
            file = self._earlier.pop(0)
            try:
                await file.prepare()
                self._take(file)
            except OutputWriteFailedError as error:
                first = first or error
        if first is not None:
            raise first

    def _take(self, file: OutputFile) -> None:
        if self._read and _real(file.path) in self._read:
            return
        if file is self._events:
            self._start_events(takes_over=False)
        elif file is self._result:
            file.remove_stale()
        elif not self._is_admitted:
            self._kept.append(file)
        elif file is self._answer or self._written_session is None:
            file.remove_stale()

    async def ensure_begun(self) -> None:
        """Likewise, for a run that ended before it began: what cannot be written is only told."""
        try:
            await self.begin()
        except OutputWriteFailedError as error:
            self._fail(error)

    async def admitted(self) -> None:
        """What an answer or a session id was goes now; the events file is this run's, whoever else writes it."""
        await self.begin()
        self._is_admitted = True
        for file in self._kept:
            self._try(partial(self._take, file))
        self._is_events_broken = not self._try(lambda: self._start_events(takes_over=True))

    async def put_session_id(self, session_id: str) -> None:
        if self._session_id is not None and self._written_session != session_id:
            self._written_session = session_id
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

    def _start_events(self, *, takes_over: bool) -> None:
        """Begin the file with what was said so far, unless another run writes it.  Raises: OutputWriteFailedError."""
        events, early = self._events, self._early_lines
        if events is None or early is None:
            return
        lines = events.start_lines(takes_over=takes_over)
        if lines == "left":
            return
        if lines == "taken":
            self._tell(
                OutputWriteFailedError(
                    f"--events: another run was writing {events.path!r}; it is this run's now."
                )
            )
        self._early_lines = None
        if early:
            events.append(b"".join(early))

    async def finish_events(self, line: bytes) -> None:
        """The last line, and with it all that was said before the file could be begun."""
        events = self._events
        if events is None or not await self._has_begun(events):
            return
        self.append(line)
        if events.channel is not None:
            await events.channel.drain(self._patience)
            self._try(events.check_channel)

    async def _has_begun(self, events: OutputFile) -> bool:
        if self._early_lines is None:
            return True
        try:
            await events.prepare()
            self._start_events(takes_over=False)
        except OutputWriteFailedError as error:
            self._fail(error)
            return False
        if self._early_lines is not None:
            self._tell(
                OutputWriteFailedError(f"--events: {events.path!r} is left to the run that writes it.")
            )
        return self._early_lines is None

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


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except OSError:  # a relative one, and the current directory is gone
        return path
