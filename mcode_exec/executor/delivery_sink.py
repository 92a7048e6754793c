"""The sink of a turn that this process runs for somebody else: nothing of it is the own run's output.

Its events and its result are in the store, for who queued it; what a person
should know meanwhile is passed on as lines.
"""

from __future__ import annotations

from decimal import Decimal

from mcode_exec.output.sink import Sink
from mcode_exec.records.event import AnyEvent, Notice
from mcode_exec.records.result import Result
from mcode_exec.redaction import Redactor


class DeliverySink:
    """Passes lines on, and drops the rest."""

    def __init__(self, outer: Sink, *, name: str | None = None) -> None:
        self._outer = outer
        #: whose lines they are, where several speak at once
        self._name = name
        self._redactor: Redactor | None = None

    async def event(self, event: AnyEvent) -> None:
        if isinstance(event, Notice):
            self.say(event.message)

    def bind(self, *, session_id: str | None = None, turn_id: str | None = None) -> None:
        pass

    def redact_with(self, redactor: Redactor) -> None:
        self._redactor = redactor

    async def preflight(self) -> None:
        pass

    async def admitted(self) -> None:
        pass

    async def session_known(self, session_id: str) -> None:
        pass

    def say_error(self, line: str) -> None:
        self._outer.say_error(self._masked(line))

    def bug(self, error: BaseException) -> None:
        self._outer.bug(error)

    async def result(self, result: Result) -> Result:
        return result

    def status(
        self, *, step: int, tool: str | None, tokens: int | None, cost_usd: Decimal | None, phase: str
    ) -> None:
        self._outer.status(step=step, tool=tool, tokens=tokens, cost_usd=cost_usd, phase=phase)

    def say(self, line: str) -> None:
        self._outer.say(self._masked(line))

    def give_up_at(self, monotonic_s: float) -> None:
        pass

    async def close(self) -> None:
        pass

    def mask(self, text: str) -> str:
        """`text` without the secrets of this turn's configuration."""
        return text if self._redactor is None else self._redactor.text(text)

    def _masked(self, line: str) -> str:
        masked = self.mask(line)
        return masked if self._name is None else f"{self._name}: {masked}"
