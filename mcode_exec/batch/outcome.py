"""What a job run comes to: counts, exit code, and its tasks as summaries show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mcode_exec.abort import AbortScope
from mcode_exec.records.job import OPEN, TaskCounts, TaskRow, TaskState, TaskSummary
from mcode_exec.records.result import ErrorInfo
from mcode_exec.store import job_rows
from mcode_exec.store.database import Store

MIXED = 9  # exit code where unsuccessful tasks have different ones
MAX_FAILURES = 100  # in the summary object
MAX_OUTPUT = 2000  # characters
_INTERNAL = 70


class Stop(Struct, frozen=True, kw_only=True):
    """Why no further task begins."""

    why: str
    #: what the run ends with if no task says more
    exit_code: int
    state: Literal["failed", "cancelled"] = "failed"


def abort_code(abort: AbortScope) -> int:
    """What a run that was stopped from outside ends with."""
    if abort.reason == "signal":
        return 128 + (abort.signum or 0)
    return {"stdout-closed": 141, "deadline": 6}.get(str(abort.reason), 4)


def exit_code_of(codes: set[int], stop: Stop | None, abort: AbortScope) -> int:
    """The exit code of a run; `codes`: the distinct ones of tasks that did not succeed.  docs/contract.md §10."""
    if abort.is_tripped:
        return abort_code(abort)
    if _INTERNAL in codes:
        return _INTERNAL
    if not codes:
        return 0 if stop is None else stop.exit_code
    return next(iter(codes)) if len(codes) == 1 else MIXED


def counts_of(states: Mapping[TaskState, int]) -> TaskCounts:
    """Tasks that are still open when the run has ended had no turn."""
    return TaskCounts(
        total=sum(states.values()),
        succeeded=states.get("succeeded", 0),
        unsuccessful=sum(
            count
            for state, count in states.items()
            if state not in OPEN and state not in ("succeeded", "skipped", "not_run")
        ),
        skipped=states.get("skipped", 0),
        not_run=states.get("not_run", 0) + sum(states.get(state, 0) for state in OPEN),
    )


def sum_of(costs: Iterable[str | None]) -> Decimal | None:
    """What all attempts have cost; None where one of them is not known."""
    total = Decimal(0)
    for cost in costs:
        if cost is None:
            return None
        total += Decimal(cost)
    return total


def summary_of(row: TaskRow, record: bytes, *, is_run_over: bool = True) -> TaskSummary:
    """A task as summaries and reports show it; one that is open when the run has ended was not run."""
    data: dict[str, Any] = msgspec.json.decode(record) if record else {}
    output = data.get("output") if data.get("output") is not None else data.get("partialOutput")
    text = output if isinstance(output, str) else None if output is None else _encode(output)
    is_open = is_run_over and row.state in OPEN
    return TaskSummary(
        task_id=row.task_id,
        status="not_run" if is_open else row.state,
        attempt=row.attempt,
        exit_code=row.exit_code,
        session_id=row.session_id,
        started_at_ms=row.started_ms,
        duration_ms=None
        if row.started_ms is None or row.ended_ms is None
        else max(0, row.ended_ms - row.started_ms),
        cost_usd=row.cost_usd,
        error=None if data.get("error") is None else msgspec.convert(data["error"], ErrorInfo),
        reason=data.get("reason") or ("the run ended before its turn" if is_open else None),
        branch=(data.get("worktree") or {}).get("branch"),
        output=None if text is None else text[:MAX_OUTPUT],
    )


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


async def failures_of(store: Store, run_id: str) -> tuple[TaskSummary, ...]:
    """The first tasks that did not succeed."""
    rows = await store.read(lambda: job_rows.unsuccessful(run_id, MAX_FAILURES))
    return tuple(summary_of(row, record) for row, record in rows)
