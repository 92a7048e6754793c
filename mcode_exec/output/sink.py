"""What an executor may say to the outside, whatever the output format is.

The executor knows this protocol and nothing else of the room.  Events come
without their envelope; the sink stamps sequence, time and ids, so that lines
have no gaps whoever consumes them.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from mcode_exec.records.event import AnyEvent
from mcode_exec.records.result import Result
from mcode_exec.redaction import Redactor

#: after a deadline: for settlement and a reader that still reads
READER_GRACE_S = 4.0


class Sink(Protocol):
    """One run's way out."""

    async def event(self, event: AnyEvent) -> None:
        """Say what happened; waits while a reader has no room, and that is the back-pressure."""
        ...

    def bind(self, *, session_id: str | None = None, turn_id: str | None = None) -> None:
        """Envelope fields that are known from here on."""
        ...

    def redact_with(self, redactor: Redactor) -> None:
        """From here on every string that leaves passes through `redactor`, streamed text included."""
        ...

    async def preflight(self) -> None:
        """Check that every output file can be written, and take away what an earlier run left.

        Raises: OutputWriteFailedError.
        """
        ...

    async def admitted(self) -> None:
        """The turn is accepted: its events go into their file even if another run writes it."""
        ...

    async def session_known(self, session_id: str) -> None:
        """Write `--session-id-file`, and stamp the id from here on; the last call counts."""
        ...

    def say_error(self, line: str) -> None:
        """Likewise, with `-q` too."""
        ...

    def bug(self, error: BaseException) -> None:
        """An unexpected error: where it came from is for -v and for diagnostics."""
        ...

    async def result(self, result: Result) -> Result:
        """Write the files, then stdout, and end with exactly one result: the returned one counts."""
        ...

    def status(
        self, *, step: int, tool: str | None, tokens: int | None, cost_usd: Decimal | None, phase: str
    ) -> None:
        """What the status line of a terminal shows."""
        ...

    def say(self, line: str) -> None:
        """One `mcode: …` line on stderr."""
        ...

    def give_up_at(self, monotonic_s: float) -> None:
        """Wait for no reader beyond this second."""
        ...

    async def close(self) -> None:
        """Write out what is still to be written."""
        ...
