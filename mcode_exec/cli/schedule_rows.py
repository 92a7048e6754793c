"""Schedules and their due times as rows: what the commands show."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mcode_exec.durations import format_duration
from mcode_exec.plurals import counted

if TYPE_CHECKING:
    from mcode_exec.records.schedule import ScheduleRowRecord, ScheduleRunRecord

LIST_COLUMNS = {
    "name": "NAME",
    "state": "STATE",
    "cron": "CRON",
    "timezone": "ZONE",
    "nextAt": "NEXT",
    "lastDueAt": "LAST",
    "outcome": "OUTCOME",
    "what": "RUNS",
}
HISTORY_COLUMNS = {
    "dueAt": "DUE",
    "status": "STATUS",
    "exitCode": "EXIT",
    "duration": "TIME",
    "attempt": "ATTEMPT",
    "costUsd": "USD",
    "jobRunId": "RUN",
    "why": "WHY",
}
NEXT_COLUMNS = {"schedule": "NAME", "dueAt": "DUE"}
NEXT_FIELDS = ("schedule", "dueMs", "dueAt")


def list_row(record: ScheduleRowRecord) -> dict[str, Any]:
    """A schedule: its fields, and what a table shows beside them."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(record)
    data["outcome"] = outcome_of(record.last_status, record.last_exit_code)
    data["what"] = record.spec_path or record.prompt_file or " ".join((record.prompt or "").split())
    return data


def history_row(record: ScheduleRunRecord) -> dict[str, Any]:
    """A due time: its fields, and what a table shows beside them."""
    import msgspec

    data: dict[str, Any] = msgspec.to_builtins(record, builtin_types=(Decimal,))
    begun, ended = record.started_at_ms, record.ended_at_ms
    took_ms = None if begun is None or ended is None else max(0, ended - begun)
    data["duration"] = "" if took_ms is None else format_duration(took_ms / 1000)
    why = [record.error.message] if record.error is not None else []
    if record.status == "missed" and record.count != 1:
        why.insert(0, "too many to count" if record.count is None else counted(record.count, "due time"))
    data["why"] = "; ".join(why)
    return data


def outcome_of(status: str | None, exit_code: int | None) -> str:
    """A status with the exit code that says more."""
    if status is None:
        return ""
    return f"{status} ({exit_code})" if exit_code else status


def say_run(record: ScheduleRunRecord) -> str:
    """A due time that is over, in one line."""
    said = f"{record.schedule}: due {record.due_at}: {outcome_of(record.status, record.exit_code)}"
    if record.status == "missed" and record.count != 1:
        said += ", with others" if record.count is None else f", {record.count} in a row"
    if record.error is not None and record.error.message:
        said += f": {record.error.message}"
    return said
