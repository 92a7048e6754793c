"""What goes on in a job run at this moment: a line for each task that runs, and one for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct

from mcode_exec.batch.reports.lines import money
from mcode_exec.output.escape import escape
from mcode_exec.output.status_line import clock
from mcode_exec.records.job import UNRUN, TaskSummary

_MAX_LINES = 10  # of tasks that run; of more, those that have run longest
_SURE_AFTER = 3  # tasks that are over here, before what is left is guessed
_ID_CHARS = 60


class _Running(Struct):
    since_s: float
    attempt: int
    doing: str = ""


class Progress:
    """Kept by whoever is told what happens; all times are seconds since the command began, or of one clock."""

    def __init__(self) -> None:
        self.total = 0
        self._ended_before = 0
        self._ended = 0
        self._succeeded = 0
        self._unsuccessful = 0
        self._cost: Decimal | None = Decimal(0)
        self._running: dict[str, _Running] = {}
        self._since_s = 0.0

    def begin(self, total: int, ended: int, now_s: float) -> None:
        """`ended`: of them, those that were over before."""
        self.total = total
        self._ended_before = ended
        self._since_s = now_s

    def started(self, task_id: str, attempt: int, now_s: float) -> None:
        self._running[task_id] = _Running(now_s, attempt)

    def does(self, task_id: str, step: int, doing: str) -> None:
        if (task := self._running.get(task_id)) is not None:
            task.doing = f"step {step} · {doing}" if step else doing

    def stopped(self, task_id: str) -> None:
        self._running.pop(task_id, None)

    def ended(self, summary: TaskSummary) -> int:
        """A task is over; how many are."""
        self._ended += 1
        if summary.status == "succeeded":
            self._succeeded += 1
        elif summary.status not in UNRUN:
            self._unsuccessful += 1
        self._cost = None if self._cost is None or summary.cost_usd is None else self._cost + summary.cost_usd
        return self._ended

    def lines(self, now_s: float) -> Sequence[str]:
        """All of it, as a terminal shows it."""
        shown = sorted(self._running.items(), key=lambda one: one[1].since_s)
        lines = [f"  {_of(task_id, task, now_s)}" for task_id, task in shown[:_MAX_LINES]]
        if len(shown) > _MAX_LINES:
            lines.append(f"  and {len(shown) - _MAX_LINES} more")
        return [*lines, self.line(now_s)]

    def line(self, now_s: float) -> str:
        """`12 of 40 over, 1 did not succeed · 4 running · 0.31 USD · 2:10, about 5:01 left`."""
        said = f"{self._ended} of {self.total} over"
        if self._unsuccessful:
            said += f", {self._unsuccessful} did not succeed"
        parts = [said]
        if self._running:
            parts.append(f"{len(self._running)} running")
        parts.append(money(self._cost))
        passed = clock(now_s - self._since_s)
        left_s = self.left_s(now_s)
        parts.append(passed if left_s is None else f"{passed}, about {clock(left_s)} left")
        return " · ".join(parts)

    def left_s(self, now_s: float) -> float | None:
        """How long the rest takes if it goes on like this; None while nobody can tell."""
        here = self._ended - self._ended_before
        if here < _SURE_AFTER or self._ended >= self.total:
            return None
        return (now_s - self._since_s) / here * (self.total - self._ended)


def _of(task_id: str, task: _Running, now_s: float) -> str:
    name = escape(task_id)
    name = name if len(name) <= _ID_CHARS else f"{name[: _ID_CHARS - 1]}…"
    attempt = f"attempt {task.attempt}" if task.attempt > 1 else ""
    return " · ".join(filter(None, (name, attempt, escape(task.doing), clock(now_s - task.since_s))))
