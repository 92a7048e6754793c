"""Rows of `schedules` and `schedule_runs`."""

from __future__ import annotations

from typing import Any

import msgspec

from mcode_exec.records.job import TaskSettings
from mcode_exec.records.schedule import DueRun, Schedule
from mcode_exec.store.schedule_tables import ScheduleRuns, Schedules
from mcode_exec.store.table import dicts, tuples

_SCHEDULE = tuple(getattr(Schedules, name) for name in Schedule.__struct_fields__)
_RUN = tuple(getattr(ScheduleRuns, name) for name in DueRun.__struct_fields__)
_OPEN = ("due", "running")
_encode = msgspec.json.Encoder(decimal_format="string").encode


def _schedule(row: dict[str, Any]) -> Schedule:
    row["settings"] = msgspec.json.decode(row["settings"], type=TaskSettings)
    row["on_failure"] = tuple(msgspec.json.decode(row["on_failure"], type=list[str]))
    row["trust_workspace"], row["is_paused"] = bool(row["trust_workspace"]), bool(row["is_paused"])
    return msgspec.convert(row, Schedule)


def _values(schedule: Schedule) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(schedule),
        "settings": _encode(schedule.settings).decode(),
        "on_failure": _encode(schedule.on_failure).decode(),
        "trust_workspace": int(schedule.trust_workspace),
        "is_paused": int(schedule.is_paused),
    }


def _run(row: dict[str, Any]) -> DueRun:
    return msgspec.convert(row, DueRun, strict=False)


def insert_schedule(schedule: Schedule) -> bool:
    """False if there is a schedule of that name."""
    query = Schedules.insert(**_values(schedule)).on_conflict_ignore()
    return bool(query.as_rowcount().execute())


def replace_schedule(schedule: Schedule) -> None:
    Schedules.update(**_values(schedule)).where(Schedules.id == schedule.id).execute()


def update_schedule(schedule_id: str, **values: Any) -> None:
    Schedules.update(**values).where(Schedules.id == schedule_id).execute()


def find_schedule(name: str) -> Schedule | None:
    rows = dicts(Schedules.select(*_SCHEDULE).where(Schedules.name == name))
    return _schedule(rows[0]) if rows else None


def find_schedule_by_id(schedule_id: str) -> Schedule | None:
    rows = dicts(Schedules.select(*_SCHEDULE).where(Schedules.id == schedule_id))
    return _schedule(rows[0]) if rows else None


def all_schedules() -> list[Schedule]:
    """By name."""
    return [_schedule(row) for row in dicts(Schedules.select(*_SCHEDULE).order_by(Schedules.name))]


def remove_schedule(schedule_id: str) -> int:
    """Remove a schedule with what is known of its due times; how many rows those were."""
    Schedules.delete().where(Schedules.id == schedule_id).execute()
    return int(ScheduleRuns.delete().where(ScheduleRuns.schedule_id == schedule_id).execute())


def put_run(run: DueRun) -> bool:
    """Insert the row of a due time; one that was missed before gives way.  False where it has been run, or is to be."""
    where = (ScheduleRuns.schedule_id == run.schedule_id) & (ScheduleRuns.due_ms == run.due_ms)
    ScheduleRuns.delete().where(where & (ScheduleRuns.state == "missed")).execute()
    values = {**msgspec.structs.asdict(run), "cost_usd": _amount(run)}
    return bool(ScheduleRuns.insert(**values).on_conflict_ignore().as_rowcount().execute())


def _amount(run: DueRun) -> str | None:
    return None if run.cost_usd is None else format(run.cost_usd, "f")


def update_run(run: DueRun, **values: Any) -> bool:
    """Change a row that is as `run` has it: state, owner and failure command; False if another process was quicker."""
    query = ScheduleRuns.update(**values).where(
        (ScheduleRuns.schedule_id == run.schedule_id)
        & (ScheduleRuns.due_ms == run.due_ms)
        & (ScheduleRuns.state == run.state)
        & _same(ScheduleRuns.owner, run.owner)
        & _same(ScheduleRuns.hook, run.hook)
    )
    return bool(query.execute())


def _same(field: Any, value: str | None) -> Any:
    return field.is_null() if value is None else field == value


def find_run(schedule_id: str, due_ms: int) -> DueRun | None:
    query = ScheduleRuns.select(*_RUN).where(
        (ScheduleRuns.schedule_id == schedule_id) & (ScheduleRuns.due_ms == due_ms)
    )
    return next((_run(row) for row in dicts(query)), None)


def open_runs(schedule_id: str | None = None) -> list[DueRun]:
    """Due times that are not over, of one schedule or of all, the oldest first."""
    query = ScheduleRuns.select(*_RUN).where(ScheduleRuns.state.in_(_OPEN))
    if schedule_id is not None:
        query = query.where(ScheduleRuns.schedule_id == schedule_id)
    return [_run(row) for row in dicts(query.order_by(ScheduleRuns.due_ms, ScheduleRuns.schedule_id))]


def pending_hooks() -> list[DueRun]:
    """Runs that did not succeed and whose failure command has not ended."""
    query = ScheduleRuns.select(*_RUN).where(ScheduleRuns.hook == "pending").order_by(ScheduleRuns.due_ms)
    return [_run(row) for row in dicts(query)]


def newest_runs(schedule_id: str, limit: int, before_ms: int | None = None) -> list[DueRun]:
    query = ScheduleRuns.select(*_RUN).where(ScheduleRuns.schedule_id == schedule_id)
    if before_ms is not None:
        query = query.where(ScheduleRuns.due_ms < before_ms)
    return [_run(row) for row in dicts(query.order_by(ScheduleRuns.due_ms.desc()).limit(limit))]


def last_run(schedule_id: str) -> DueRun | None:
    """The newest due time that was to be run."""
    query = (
        ScheduleRuns.select(*_RUN)
        .where((ScheduleRuns.schedule_id == schedule_id) & ScheduleRuns.state.not_in(("missed", "due")))
        .order_by(ScheduleRuns.due_ms.desc())
        .limit(1)
    )
    return next((_run(row) for row in dicts(query)), None)


def forget_runs(schedule_id: str, kept: int) -> None:
    """Remove rows beyond the newest `kept`; not what is still to be done."""
    query = (
        ScheduleRuns.select(ScheduleRuns.due_ms)
        .where(ScheduleRuns.schedule_id == schedule_id)
        .order_by(ScheduleRuns.due_ms.desc())
        .offset(kept)
        .limit(1)
    )
    for (due_ms,) in tuples(query):
        ScheduleRuns.delete().where(
            (ScheduleRuns.schedule_id == schedule_id)
            & (ScheduleRuns.due_ms <= due_ms)
            & ScheduleRuns.state.not_in(_OPEN)
            & (ScheduleRuns.hook.is_null() | (ScheduleRuns.hook != "pending"))
        ).execute()
