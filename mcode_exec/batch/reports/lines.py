"""How a job run is told in lines: one per task that ends, and what it all came to."""

from __future__ import annotations

from decimal import Decimal

from mcode_exec.durations import format_duration
from mcode_exec.plurals import counted
from mcode_exec.records.job import JobResult, TaskCounts, TaskSummary


def money(cost_usd: Decimal | None) -> str:
    """US dollars for people; a question mark where the sum is not known."""
    if cost_usd is None:
        return "? USD"
    return f"{cost_usd:.4f} USD" if 0 < cost_usd < Decimal("0.01") else f"{cost_usd:.2f} USD"


def of_task(summary: TaskSummary, ended: int, total: int) -> str:
    """A task that is over: `[3/40] plan succeeded in 12s, 0.02 USD`."""
    said = f"[{ended}/{total}] {summary.task_id} {status_word(summary)}"
    if summary.duration_ms is not None:
        said += f" in {format_duration(summary.duration_ms / 1000)}, {money(summary.cost_usd)}"
    if summary.attempt > 1:
        said += f", attempt {summary.attempt}"
    why = why_of(summary)
    return f"{said}: {why}" if why else said


def status_word(summary: TaskSummary) -> str:
    return summary.status.replace("_", " ")


def why_of(summary: TaskSummary) -> str:
    """Why a task did not succeed, or had no turn, in one line; empty where it succeeded."""
    text = summary.reason or (summary.error.message if summary.error is not None else "")
    return " ".join(text.split())


def of_counts(counts: TaskCounts) -> str:
    """`38 succeeded, 1 did not, 1 skipped`."""
    parts = [f"{counts.succeeded} succeeded"]
    if counts.unsuccessful:
        parts.append(f"{counts.unsuccessful} did not")
    if counts.skipped:
        parts.append(f"{counts.skipped} skipped")
    if counts.not_run:
        parts.append(f"{counts.not_run} not run")
    return ", ".join(parts)


def of_run(result: JobResult) -> str:
    """What a run came to, and how it goes on."""
    said = (
        f"job {result.job_name}: {counted(result.counts.total, 'task')}, {of_counts(result.counts)}"
        f" in {format_duration(result.duration_ms / 1000)}, {money(result.cost_usd)}"
    )
    if result.stopped_by is not None:
        said += f"; stopped: {result.stopped_by}"
    return said
