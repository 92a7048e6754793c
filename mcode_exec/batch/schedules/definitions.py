"""What a schedule runs: its spec, or its prompt as a job of one task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from mcode_exec.batch.plan import plan_of
from mcode_exec.batch.schedules.times import Times, checked_times, in_zone, local_zone, zone_of
from mcode_exec.batch.spec import MAX_PROMPT_BYTES, read_file, read_spec
from mcode_exec.errors import ConfigError, InvocationError
from mcode_exec.ids import new_schedule_id
from mcode_exec.records.job import CatchUp, JobSpec, JobTable, OnOverlap, Plan, ScheduleTable, TaskSpec
from mcode_exec.records.schedule import Schedule, WhenInterrupted


class Asked(Struct, frozen=True, kw_only=True):
    """What `schedule add` was told of the times; None: what the spec says, else the default."""

    cron: str | None = None
    timezone: str | None = None
    catch_up: CatchUp | None = None
    on_overlap: OnOverlap | None = None
    when_interrupted: WhenInterrupted = "leave"


def schedule_of(
    name: str, asked: Asked, env: Mapping[str, str], now_ms: int, **what: Any
) -> tuple[Schedule, Times]:
    """A new schedule, checked to its last template; `what`: the fields that say what it runs.

    Raises: InvocationError for everything that could not run.
    """
    spec_path: str | None = what.get("spec_path")
    spec = None if spec_path is None else read_spec(spec_path)
    table = None if spec is None else spec.schedule
    cron = asked.cron or (None if table is None else table.cron)
    if cron is None:
        needs = "it" if spec_path is None else f"{spec_path} has no [schedule], and it"
        raise InvocationError(f'{needs} needs --cron, such as --cron "0 3 * * 1-5".')
    timezone = asked.timezone or (None if table is None else table.timezone) or local_zone(env)
    times = checked_times(cron, timezone, now_ms)
    schedule = Schedule(
        id=new_schedule_id(),
        name=name,
        cron=cron,
        timezone=timezone,
        catch_up=asked.catch_up or _catch_up_of(table),
        on_overlap=asked.on_overlap or ("skip" if spec is None else spec.job.on_overlap),
        when_interrupted=asked.when_interrupted,
        cursor_ms=now_ms,
        next_ms=times.after(now_ms),
        created_ms=now_ms,
        updated_ms=now_ms,
        **what,
    )
    plan_for(schedule, now_ms)
    return schedule, times


def _catch_up_of(table: ScheduleTable | None) -> CatchUp:
    return "one" if table is None else table.catch_up


def plan_for(schedule: Schedule, due_ms: int) -> Plan:
    """Everything that the schedule runs at a due time, read anew.  Raises: InvocationError."""
    if schedule.spec_path is None:
        return plan_of(_spec_of_prompt(schedule, due_ms))
    spec = read_spec(schedule.spec_path)
    return plan_of(structs.replace(spec, job=structs.replace(spec.job, on_overlap=schedule.on_overlap)))


def _spec_of_prompt(schedule: Schedule, due_ms: int) -> JobSpec:
    task = TaskSpec(
        id=schedule.name,
        prompt=_prompt_of(schedule),
        place=f"schedule {schedule.name}",
        session=schedule.session,
        settings=schedule.settings,
    )
    facts = {"name": schedule.name, "due": due_at(schedule, due_ms), "timezone": schedule.timezone}
    return JobSpec(
        path=f"schedule {schedule.name}",
        job=JobTable(name=f"schedule/{schedule.name}", concurrency=1, on_overlap=schedule.on_overlap),
        vars={"schedule": facts},
        tasks=(task,),
    )


def _prompt_of(schedule: Schedule) -> str:
    path = schedule.prompt_file
    if path is None:
        return schedule.prompt or ""
    try:
        text = read_file(path, MAX_PROMPT_BYTES, "prompt").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvocationError(f"{path} is not UTF-8 (at byte {error.start}).") from error
    if not text.strip():
        raise InvocationError(f"{path} is empty.")
    return text


def job_run_id(schedule: Schedule, due_ms: int) -> str:
    """What the job run of a due time is called: the same however often it is begun."""
    from datetime import UTC, datetime

    stamp = datetime.fromtimestamp(due_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{schedule.name}-{schedule.id[-8:]}-{stamp}"


def due_at(schedule: Schedule, due_ms: int) -> str:
    """A due time in the schedule's zone, in UTC where this machine does not know that."""
    from datetime import UTC

    try:
        return in_zone(due_ms, zone_of(schedule.timezone))
    except ConfigError:
        return in_zone(due_ms, UTC)
