"""The store's side of a job run: beginning, claiming, ending, each in one transaction.

What is in these rows is the truth; results files and reports are made from them.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import cast

import msgspec
from msgspec import Struct

from mcode_exec.clock import Clock
from mcode_exec.errors import BusyError, InvocationError, SessionError
from mcode_exec.faults import fault
from mcode_exec.records.job import (
    OPEN,
    JobSpec,
    Plan,
    RunRow,
    RunState,
    TaskRecord,
    TaskRow,
    TaskState,
    UnrunTask,
)
from mcode_exec.records.result import Result
from mcode_exec.store import job_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.owner import Owner

MAX_DEATHS = 3  # of processes that ran a task
#: exit codes of failures that may pass: provider unavailable, session or store busy
_PASSING = (69, 75)

_record_encoder = msgspec.json.Encoder(decimal_format="number")
_record_decoder = msgspec.json.Decoder(TaskRecord)
_result_decoder = msgspec.json.Decoder(Result)


class Begun(Struct, frozen=True, kw_only=True):
    """A run as this process takes it up."""

    run_id: str
    is_new: bool
    #: this process ends the run; False for one that only helps
    leads: bool
    #: state and attempt of each task, in its place
    states: list[TaskState]
    attempts: list[int]
    started_ms: int


class Overlap(Struct, frozen=True, kw_only=True):
    """Another run of the job is under way."""

    run_id: str


def encode_record(record: TaskRecord | UnrunTask, mask: Callable[[object], object] | None = None) -> bytes:
    """A line of `--results`, without its end."""
    if mask is None:
        return _record_encoder.encode(record)
    return _record_encoder.encode(mask(msgspec.to_builtins(record, builtin_types=(Decimal,))))


def decode_record(data: bytes) -> TaskRecord:
    return _record_decoder.decode(data)


class Ledger:
    """What one process writes of job runs."""

    def __init__(self, store: Store, owner: Owner, clock: Clock) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock

    async def begin(
        self, plan: Plan, run_id: str, workspace: str, *, joins: bool, retry_failed: bool, looks: bool
    ) -> Begun | Overlap:
        """Begin the run, or take it up again.

        `looks`: another run of the same job that is under way is answered with; else it does not matter.
        Raises: InvocationError where a task is another one than it was; BusyError where somebody runs it.
        """
        spec = plan.spec

        def work() -> Begun | Overlap:
            run = job_rows.find_run(run_id)
            if run is None:
                if joins:
                    raise SessionError(f"there is no run {run_id} to join", code="job_run_not_found")
                other = self._other(spec, run_id) if looks else None
                return other or self._insert(plan, run_id, workspace)
            is_led = run.owner is not None and self._owner.is_alive(run.owner)
            if is_led and not joins:
                raise BusyError(
                    f"job run {run_id} is under way in another process; --join helps it, "
                    "`mcode jobs status` shows it",
                    code="job_run_busy",
                )
            _check_same(plan, run)
            if not is_led:
                other = self._other(spec, run_id) if looks else None
                if other is not None:
                    return other
                self._take_over(run)
                self._reopen(run_id, retry_failed)
            return self._begun(run_id, run.started_ms, is_new=False, leads=not is_led)

        return await self._store.write(work)

    def _other(self, spec: JobSpec, run_id: str) -> Overlap | None:
        for run in job_rows.running_of(spec.job.name):
            if run.id != run_id and run.owner is not None and self._owner.is_alive(run.owner):
                return Overlap(run_id=run.id)
        return None

    def _insert(self, plan: Plan, run_id: str, workspace: str) -> Begun:
        now_ms = self._clock.now_ms()
        job_rows.insert_run(
            RunRow(
                id=run_id,
                job_name=plan.spec.job.name,
                spec_path=plan.spec.path,
                workspace=workspace,
                state="running",
                owner=self._owner.token,
                started_ms=now_ms,
            )
        )
        job_rows.insert_tasks(run_id, ((task.id, task.position, task.digest) for task in plan.tasks))
        return self._begun(run_id, now_ms, is_new=True, leads=True)

    def _begun(self, run_id: str, started_ms: int, *, is_new: bool, leads: bool) -> Begun:
        rows = job_rows.task_states(run_id)
        return Begun(
            run_id=run_id,
            is_new=is_new,
            leads=leads,
            states=[state for *_, state, _ in rows],
            attempts=[attempt for *_, attempt in rows],
            started_ms=started_ms,
        )

    def _take_over(self, run: RunRow) -> None:
        job_rows.update_run(
            run.id, state="running", owner=self._owner.token, ended_ms=None, exit_code=None, cancel_ms=None
        )
        self._bring_back(run.id)

    def _bring_back(self, run_id: str) -> None:
        """Tasks that dead processes ran: what their turns came to, or another attempt; inside a transaction."""
        for row in job_rows.running_tasks(run_id):
            if row.owner is not None and self._owner.is_alive(row.owner):
                continue
            assert row.turn_id is not None
            receipt = turn_rows.find_receipt(row.turn_id)
            if receipt is not None and receipt.settled_ms is not None and receipt.result is not None:
                result = _result_decoder.decode(receipt.result)
                if not runs_again(state_of(result), result.exit_code, retry_failed=False):
                    self._end(row, result, receipt.settled_ms)
                    continue
            deaths = row.deaths + 1
            if deaths >= MAX_DEATHS:
                self._end(row, _died(row, deaths), self._clock.now_ms())
                continue
            job_rows.release_task(run_id, row.position, row.turn_id, died=True, cost_usd=_shown(row.cost_usd))

    async def look_for_dead(self, run_id: str) -> None:
        """Bring back what other processes ran that have died meanwhile."""
        await self._store.write(lambda: self._bring_back(run_id))

    def _reopen(self, run_id: str, retry_failed: bool) -> None:
        """Tasks whose end says nothing of the next try are open again."""
        again: list[int] = []
        after = -1
        while page := job_rows.page_tasks(run_id, after, 1000):
            again += [
                row.position
                for row, _ in page
                if row.state not in OPEN and runs_again(row.state, row.exit_code, retry_failed=retry_failed)
            ]
            after = page[-1][0].position
        job_rows.reopen_tasks(run_id, again)

    async def claim(self, run_id: str, position: int, turn_id: str) -> bool:
        """Begin an attempt of a task under that turn id; False if it is not open any more."""
        now_ms = self._clock.now_ms()
        return await self._store.write(
            lambda: job_rows.claim_task(run_id, position, self._owner.token, turn_id, now_ms)
        )

    async def end(
        self, run_id: str, position: int, result: Result, mask: Callable[[object], object]
    ) -> TaskRow | None:
        """End a task with the result of its attempt; its row, None if another process has done that."""
        now_ms = self._clock.now_ms()

        def work() -> TaskRow | None:
            row = job_rows.find_task(run_id, position)
            if row is None or row.state != "running" or row.owner != self._owner.token:
                return None
            self._end(row, result, now_ms, mask)
            return job_rows.find_task(run_id, position)

        fault("before-task-end")
        row = await self._store.write(work)
        fault("after-task-end")
        return row

    def _end(
        self,
        row: TaskRow,
        result: Result,
        ended_ms: int,
        mask: Callable[[object], object] | None = None,
    ) -> None:
        record = TaskRecord(
            **msgspec.structs.asdict(result),
            task_id=row.task_id,
            task_attempt=row.attempt,
            started_at_ms=row.started_ms,
        )
        assert row.turn_id is not None
        job_rows.end_task(
            row.run_id,
            row.position,
            row.turn_id,
            state=state_of(result),
            session_id=result.session_id,
            ended_ms=ended_ms,
            exit_code=result.exit_code,
            cost_usd=_shown(added(row.cost_usd, result.cost_usd)),
            record=encode_record(record, mask),
        )

    async def again(self, run_id: str, position: int, result: Result) -> bool:
        """An attempt is over and another one is to follow; False if the task is not ours any more."""

        def work() -> bool:
            row = job_rows.find_task(run_id, position)
            if row is None or row.turn_id is None or row.owner != self._owner.token:
                return False
            cost = _shown(added(row.cost_usd, result.cost_usd))
            return job_rows.release_task(run_id, position, row.turn_id, died=False, cost_usd=cost)

        return await self._store.write(work)

    async def skip(self, run_id: str, position: int, task_id: str, reason: str) -> bool:
        """End a task without a turn, because its condition does not hold."""
        record = encode_record(UnrunTask(task_id=task_id, status="skipped", reason=reason))
        now_ms = self._clock.now_ms()
        return (
            await self._store.write(lambda: job_rows.leave_task(run_id, position, "skipped", now_ms, record))
            is not None
        )

    async def finish(self, run_id: str, state: RunState, exit_code: int) -> bool:
        """End the run; False if another process leads it by now."""
        now_ms = self._clock.now_ms()
        return await self._store.write(
            lambda: job_rows.end_run(run_id, self._owner.token, state, exit_code, now_ms)
        )


def _check_same(plan: Plan, run: RunRow) -> None:
    """Raise InvocationError unless every task of the run is what it was."""
    if run.job_name != plan.spec.job.name:
        raise InvocationError(
            f"job run {run.id} is one of {run.job_name!r}, not of {plan.spec.job.name!r}; use another --run-id"
        )
    kept = {task_id: digest for task_id, _, digest, _, _ in job_rows.task_states(run.id)}
    for task in plan.tasks:
        digest = kept.pop(task.id, None)
        if digest is None:
            raise InvocationError(
                f"{task.spec.place}: job run {run.id} has no task {task.id!r}; use another --run-id"
            )
        if digest != task.digest:
            raise InvocationError(
                f"{task.spec.place}: task {task.id!r} is not what it was in job run {run.id}; use another --run-id"
            )
    if kept:
        raise InvocationError(
            f"{plan.spec.path} has no task {next(iter(kept))!r} any more, which job run {run.id} has; "
            "use another --run-id"
        )


def runs_again(state: TaskState, exit_code: int | None, *, retry_failed: bool) -> bool:
    """Whether the same run id runs a task again that is over; source: docs/contract.md §10."""
    if state == "succeeded":
        return False
    if retry_failed or state in ("skipped", "not_run", "timeout", "cancelled"):
        return True
    return state == "failed" and exit_code in _PASSING


def state_of(result: Result) -> TaskState:
    """What a task is that ended so."""
    if result.status in ("queued", "steered"):  # neither is asked for
        return "failed"
    return cast(TaskState, result.status)


def added(sum_usd: Decimal | None, cost_usd: Decimal | None) -> Decimal | None:
    """A sum of which one unknown part makes the whole unknown."""
    return None if sum_usd is None or cost_usd is None else sum_usd + cost_usd


def _shown(cost_usd: Decimal | None) -> str | None:
    return None if cost_usd is None else format(cost_usd, "f")


def _died(row: TaskRow, deaths: int) -> Result:
    from mcode_exec.errors import TurnFailedError
    from mcode_exec.records.result import error_info

    error = TurnFailedError(
        f"the process that ran it died {deaths} times; the task is not tried again by itself",
        code="TURN_ABORTED",
    )
    return Result(
        run_id=row.run_id,
        session_id=row.session_id,
        turn_id=row.turn_id,
        status="failed",
        exit_code=error.exit_code,
        error=error_info(error),
    )
