"""How a job run begins: which run it is, what becomes of another one under way, which tasks are wanted."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs

from mcode_exec.abort import AbortScope
from mcode_exec.batch.ledger import Begun, Ledger, Overlap
from mcode_exec.batch.outcome import abort_code
from mcode_exec.errors import InvocationError
from mcode_exec.ids import new_job_run_id
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.job import JobResult, JobTable, Plan, TaskRow
from mcode_exec.store import job_rows

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

LOOK_S = 0.25  # between two looks at what other processes have changed


class RunOptions(Struct, frozen=True, kw_only=True):
    """How a spec is run."""

    #: None: a new run
    run_id: str | None = None
    #: None: the spec's
    concurrency: int | None = None
    retry_failed: bool = False
    #: ids of tasks, or of entries; with what they need that is not over.  Empty: all
    only: tuple[str, ...] = ()
    fail_fast: bool = False
    joins: bool = False


class Host(Protocol):
    """Who is told what happens."""

    async def began(self, run_id: str, total: int, ended: int) -> None: ...
    def task_started(self, task_id: str, attempt: int) -> None: ...
    def task_does(self, task_id: str, step: int, doing: str) -> None: ...
    def task_stopped(self, task_id: str) -> None:
        """An attempt is over, whether the task is or not."""
        ...

    async def task_ended(self, row: TaskRow, record: bytes) -> None:
        """A task is over, in this run or before it; in the order in which they ended."""
        ...

    def say(self, line: str) -> None: ...
    def look(self) -> None:
        """Called several times a second while the run goes on."""
        ...


async def begin(
    runtime: Runtime,
    ledger: Ledger,
    plan: Plan,
    invocation: Invocation,
    options: RunOptions,
    abort: AbortScope,
    host: Host,
) -> Begun | JobResult:
    """The run taken up, or the result of one that is left to another."""
    job, run_id = plan.spec.job, options.run_id or new_job_run_id()
    if options.joins and options.run_id is None:
        raise InvocationError("--join needs --run-id: the run that it helps.")
    said: str | None = None
    while True:
        begun = await ledger.begin(
            plan,
            run_id,
            workspace_of(invocation),
            joins=options.joins,
            retry_failed=options.retry_failed,
            looks=not options.joins,
        )
        if isinstance(begun, Begun):
            return begun
        if job.on_overlap == "skip":
            host.say(
                f"run {begun.run_id} of job {job.name} is under way: nothing was run (on_overlap = skip)"
            )
            return _skipped(runtime, job, begun)
        if said != begun.run_id:
            said = begun.run_id
            if job.on_overlap == "replace":
                host.say(f"run {begun.run_id} of job {job.name} is asked to end (on_overlap = replace)")
                other = begun.run_id
                await runtime.store.write(partial(job_rows.ask_cancel, other, runtime.clock.now_ms()))
            else:
                host.say(f"waiting for run {begun.run_id} of job {job.name} (on_overlap = wait)")
        await asyncio.sleep(LOOK_S)
        if abort.is_tripped:
            return structs.replace(
                _skipped(runtime, job, begun), status="cancelled", exit_code=abort_code(abort)
            )


def _skipped(runtime: Runtime, job: JobTable, overlap: Overlap) -> JobResult:
    return JobResult(
        run_id=overlap.run_id,
        job_name=job.name,
        status="skipped",
        exit_code=0,
        started_at_ms=runtime.clock.now_ms(),
        stopped_by=f"run {overlap.run_id} is under way",
    )


def workspace_of(invocation: Invocation) -> str:
    return os.path.realpath(invocation.cwd or os.getcwd())


def wanted(plan: Plan, only: tuple[str, ...]) -> list[bool]:
    """Which tasks are to be over at the end: those of `--only`, and what they need.  Raises: InvocationError."""
    if not only:
        return [True] * len(plan.tasks)
    entries: set[str] = set()
    ids: set[str] = set()
    by_entry = {spec.id: spec for spec in plan.spec.tasks}
    by_id = {task.id: task for task in plan.tasks}
    left: list[str] = []
    for one in only:
        if one in by_entry:
            entries.add(one)
            left += by_entry[one].needs
        elif one in by_id:
            ids.add(one)
            left += by_id[one].spec.needs
        else:
            import difflib

            near = difflib.get_close_matches(one, [*by_entry, *by_id], n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise InvocationError(f"--only: {plan.spec.path} has no task {one!r}{hint}")
    while left:
        entry = left.pop()
        if entry not in entries:
            entries.add(entry)
            left += by_entry[entry].needs
    return [task.spec.id in entries or task.id in ids for task in plan.tasks]
