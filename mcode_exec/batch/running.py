"""One job run in this process: tasks begin as others end, each one turn after another, until nothing is left.

The store says what is over; this process only adds to it.  Any other process may
take the run up again from there, and with `--join` several work on it at once.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from mcode_exec.abort import AbortReason, AbortScope
from mcode_exec.batch.attempts import Attempts
from mcode_exec.batch.beginning import LOOK_S, Host, RunOptions, begin, wanted, workspace_of
from mcode_exec.batch.ledger import Begun, Ledger
from mcode_exec.batch.outcome import (
    Stop,
    abort_code,
    counts_of,
    exit_code_of,
    failures_of,
    sum_of,
)
from mcode_exec.batch.readiness import Readiness
from mcode_exec.durations import format_duration
from mcode_exec.errors import InvocationError, McodeError, SessionError
from mcode_exec.faults import fault
from mcode_exec.ids import new_turn_id
from mcode_exec.output.sink import Sink
from mcode_exec.plurals import counted
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.job import (
    OPEN,
    JobResult,
    Plan,
    PlannedTask,
    RunRow,
    RunState,
    TaskRow,
    TaskState,
)
from mcode_exec.records.result import Result
from mcode_exec.store import job_rows

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_PAGE = 200
#: exit codes after which no other task could succeed: the provider refuses the key; the disk is full
_FATAL = {77: "the provider refused key, permission or credit", 74: "storage failed"}
#: exit codes of attempts that another one would end with too: invocation, configuration, and those above
_NOT_AGAIN = (2, 3, *_FATAL)


async def run_job(
    runtime: Runtime,
    plan: Plan,
    invocation: Invocation,
    options: RunOptions,
    sink: Sink,
    abort: AbortScope,
    host: Host,
) -> JobResult:
    """Run a plan to its end; `invocation`: what the tasks take over from the command line.

    Raises: InvocationError, BusyError, SessionError before any task has begun; StoreFailedError, StoreBusyError.
    """
    ledger = Ledger(runtime.store, runtime.owner, runtime.clock)
    begun = await begin(runtime, ledger, plan, invocation, options, abort, host)
    if isinstance(begun, JobResult):
        return begun
    return await _JobRun(runtime, ledger, plan, invocation, options, sink, abort, host, begun).run()


class _JobRun:
    """One run, and what of it is under way here."""

    def __init__(
        self,
        runtime: Runtime,
        ledger: Ledger,
        plan: Plan,
        invocation: Invocation,
        options: RunOptions,
        sink: Sink,
        abort: AbortScope,
        host: Host,
        begun: Begun,
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._ledger = ledger
        self._plan = plan
        self._options = options
        self._sink = sink
        self._abort = abort
        #: of the turns of this run: what ends the run ends them
        self._scope = abort
        self._host = host
        self._run_id = begun.run_id
        self._leads = begun.leads
        self._started_ms = begun.started_ms
        self._started_s = runtime.clock.monotonic_s()
        self._concurrency = options.concurrency or plan.spec.job.concurrency
        workspace = workspace_of(invocation)
        self._attempts = Attempts(
            runtime, plan, begun.run_id, structs.replace(invocation, cwd=workspace), sink, host.task_does
        )
        self._wanted = wanted(plan, options.only)
        is_over = [state not in OPEN for state in begun.states]
        self._ended_before = sum(1 for over, one in zip(is_over, self._wanted, strict=True) if over and one)
        self._readiness = Readiness(
            plan, [over or not one for over, one in zip(is_over, self._wanted, strict=True)], workspace
        )
        #: attempts that each task had before this process took the run up
        self._attempts_before = begun.attempts
        self._running: dict[asyncio.Task[None], PlannedTask] = {}
        #: tasks that other processes have taken
        self._elsewhere: dict[int, PlannedTask] = {}
        self._told = 0
        self._unsuccessful = 0
        self._stop: Stop | None = None
        self._error: McodeError | None = None
        self._version: int | None = None
        self._looks = 0

    async def run(self) -> JobResult:
        with self._abort.inner() as self._scope:
            return await self._run()

    async def _run(self) -> JobResult:
        job = self._plan.spec.job
        spent = await self._store.read(lambda: job_rows.costs(self._run_id))
        self._runtime.share(
            max_cost_usd=job.max_cost,
            spent_usd=sum((Decimal(cost) for cost in spent if cost is not None), Decimal(0)),
            source="[job] max_cost",
        )
        timer = self._start_timer(job.timeout)
        try:
            await self._tell()
            await self._host.began(self._run_id, sum(self._wanted), self._ended_before)
            while True:
                self._begin_tasks()
                if not self._running and not self._elsewhere:
                    break
                if self._running:
                    await asyncio.wait(self._running, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await asyncio.sleep(LOOK_S)
                self._collect()
                await self._look()
                await self._tell()
                self._host.look()
        finally:
            if timer is not None:
                timer.cancel()
            for task in self._running:
                task.cancel()
        if self._error is not None:
            raise self._error
        return await self._finish()

    # what begins

    def _begin_tasks(self) -> None:
        while len(self._running) < self._concurrency and not self._is_ending:
            task = self._readiness.take()
            if task is None:
                return
            self._running[asyncio.ensure_future(self._attempt(task))] = task

    @property
    def _is_ending(self) -> bool:
        """Whether no further task is to begin."""
        return self._stop is not None or self._abort.is_tripped or self._error is not None

    async def _attempt(self, task: PlannedTask) -> None:
        """One attempt of a task, or its end without one."""
        run_id, position = self._run_id, task.position
        values = await self._attempts.values(task)
        try:
            reason = self._attempts.why_not(task, values)
        except InvocationError as error:
            reason = error.message
        if reason is not None:
            if await self._ledger.skip(run_id, position, task.id, reason):
                self._readiness.over(task, held=True)
            else:
                self._leave_to_others(task)
            return
        turn_id = new_turn_id()
        fault("before-task-claim")
        if not await self._ledger.claim(run_id, position, turn_id):
            self._leave_to_others(task)
            return
        fault("after-task-claim")
        row = await self._store.read(lambda: job_rows.find_task(run_id, position))
        attempt = row.attempt if row is not None else 1
        self._host.task_started(task.id, attempt)
        try:
            ran = await self._attempts.run(task, values, turn_id, attempt, self._scope)
        finally:
            self._host.task_stopped(task.id)
        result = await self._attempts.tidied(task, ran.result)
        if self._is_worth_another(task, result, attempt) and not self._is_ending:
            if await self._ledger.again(run_id, position, result):
                why = result.error.message if result.error is not None else result.status
                self._host.say(f"{task.id}: attempt {attempt} failed, and is followed by another: {why}")
                self._readiness.put_back(task)
            else:
                self._leave_to_others(task)
            return
        ended = await self._ledger.end(run_id, position, result, ran.mask)
        if ended is None:
            self._leave_to_others(task)
            return
        self._readiness.over(task, held=True)
        self._judge(task, result)

    def _leave_to_others(self, task: PlannedTask) -> None:
        self._readiness.leave(task)
        self._elsewhere[task.position] = task

    def _is_worth_another(self, task: PlannedTask, result: Result, attempt: int) -> bool:
        """Whether the spec wants another attempt, and it could end otherwise."""
        if attempt - self._attempts_before[task.position] > (task.settings.retries or 0):
            return False
        if result.status == "timeout":
            return True
        return result.status == "failed" and result.exit_code not in _NOT_AGAIN

    def _judge(self, task: PlannedTask, result: Result) -> None:
        """What the end of a task means for the others."""
        if result.exit_code == 0:
            return
        self._unsuccessful += 1
        job = self._plan.spec.job
        if result.exit_code in _FATAL:
            self._stop_with(Stop(why=f"{task.id}: {_FATAL[result.exit_code]}", exit_code=result.exit_code))
        elif self._runtime.budget is not None and self._runtime.budget.is_spent:
            self._stop_with(
                Stop(why=f"[job] max_cost of {self._runtime.budget.max_usd:f} USD is spent", exit_code=7)
            )
        elif self._options.fail_fast:
            self._stop_with(Stop(why=f"{task.id} did not succeed (--fail-fast)", exit_code=4))
        elif job.max_failures is not None and self._unsuccessful >= job.max_failures:
            self._stop_with(
                Stop(why=f"{counted(self._unsuccessful, 'task')} did not succeed (max_failures)", exit_code=4)
            )

    # what ends the run

    def _stop_with(self, stop: Stop, *, cuts: AbortReason | None = None) -> None:
        """Begin nothing more; `cuts`: and end what runs."""
        if self._stop is None:
            self._stop = stop
            self._host.say(f"no further task begins: {stop.why}")
        if cuts is not None:
            self._scope.trip(cuts)

    def _start_timer(self, timeout_s: float | None) -> asyncio.TimerHandle | None:
        if timeout_s is None:
            return None
        stop = Stop(why=f"[job] timeout of {format_duration(timeout_s)} is over", exit_code=6)
        return asyncio.get_running_loop().call_later(
            timeout_s, lambda: self._stop_with(stop, cuts="deadline")
        )

    def _collect(self) -> None:
        for done in [task for task in self._running if task.done()]:
            task = self._running.pop(done)
            error = done.exception()
            if error is None:
                continue
            if not isinstance(error, McodeError):
                raise error
            # the store failed us: what runs comes to its end, and the run with it
            self._error = self._error or error
            self._readiness.leave(task)

    async def _look(self) -> None:
        """What other processes, and those who stop us, have done meanwhile."""
        version, looks = await self._store.data_version(), self._runtime.again.looks
        if version == self._version and looks == self._looks:
            return
        if looks != self._looks and self._elsewhere:
            await self._ledger.look_for_dead(self._run_id)
        self._version, self._looks = version, looks
        places = tuple(self._elsewhere)

        def read() -> tuple[RunRow | None, list[TaskRow | None]]:
            return job_rows.find_run(self._run_id), [
                job_rows.find_task(self._run_id, position) for position in places
            ]

        run, rows = await self._store.read(read)
        for position, row in zip(places, rows, strict=True):
            if row is None or row.state == "running":
                continue
            task = self._elsewhere.pop(position)
            if row.state == "pending":
                self._readiness.put_back(task)
            else:
                self._readiness.over(task, held=False)
        if run is not None and run.cancel_ms is not None:
            self._stop_with(Stop(why="it was cancelled", exit_code=4, state="cancelled"), cuts="user-stop")
        if run is None:
            self._error = self._error or SessionError(
                f"job run {self._run_id} is gone from the store", code="job_run_not_found"
            )

    async def _tell(self) -> None:
        """Tell the host of tasks that are over, in the order in which they ended."""
        while True:
            page = await self._store.read(partial(job_rows.ended_behind, self._run_id, self._told, _PAGE))
            for row, record in page:
                assert row.ended_sequence is not None
                await self._host.task_ended(row, record)
                self._told = row.ended_sequence
            if len(page) < _PAGE:
                return

    # the end

    async def _finish(self) -> JobResult:
        def read() -> tuple[dict[TaskState, int], set[int], list[str | None]]:
            return (
                job_rows.count_states(self._run_id),
                job_rows.exit_codes(self._run_id),
                job_rows.costs(self._run_id),
            )

        states, codes, costs = await self._store.read(read)
        counts = counts_of(states)
        stop = (
            self._stop if codes or counts.not_run else None
        )  # what came too late to stop anything stopped nothing
        if self._abort.is_tripped:
            stop = Stop(why=_stopped_by(self._abort), exit_code=abort_code(self._abort), state="cancelled")
        code = exit_code_of(codes, stop, self._abort)
        state: RunState = "succeeded" if code == 0 else stop.state if stop is not None else "failed"
        if self._leads:
            fault("before-run-end")
            await self._ledger.finish(self._run_id, state, code)
        return JobResult(
            run_id=self._run_id,
            job_name=self._plan.spec.job.name,
            status="succeeded" if state == "succeeded" else "cancelled" if state == "cancelled" else "failed",
            exit_code=code,
            counts=counts,
            failures=await failures_of(self._store, self._run_id),
            cost_usd=sum_of(costs),
            started_at_ms=self._started_ms,
            duration_ms=round((self._runtime.clock.monotonic_s() - self._started_s) * 1000),
            stopped_by=None if stop is None else stop.why,
        )


def _stopped_by(abort: AbortScope) -> str:
    if abort.reason == "signal" and abort.signum is not None:
        import signal

        return f"it was stopped by {signal.Signals(abort.signum).name}"
    return "stdout was closed by its reader" if abort.reason == "stdout-closed" else "it was stopped"
