"""The check of an answer: a command of the caller that must succeed before the turn may end.

Every failure becomes a message in history, the last one too: whoever goes on
with the session knows of it.  How the command is run, and within which limits,
is the ports' matter; it is no call of the model and no step.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from mcode_exec.agent.ports import Ports
from mcode_exec.agent.turn_state import TurnState
from mcode_exec.errors import TurnFailedError
from mcode_exec.plurals import counted
from mcode_exec.records.frame import CheckEnded, CheckRunning
from mcode_exec.records.invocation import Check
from mcode_exec.records.result import CheckInfo, CheckStatus

_AGAIN = (
    "Find out why and mend it. Then give your whole final answer again: only your last one counts, "
    "and the check is run again after it."
)
_OVER = "The turn ends with that."
_SHOWN_COMMAND = 200  # characters of the command that an error repeats
_SHOWN_OUTPUT = 400  # characters of the output's end that an error repeats


class AnswerCheck:
    """One turn's check, run after each answer."""

    def __init__(self, check: Check, ports: Ports, state: TurnState) -> None:
        self._check = check
        self._ports = ports
        self._state = state
        self._left = check.attempts
        self._runs = 0
        #: what ends the turn, once the agent is not told any more
        self.failure: TurnFailedError | None = None

    async def run(self) -> str | None:
        """Run it once; None if it succeeded, else what history has to say of it.

        `failure` is set where the turn ends with that.
        """
        self._runs += 1
        self._ports.progress(step=self._state.steps, tool=None, phase="check")
        self._ports.emit(CheckRunning(self._runs, self._check.command))
        started_s = time.monotonic()
        try:
            outcome = await self._ports.run_check(self._check)
        except asyncio.CancelledError:
            self._ended("interrupted", {}, started_s, None)
            raise
        facts, output = outcome.metadata, outcome.content
        has_passed = _number(facts.get("exit_code")) == 0
        if not has_passed and "exit_code" not in facts:
            self._left = 0  # it was never started, and the agent cannot mend that
        self._ended("passed" if has_passed else "failed", facts, started_s, output)
        if has_passed:
            return None
        said = (
            "The check that has to succeed after your answer has failed.\n"
            f"<check-command>\n{self._check.command}\n</check-command>\n"
            f"<check-output>\n{output.rstrip()}\n</check-output>\n"
        )
        if self._left == 0:
            self.failure = self._failed(output)
            return said + _OVER
        self._left -= 1
        return said + _AGAIN

    def _ended(
        self, status: CheckStatus, facts: dict[str, Any], started_s: float, output: str | None
    ) -> None:
        info = self._state.check = CheckInfo(
            status=status,
            runs=self._runs,
            exit_code=_number(facts.get("exit_code")),
            signal=_number(facts.get("signal")),
            timed_out=facts.get("timed_out") is True,
            duration_ms=round((time.monotonic() - started_s) * 1000),
        )
        self._ports.emit(CheckEnded(self._check.command, info, output, self._left))

    def _failed(self, output: str) -> TurnFailedError:
        command = " ".join(self._check.command.split())
        if len(command) > _SHOWN_COMMAND:
            command = command[: _SHOWN_COMMAND - 1] + "…"
        times = "" if self._runs == 1 else f", {counted(self._runs, 'time')} in all"
        return TurnFailedError(
            f"the check `{command}` did not succeed{times}: {_end_of(output)}", code="CHECK_FAILED"
        )


def _number(value: object) -> int | None:
    """A recording may be anybody's: what is no number there is none here."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _end_of(output: str) -> str:
    """The last words on one line: whole ones, so that a secret is masked or not there."""
    text = " ".join(output.split())
    return text if len(text) <= _SHOWN_OUTPUT else "… " + text[-_SHOWN_OUTPUT:].partition(" ")[2]
