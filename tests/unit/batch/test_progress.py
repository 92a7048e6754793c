"""What goes on in a job run, in lines."""

from __future__ import annotations

from decimal import Decimal

from mcode_exec.batch.reports.progress import Progress
from mcode_exec.records.job import TaskState, TaskSummary


def over(task_id: str, state: TaskState = "succeeded", cost: str | None = "0.10") -> TaskSummary:
    return TaskSummary(
        task_id=task_id,
        status=state,
        attempt=1,
        exit_code=0,
        session_id=None,
        started_at_ms=0,
        duration_ms=0,
        cost_usd=None if cost is None else Decimal(cost),
    )


def begun(total: int, ended: int = 0) -> Progress:
    progress = Progress()
    for number in range(ended):
        progress.ended(over(f"before {number}"))
    progress.begin(total, ended, 100.0)
    return progress


def test_tasks_that_run_and_all_of_them() -> None:
    progress = begun(40)
    progress.started("plan", 1, 101.0)
    progress.started("each/\u202ex", 2, 103.0)
    progress.does("plan", 3, "bash")
    progress.does("not there", 1, "model")
    progress.ended(over("a"))
    progress.ended(over("b", "failed"))
    progress.ended(over("c", "skipped", "0"))
    assert progress.lines(110.0) == [
        "  plan · step 3 · bash · 0:09",
        "  each/\\u202ex · attempt 2 · 0:07",
        "3 of 40 over, 1 did not succeed · 2 running · 0.20 USD · 0:10, about 2:03 left",
    ]
    progress.stopped("plan")
    assert len(progress.lines(110.0)) == 2


def test_what_is_left_is_guessed_from_what_ended_here() -> None:
    progress = begun(10, ended=5)
    assert progress.left_s(130.0) is None
    for number in range(3):
        progress.ended(over(str(number)))
    assert progress.left_s(130.0) == 20.0
    progress.ended(over("8"))
    progress.ended(over("9"))
    assert progress.left_s(130.0) is None
    assert progress.line(130.0) == "10 of 10 over · 1.00 USD · 0:30"


def test_an_unknown_cost_stays_unknown() -> None:
    progress = begun(3)
    progress.ended(over("a", cost=None))
    progress.ended(over("b"))
    assert "? USD" in progress.line(100.0)


def test_of_many_tasks_those_that_have_run_longest_are_shown() -> None:
    progress = begun(40)
    for number in range(12):
        progress.started(f"t{number}", 1, 200.0 - number)
    lines = progress.lines(200.0)
    assert lines[0] == "  t11 · 0:11"
    assert lines[10] == "  and 2 more"
    assert len(lines) == 12
