"""The loop guard: identical calls with identical results, one after the other, lead nowhere.

Three in a row end the turn (LOOP_DETECTED), across steps and whatever the
preset; where a rule of the user allows `doom_loop`, the model is reminded at
three and the turn ended at five.  Source: docs/contract.md §7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mcode_exec.errors import TurnFailedError

REMIND_AT = 3
END_AT_WHEN_ALLOWED = 5
MAX_BROKEN_STEPS = 5  # steps in a row in which no call had usable arguments

REMINDER = (
    "\n\n[mcode: this call and its result are identical to the ones before. "
    "Do something else, or finish with what you know.]"
)


class LoopGuard:
    """Counts identical calls of one turn."""

    def __init__(self, *, is_allowed: Callable[[], bool]) -> None:
        #: whether a rule of the user allows loops; asked only when there is one
        self._asks = is_allowed
        self._is_allowed = False
        self._last: tuple[str, bytes, str] | None = None
        self._count = 0
        self._broken_steps = 0
        self._found: str | None = None

    def seen(self, tool: str, arguments: dict[str, Any], result: str) -> str:
        """Count a finished call; what to add to its result (a reminder, or nothing)."""
        key = (tool, msgspec.json.encode(arguments, order="sorted"), result)
        self._count = self._count + 1 if key == self._last else 1
        self._last = key
        if self._count == REMIND_AT:
            self._is_allowed = self._asks()
        if self._count >= (END_AT_WHEN_ALLOWED if self._is_allowed else REMIND_AT):
            self._found = (
                f"the model made the same {tool} call {self._count} times in a row with the same result"
            )
        return REMINDER if self._is_allowed and self._count >= REMIND_AT else ""

    def check(self) -> None:
        """End the turn if a loop was found; called when all calls of a step have their results.

        Raises: TurnFailedError `LOOP_DETECTED`.
        """
        if self._found is not None:
            advice = "" if self._is_allowed else " (--allow doom_loop lets it go on to five)"
            raise TurnFailedError(f"{self._found}; the turn was ended{advice}")

    def step_was_broken(self, is_broken: bool) -> None:
        """Count steps in a row whose calls could not be read at all.

        Raises: TurnFailedError `LOOP_DETECTED`.
        """
        self._broken_steps = self._broken_steps + 1 if is_broken else 0
        if self._broken_steps >= MAX_BROKEN_STEPS:
            raise TurnFailedError(
                f"the model sent tool calls with unreadable arguments in {self._broken_steps} steps in a row"
            )
