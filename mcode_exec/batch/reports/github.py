"""What GitHub Actions shows of a job run: annotations on stdout, and the summary of its page.

Nothing that a task or a model says can be a command of the runner: in an
annotation `%`, line ends and, in properties, `:` and `,` are escaped as its
toolkit does it; the summary is Markdown whose every cell is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from mcode_exec.batch.reports.lines import money, of_run, status_word, why_of
from mcode_exec.durations import format_duration
from mcode_exec.records.job import UNRUN, JobResult, TaskSummary

#: GitHub shows ten errors and ten warnings of a step
MAX_ANNOTATIONS = 10
MAX_SUMMARY_BYTES = 512 * 1024  # of 1 MiB that all of a step may write
_MAX_CELL = 300  # characters


def is_there(env: Mapping[str, str]) -> bool:
    return env.get("GITHUB_ACTIONS") == "true"


def annotation(job_name: str, summary: TaskSummary) -> bytes:
    """A task that did not succeed."""
    title = _property(f"{job_name}: {summary.task_id}")
    said = why_of(summary) or status_word(summary)
    return f"::error title={title}::{_data(said)}\n".encode()


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def page(result: JobResult, tasks: Iterable[TaskSummary]) -> bytes:
    """The summary: what the run came to, and a table of its tasks, those that did not succeed first."""
    parts = [
        f"### {_cell(result.job_name)}\n\n{_cell(of_run(result))}\n\n",
        "| task | status | attempt | time | cost | |\n| --- | --- | --- | --- | --- | --- |\n",
    ]
    size = 0
    for summary in tasks:
        row = _row(summary)
        size += len(row.encode())
        if size > MAX_SUMMARY_BYTES:
            parts.append("\nThe rest is left out; `mcode jobs status` shows it.\n")
            break
        parts.append(row)
    return "".join(parts).encode()


def _row(summary: TaskSummary) -> str:
    duration_ms = summary.duration_ms
    cells = (
        summary.task_id,
        status_word(summary),
        "" if summary.status in UNRUN else str(summary.attempt),
        "" if duration_ms is None else format_duration(duration_ms / 1000),
        "" if summary.status in UNRUN else money(summary.cost_usd),
        why_of(summary),
    )
    return "| " + " | ".join(map(_cell, cells)) + " |\n"


#: characters that mean something in Markdown; source: CommonMark 0.31 §2.4
_MARKS = str.maketrans({mark: "\\" + mark for mark in "\\`*_{}[]()#+-.!|~$@"})


def _cell(text: str) -> str:
    flat = " ".join(text.split())
    flat = flat if len(flat) <= _MAX_CELL else flat[: _MAX_CELL - 1] + "…"
    return escape(flat, quote=False).translate(_MARKS)
