"""Looking at schedules and changing them: what `add`, `list`, `show`, `next`, `history`, `pause` and `remove` do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice

from msgspec import Struct, structs

from mcode_exec.batch.schedules.definitions import due_at
from mcode_exec.batch.schedules.times import Times, zone_of
from mcode_exec.errors import BusyError, InvocationError, SessionError
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.runtime import Runtime
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.schedule import (
    DueRun,
    ErrorOfRun,
    Schedule,
    ScheduleRowRecord,
    ScheduleRunRecord,
)
from mcode_exec.store import schedule_rows
from mcode_exec.store.database import Store


class Seen(Struct, frozen=True, kw_only=True):
    """A schedule, and the newest due time of it that was to be run."""

    schedule: Schedule
    last: DueRun | None


async def add(data_dir: str | None, env: Mapping[str, str], schedule: Schedule, *, replaces: bool) -> bool:
    """Keep a schedule; whether it took the place of another of its name, whose history it goes on with.

    Raises: InvocationError where the name is taken and `replaces` is false.
    """
    runtime = await Runtime.open(Invocation(run_id="", data_dir=data_dir), env)
    try:

        def work() -> bool:
            earlier = schedule_rows.find_schedule(schedule.name)
            if earlier is None:
                schedule_rows.insert_schedule(schedule)
                return False
            if not replaces:
                raise InvocationError(
                    f"there is a schedule {schedule.name} already; --replace puts this one in its place"
                )
            same = structs.replace(schedule, id=earlier.id, created_ms=earlier.created_ms)
            schedule_rows.replace_schedule(same)
            return True

        return await runtime.store.write(work)
    finally:
        await runtime.close()


async def list_schedules(data_dir: str | None, env: Mapping[str, str]) -> list[Seen]:
    """Every schedule, by name."""
    async with opened(data_dir, env, reads_only=True) as runtime:

        def read() -> list[Seen]:
            return [
                Seen(schedule=one, last=schedule_rows.last_run(one.id))
                for one in schedule_rows.all_schedules()
            ]

        return [_as_it_is(runtime, one) for one in await runtime.store.read(read)]


async def look_at(data_dir: str | None, env: Mapping[str, str], name: str) -> Seen:
    """Raises: SessionError if there is no such schedule."""
    async with opened(data_dir, env, reads_only=True) as runtime:
        schedule = await find(runtime.store, name)
        last = await runtime.store.read(lambda: schedule_rows.last_run(schedule.id))
        return _as_it_is(runtime, Seen(schedule=schedule, last=last))


async def history(
    data_dir: str | None, env: Mapping[str, str], name: str, limit: int, before_ms: int | None = None
) -> tuple[Schedule, list[DueRun]]:
    """The newest due times of a schedule.  Raises: SessionError."""
    async with opened(data_dir, env, reads_only=True) as runtime:
        schedule = await find(runtime.store, name)
        runs = await runtime.store.read(lambda: schedule_rows.newest_runs(schedule.id, limit, before_ms))
        return schedule, [_run_as_it_is(runtime, run) for run in runs]


async def next_times(
    data_dir: str | None, env: Mapping[str, str], name: str | None, count: int, now_ms: int
) -> list[tuple[Schedule, int]]:
    """The coming due times of a schedule, or of all that are not paused, the earliest first, `count` of each.

    Raises: SessionError; ConfigError for a zone that this machine does not know.
    """
    async with opened(data_dir, env, reads_only=True) as runtime:
        if name is None:
            found = await runtime.store.read(schedule_rows.all_schedules)
            schedules = [one for one in found if not one.is_paused and one.problem is None]
        else:
            schedules = [await find(runtime.store, name)]
    coming = [
        (one, due_ms)
        for one in schedules
        for due_ms in islice(Times(one.cron, zone_of(one.timezone)).each_after(now_ms), count)
    ]
    return sorted(coming, key=lambda pair: (pair[1], pair[0].name))


async def set_paused(
    data_dir: str | None, env: Mapping[str, str], name: str, *, is_paused: bool, now_ms: int
) -> bool:
    """Pause a schedule, or let it go on: what was due meanwhile is not run.  False if it was so already."""
    async with opened(data_dir, env) as runtime:
        await find(runtime.store, name)

        def work() -> bool:
            schedule = schedule_rows.find_schedule(name)
            if schedule is None or schedule.is_paused == is_paused:
                return False
            if is_paused:
                schedule_rows.update_schedule(schedule.id, is_paused=1, updated_ms=now_ms)
                return True
            times = Times(schedule.cron, zone_of(schedule.timezone))
            schedule_rows.update_schedule(
                schedule.id,
                is_paused=0,
                updated_ms=now_ms,
                cursor_ms=now_ms,
                next_ms=times.after(now_ms),
                problem=None,
            )
            return True

        return await runtime.store.write(work)


async def remove(data_dir: str | None, env: Mapping[str, str], name: str) -> int:
    """Remove a schedule and its history; how many due times that had.

    Raises: SessionError; BusyError while it runs.
    """
    async with opened(data_dir, env) as runtime:
        await find(runtime.store, name)

        def work() -> int:
            schedule = schedule_rows.find_schedule(name)
            if schedule is None:
                return 0
            for run in schedule_rows.open_runs(schedule.id):
                if run.state == "running" and run.owner is not None and runtime.is_alive(run.owner):
                    raise BusyError(
                        f"schedule {name} is running; wait, or end it with `mcode jobs cancel {run.job_run_id}`",
                        code="schedule_busy",
                    )
            return schedule_rows.remove_schedule(schedule.id)

        return await runtime.store.write(work)


async def find(store: Store, name: str) -> Schedule:
    """Raises: SessionError."""
    found = await store.read(partial(schedule_rows.find_schedule, name))
    if found is not None:
        return found
    from difflib import get_close_matches

    names = [one.name for one in await store.read(schedule_rows.all_schedules)]
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else "; `mcode schedule list` shows them"
    raise SessionError(f"there is no schedule {name}{hint}", code="schedule_not_found")


def _run_as_it_is(runtime: Runtime, run: DueRun) -> DueRun:
    """A run whose process has died is interrupted, whatever the store still says."""
    if run.state != "running" or (run.owner is not None and runtime.is_alive(run.owner)):
        return run
    return structs.replace(run, state="interrupted", error="its process died; the next run-due settles it")


def _as_it_is(runtime: Runtime, seen: Seen) -> Seen:
    return seen if seen.last is None else structs.replace(seen, last=_run_as_it_is(runtime, seen.last))


def record_of(schedule: Schedule, run: DueRun) -> ScheduleRunRecord:
    """A due time as programs see it."""
    has_error = run.error is not None or run.error_code is not None
    return ScheduleRunRecord(
        schedule=schedule.name,
        due_ms=run.due_ms,
        due_at=due_at(schedule, run.due_ms),
        status=run.state,
        exit_code=run.exit_code,
        attempt=run.attempt,
        job_run_id=run.job_run_id,
        session_id=run.session_id,
        started_at_ms=run.started_ms,
        ended_at_ms=run.ended_ms,
        cost_usd=run.cost_usd,
        error=ErrorOfRun(code=run.error_code, message=run.error or "") if has_error else None,
        until_ms=run.until_ms if run.state == "missed" else None,
        count=run.count,
        hook=run.hook,
    )


def row_of(seen: Seen) -> ScheduleRowRecord:
    """A schedule as programs see it."""
    one, last = seen.schedule, seen.last
    next_ms = None if one.is_paused else one.next_ms
    return ScheduleRowRecord(
        name=one.name,
        state="paused" if one.is_paused else "broken" if one.problem is not None else "active",
        cron=one.cron,
        timezone=one.timezone,
        next_ms=next_ms,
        next_at=None if next_ms is None else due_at(one, next_ms),
        last_due_ms=None if last is None else last.due_ms,
        last_due_at=None if last is None else due_at(one, last.due_ms),
        last_status=None if last is None else last.state,
        last_exit_code=None if last is None else last.exit_code,
        last_error=None if last is None else last.error,
        catch_up=one.catch_up,
        on_overlap=one.on_overlap,
        when_interrupted=one.when_interrupted,
        workspace=one.workspace,
        spec_path=one.spec_path,
        prompt=one.prompt,
        prompt_file=one.prompt_file,
        session=one.session,
        on_failure=one.on_failure,
        problem=one.problem,
    )
