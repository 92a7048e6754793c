"""Looking at job runs, and asking one to end: what the listing commands read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct, structs

from mcode_exec.batch.outcome import counts_of, sum_of, summary_of
from mcode_exec.batch.reports.files import ReportFile
from mcode_exec.errors import BusyError, SessionError
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.runtime import Runtime
from mcode_exec.records.job import RunRow, TaskCounts, TaskRow, TaskSummary
from mcode_exec.store import job_rows
from mcode_exec.store.database import Store

_PAGE = 200
_LOOK_S = 0.1
_CANCEL_S = 30.0  # how long a run that is asked to end is waited for


class SeenRun(Struct, frozen=True, kw_only=True):
    """A run, what it has come to so far, and its tasks."""

    run: RunRow
    counts: TaskCounts
    cost_usd: str | None
    tasks: tuple[TaskSummary, ...] = ()


async def list_runs(data_dir: str | None, env: Mapping[str, str], limit: int) -> list[SeenRun]:
    """The newest runs.  Raises: StoreFailedError, StoreBusyError."""
    async with opened(data_dir, env, reads_only=True) as runtime:
        runs = await runtime.store.read(lambda: job_rows.page_runs(None, limit))
        return [await _seen(runtime, run) for run in runs]


async def _seen(runtime: Runtime, run: RunRow) -> SeenRun:
    states, costs = await runtime.store.read(lambda: (job_rows.count_states(run.id), job_rows.costs(run.id)))
    cost = sum_of(costs)
    return SeenRun(
        run=_as_it_is(runtime, run),
        counts=counts_of(states),
        cost_usd=None if cost is None else format(cost, "f"),
    )


def _as_it_is(runtime: Runtime, run: RunRow) -> RunRow:
    """A run whose process has died is interrupted, whatever the store still says."""
    if run.state != "running" or (run.owner is not None and runtime.is_alive(run.owner)):
        return run
    return structs.replace(run, state="interrupted")


async def find_run(store: Store, named: str) -> RunRow:
    """The run of that id, or the only one whose id begins so.  Raises: SessionError."""
    exact = await store.read(lambda: job_rows.find_run(named))
    if exact is not None:
        return exact
    found = await store.read(lambda: job_rows.runs_with_prefix(named, 2))
    if len(found) == 1:
        return found[0]
    if found:
        raise SessionError(f"several job runs begin with {named!r}", code="job_run_ambiguous")
    raise SessionError(
        f"there is no job run {named!r}; `mcode jobs list` shows them", code="job_run_not_found"
    )


async def look_at_run(data_dir: str | None, env: Mapping[str, str], named: str) -> SeenRun:
    """A run with its tasks.  Raises: SessionError, StoreFailedError, StoreBusyError."""
    async with opened(data_dir, env, reads_only=True) as runtime:
        run = await find_run(runtime.store, named)
        seen = await _seen(runtime, run)
        is_over = seen.run.state != "running"
        tasks: list[TaskSummary] = []
        after = -1
        while page := await runtime.store.read(partial(job_rows.page_tasks, run.id, after, _PAGE)):
            tasks += [summary_of(row, record, is_run_over=is_over) for row, record in page]
            after = page[-1][0].position
        return structs.replace(seen, tasks=tuple(tasks))


def tasks_page(run_id: str, after: int) -> list[tuple[TaskRow, bytes]]:
    """Some tasks of a run in their places, those behind `after`, with their records; inside a read."""
    return job_rows.page_tasks(run_id, after, _PAGE)


async def emit_records(
    data_dir: str | None,
    env: Mapping[str, str],
    named: str,
    task_id: str | None,
    output: str | None,
    emit: Callable[[bytes], None],
) -> int:
    """Give the records of a run out.  Raises: SessionError, OutputWriteFailedError, StoreFailedError."""
    async with opened(data_dir, env, reads_only=True) as runtime:
        run = await find_run(runtime.store, named)
        file = None if output is None else ReportFile.begin("-o", output, runtime.data)
        count = sequence = 0
        try:
            while page := await runtime.store.read(partial(job_rows.ended_behind, run.id, sequence, _PAGE)):
                for row, record in page:
                    sequence = row.ended_sequence or sequence
                    if task_id is not None and row.task_id != task_id:
                        continue
                    count += 1
                    if file is None:
                        emit(record + b"\n")
                    else:
                        file.append(record + b"\n")
            if file is not None:
                file.publish()
        finally:
            if file is not None:
                file.close()
        if task_id is not None and not count:
            raise SessionError(
                f"job run {run.id} has no task {task_id!r} that is over", code="job_task_not_found"
            )
        return 0


async def cancel_run(data_dir: str | None, env: Mapping[str, str], named: str, *, waits: bool) -> str:
    """Ask a run to end; what is to be said of it.

    Raises: SessionError; BusyError where it has not ended in time.
    """
    async with opened(data_dir, env, reads_only=False) as runtime:
        run = await find_run(runtime.store, named)
        if _as_it_is(runtime, run).state != "running":
            return f"job run {run.id} does not run; nothing was changed"
        now_ms = runtime.clock.now_ms()
        await runtime.store.write(lambda: job_rows.ask_cancel(run.id, now_ms))
        if not waits:
            return f"job run {run.id} is asked to end"
        until_s = runtime.clock.monotonic_s() + _CANCEL_S
        while runtime.clock.monotonic_s() < until_s:
            now = await runtime.store.read(lambda: job_rows.find_run(run.id))
            if now is None or _as_it_is(runtime, now).state != "running":
                return f"job run {run.id} has ended"
            await asyncio.sleep(_LOOK_S)
        raise BusyError(f"job run {run.id} has not ended within {_CANCEL_S:g} s; it is still asked to")
