"""Plans, runs and tasks of jobs as rows: what the commands show."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcode_exec.batch.looking import SeenRun
    from mcode_exec.records.job import Plan, TaskSummary

PLAN_COLUMNS = {
    "taskId": "TASK",
    "needs": "NEEDS",
    "session": "SESSION",
    "model": "MODEL",
    "permission": "PERMISSION",
    "worktree": "WORKTREE",
    "retries": "RETRIES",
    "prompt": "PROMPT",
}
RUN_COLUMNS = {
    "runId": "RUN",
    "jobName": "JOB",
    "state": "STATE",
    "total": "TASKS",
    "succeeded": "SUCCEEDED",
    "unsuccessful": "UNSUCCESSFUL",
    "costUsd": "USD",
    "startedMs": "STARTED",
}
RUN_FIELDS = (
    "runId", "jobName", "state", "exitCode", "specPath", "workspace", "total", "succeeded", "unsuccessful",
    "skipped", "notRun", "costUsd", "startedMs", "endedMs",
)  # fmt: skip
TASK_COLUMNS = {
    "taskId": "TASK",
    "status": "STATUS",
    "attempt": "ATTEMPT",
    "exitCode": "EXIT",
    "duration": "TIME",
    "costUsd": "USD",
    "sessionId": "SESSION",
    "why": "WHY",
}
TASK_FIELDS = (
    "taskId", "status", "attempt", "exitCode", "sessionId", "startedAtMs", "durationMs", "costUsd", "error",
    "reason", "branch", "output",
)  # fmt: skip


def plan_rows(plan: Plan) -> list[dict[str, Any]]:
    """The tasks of a plan, as a table shows them."""
    return [
        {
            "taskId": task.id,
            "needs": ", ".join(task.spec.needs),
            "session": task.spec.session,
            "model": task.settings.model or "",
            "permission": task.settings.permission or "",
            "worktree": "yes" if task.settings.worktree else "",
            "retries": task.settings.retries or "",
            "prompt": " ".join(task.spec.prompt.split()),
        }
        for task in plan.tasks
    ]


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan for programs; `maxCostUsd`: what all of it costs at most, null where nothing limits it."""
    import msgspec

    tasks = [
        {
            "taskId": task.id,
            "place": task.spec.place,
            "needs": list(task.spec.needs),
            "when": task.spec.when,
            "session": task.spec.session,
            "item": task.item,
            "prompt": task.spec.prompt,
            "settings": msgspec.to_builtins(task.settings, builtin_types=(Decimal,)),
            "digest": task.digest,
        }
        for task in plan.tasks
    ]
    limits = [task.settings.max_cost for task in plan.tasks]
    each = [
        limit * (1 + (task.settings.retries or 0))
        for limit, task in zip(limits, plan.tasks, strict=True)
        if limit is not None
    ]
    sums = [plan.spec.job.max_cost] if plan.spec.job.max_cost is not None else []
    if len(each) == len(limits):
        sums.append(sum(each, Decimal(0)))
    return {
        "jobName": plan.spec.job.name,
        "concurrency": plan.spec.job.concurrency,
        "maxCostUsd": min(sums, default=None),
        "tasks": tasks,
    }


def run_row(seen: SeenRun) -> dict[str, Any]:
    """A run and what it has come to."""
    run, counts = seen.run, seen.counts
    return {
        "runId": run.id,
        "jobName": run.job_name,
        "state": run.state,
        "exitCode": run.exit_code,
        "specPath": run.spec_path,
        "workspace": run.workspace,
        "total": counts.total,
        "succeeded": counts.succeeded,
        "unsuccessful": counts.unsuccessful,
        "skipped": counts.skipped,
        "notRun": counts.not_run,
        "costUsd": None if seen.cost_usd is None else Decimal(seen.cost_usd),
        "startedMs": run.started_ms,
        "endedMs": run.ended_ms,
    }


def task_row(summary: TaskSummary) -> dict[str, Any]:
    """A task: the fields of its summary, and what a table shows beside them."""
    import msgspec

    from mcode_exec.batch.reports.lines import why_of
    from mcode_exec.durations import format_duration

    data: dict[str, Any] = msgspec.to_builtins(summary, builtin_types=(Decimal,))
    duration_ms = summary.duration_ms
    data["duration"] = "" if duration_ms is None else format_duration(duration_ms / 1000)
    data["why"] = why_of(summary)
    return data


def say_run(seen: SeenRun) -> str:
    """How a run stands, in one line."""
    from mcode_exec.batch.reports.lines import of_counts

    run = seen.run
    said = f"job run {run.id} of {run.job_name}: {run.state}, {of_counts(seen.counts)}"
    if run.state == "interrupted":
        said += f"; `mcode jobs run {run.spec_path} --run-id {run.id}` goes on with it"
    return said
