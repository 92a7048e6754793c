"""`schedule run-due`: what is due is claimed and run, and who called is told how it ended.

As many callers as you like may do this at once, from every machine that shares
the data directory: each due time is claimed by one of them.  Due times of
several schedules run beside each other; of one, in order.  While something runs,
what becomes due meanwhile is looked for too: a timer does not call again before
its service has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from mcode_exec.abort import AbortScope
from mcode_exec.batch.beginning import RunOptions
from mcode_exec.batch.outcome import exit_code_of
from mcode_exec.batch.running import run_job
from mcode_exec.batch.schedules.definitions import due_at, plan_for
from mcode_exec.batch.schedules.ledger import Claimed, DueLedger, Ended, Outcome
from mcode_exec.clock import Clock
from mcode_exec.errors import InternalError, McodeError
from mcode_exec.executor.telling_command import tell_command
from mcode_exec.faults import fault
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.job import JobResult, TaskRow
from mcode_exec.records.schedule import FAILED_STATES, DueRun, Schedule

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.output.sink import Sink

CONCURRENCY = 4  # schedules at once
LOOK_S = 30.0  # between two looks at what has become due, while something runs
_MAX_BUG = 300  # characters

#: is told of each due time that is over
Teller = Callable[[Ended], Awaitable[None]]


async def run_due(
    runtime: Runtime,
    invocation: Invocation,
    sink: Sink,
    abort: AbortScope,
    tell: Teller,
    *,
    clock: Clock,
    concurrency: int = CONCURRENCY,
    look_s: float = LOOK_S,
) -> int:
    """Run everything that is due; the exit code that all unsuccessful runs share, else 9.

    Raises: StoreFailedError, StoreBusyError; what runs then is brought back by the next caller.
    """
    return await _DueRuns(runtime, invocation, sink, abort, tell, clock, concurrency, look_s).run()


class _DueRuns:
    def __init__(
        self,
        runtime: Runtime,
        invocation: Invocation,
        sink: Sink,
        abort: AbortScope,
        tell: Teller,
        clock: Clock,
        concurrency: int,
        look_s: float,
    ) -> None:
        self._runtime = runtime
        self._invocation = invocation
        self._sink = sink
        self._abort = abort
        self._tell = tell
        self._ledger = DueLedger(runtime.store, runtime.owner, clock)
        self._concurrency = concurrency
        self._look_s = look_s
        self._running: set[asyncio.Task[None]] = set()
        self._codes: set[int] = set()

    async def run(self) -> int:
        for ended in await self._ledger.claim_hooks():
            await self._run_hook(ended)
        await self._look()
        try:
            while True:
                await self._begin()
                if not self._running:
                    break
                done, self._running = await asyncio.wait(
                    self._running, timeout=self._look_s, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
                if not done and not self._abort.is_tripped:
                    await self._look()
        finally:
            for task in self._running:
                task.cancel()
        return exit_code_of(self._codes, None, self._abort)

    async def _look(self) -> None:
        """What dead processes ran, and what has become due."""
        for ended in (*await self._ledger.bring_back(), *await self._ledger.take_up()):
            await self._over(ended)

    async def _begin(self) -> None:
        while len(self._running) < self._concurrency and not self._abort.is_tripped:
            claimed = await self._ledger.claim()
            if claimed is None:
                return
            if isinstance(claimed, Ended):
                await self._over(claimed)
            else:
                self._running.add(asyncio.ensure_future(self._run_one(claimed)))

    async def _run_one(self, claimed: Claimed) -> None:
        schedule = claimed.schedule
        self._sink.say(f"{schedule.name}: run {claimed.run.job_run_id} begins")
        outcome = await self._outcome_of(claimed)
        if outcome.state == "cancelled" and self._abort.is_tripped and schedule.when_interrupted == "resume":
            await self._ledger.put_back(claimed.run)
            return
        ended = await self._ledger.end(claimed, outcome)
        if ended is not None:
            await self._over(ended)

    async def _outcome_of(self, claimed: Claimed) -> Outcome:
        """Run a due time to its end, whatever that is."""
        schedule, run = claimed.schedule, claimed.run
        runtime = self._runtime.beside()
        try:
            plan = plan_for(schedule, run.due_ms)
            host = _QuietHost(self._sink, schedule.name)
            result = await run_job(
                runtime,
                plan,
                _invocation_of(schedule, self._invocation),
                RunOptions(run_id=run.job_run_id),
                self._sink,
                self._abort,
                host,
            )
            return _outcome(result, host.session_id if len(plan.tasks) == 1 else None)
        except McodeError as error:  # a spec that is gone, a workspace that cannot be entered, a full disk
            return _failed(error)
        except Exception as error:  # a bug: this run fails alone
            self._sink.bug(error)
            told = f"{type(error).__name__}: {error}".strip().rstrip(":")[:_MAX_BUG]
            return _failed(InternalError(f"unexpected {told}; this is a bug in mcode (-v shows where)"))
        finally:
            await runtime.close_beside()

    async def _over(self, ended: Ended) -> None:
        run = ended.run
        if run.state in FAILED_STATES:
            self._codes.add(4 if run.exit_code is None else run.exit_code)
        if run.hook == "pending":
            ended = await self._run_hook(ended)
        await self._tell(ended)

    async def _run_hook(self, ended: Ended) -> Ended:
        schedule, run = ended.schedule, ended.run
        fault("before-failure-command")
        told = await tell_command(
            schedule.on_failure, _values(schedule, run), self._runtime.env, schedule.workspace
        )
        if told.trouble is not None:
            self._sink.say_error(f"{schedule.name}: the failure command {told.trouble}")
        await self._ledger.end_hook(run, told.how)
        return Ended(schedule=schedule, run=structs.replace(run, hook=told.how, owner=None))


class _QuietHost:
    """Says nothing of a run that a person would not ask for, and keeps its session."""

    def __init__(self, sink: Sink, name: str) -> None:
        self._sink = sink
        self._name = name
        self.session_id: str | None = None

    async def began(self, run_id: str, total: int, ended: int) -> None:
        fault("after-due-began")

    def task_started(self, task_id: str, attempt: int) -> None:
        pass

    def task_does(self, task_id: str, step: int, doing: str) -> None:
        pass

    def task_stopped(self, task_id: str) -> None:
        pass

    async def task_ended(self, row: TaskRow, record: bytes) -> None:
        self.session_id = row.session_id

    def look(self) -> None:
        pass

    def say(self, line: str) -> None:
        self._sink.say(f"{self._name}: {line}")


def _invocation_of(schedule: Schedule, caller: Invocation) -> Invocation:
    """What the tasks take over: of the schedule, and of who called only where its data is."""
    settings = schedule.settings
    return structs.replace(
        caller,
        cwd=schedule.workspace,
        model=settings.model if schedule.spec_path is not None else None,
        fallback_models=(settings.fallback_models or ()) if schedule.spec_path is not None else (),
        config_file=schedule.config_file or caller.config_file,
        trust_workspace=schedule.trust_workspace,
        source="cron",
    )


def _outcome(result: JobResult, session_id: str | None) -> Outcome:
    first = next((one.error for one in result.failures if one.error is not None), None)
    message = result.stopped_by if first is None else first.message
    return Outcome(
        state=result.status,
        exit_code=None if result.status == "skipped" else result.exit_code,
        error_code=None if first is None else first.code,
        error=None if result.status == "succeeded" else message,
        session_id=session_id,
        cost_usd=result.cost_usd,
    )


def _failed(error: McodeError) -> Outcome:
    return Outcome(state="failed", exit_code=error.exit_code, error_code=error.code, error=error.message)


def _values(schedule: Schedule, run: DueRun) -> dict[str, str]:
    """What the failure command gets; what is not known is empty."""
    values: dict[str, Any] = {
        "NAME": schedule.name,
        "DUE": due_at(schedule, run.due_ms),
        "DUE_MS": run.due_ms,
        "STATUS": run.state,
        "EXIT_CODE": run.exit_code,
        "ERROR": run.error,
        "ERROR_CODE": run.error_code,
        "RUN_ID": run.job_run_id,
        "SESSION_ID": run.session_id,
        "WORKSPACE": schedule.workspace,
        "SPEC": schedule.spec_path,
    }
    return {f"MCODE_SCHEDULE_{key}": "" if value is None else str(value) for key, value in values.items()}
