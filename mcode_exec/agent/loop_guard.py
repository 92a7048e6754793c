"""The loop guard: identical calls with identical results, and the same between them, lead nowhere.

Three of them end the turn (LOOP_DETECTED), across steps and whatever the
preset; where a rule of the user allows `doom_loop`, the model is reminded at
three and the turn ended at five.  What lies between them must recur as well:
tests that fail in the same way after each edit are work, not a loop.
Source: docs/contract.md §7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from mcode_exec.errors import TurnFailedError
from mcode_exec.plurals import counted

REMIND_AT = 3
END_AT_WHEN_ALLOWED = 5
MAX_PERIOD = 8  # calls, of a loop that goes round several
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
        #: digests of the newest calls with their results
        self._newest: deque[bytes] = deque(maxlen=MAX_PERIOD)
        #: by period: for how many calls each has been the same as the one a period before
        self._same_for = [0] * (MAX_PERIOD + 1)
        self._broken_steps = 0
        self._found: str | None = None

    def seen(self, tool: str, arguments: dict[str, Any], result: str) -> str:
        """Count a finished call; what to add to its result (a reminder, or nothing)."""
        key = _digest(tool, arguments, result)
        count, period = self._count(key)
        if count == REMIND_AT:
            self._is_allowed = self._asks()
        if count >= (END_AT_WHEN_ALLOWED if self._is_allowed else REMIND_AT):
            self._found = (
                f"the model made the same {tool} call {count} times in a row with the same result"
                if period == 1
                else f"the model goes round in {period} calls with the same results ({tool} {count} times)"
            )
        return REMINDER if self._is_allowed and count >= REMIND_AT else ""

    def _count(self, key: bytes) -> tuple[int, int]:
        """How often this call has come with the same calls between, and how many calls a round has."""
        count, of_period = 1, 1
        for period in range(1, len(self._newest) + 1):
            self._same_for[period] = self._same_for[period] + 1 if self._newest[-period] == key else 0
            times = (self._same_for[period] - 1) // period + 2
            if times > count:
                count, of_period = times, period
        self._newest.append(key)
        return count, of_period

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
                f"the model sent tool calls with unreadable arguments in {counted(self._broken_steps, 'step')} in a row"
            )


def _digest(tool: str, arguments: dict[str, Any], result: str) -> bytes:
    import hashlib

    call = msgspec.json.encode((tool, arguments, result), order="sorted")
    return hashlib.blake2b(call, digest_size=16).digest()
