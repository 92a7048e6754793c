"""The store's side of schedules: due times are found, claimed and ended, each in one transaction.

A due time has one row.  Whoever changes it from `due` to `running` runs it; the
owner's liveness lock says whether somebody still does.  What a dead process ran
is told by the rows of its job run: over, or interrupted, or to be begun again.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

from msgspec import Struct, structs

from mcode_exec.abort import AbortScope
from mcode_exec.batch.ledger import MAX_DEATHS, Ledger
from mcode_exec.batch.outcome import exit_code_of, failures_of, sum_of
from mcode_exec.batch.schedules.catching_up import Judged, judge
from mcode_exec.batch.schedules.definitions import job_run_id
from mcode_exec.batch.schedules.times import Times, zone_of
from mcode_exec.clock import Clock
from mcode_exec.errors import ConfigError
from mcode_exec.faults import fault
from mcode_exec.records.job import OPEN, RunState
from mcode_exec.records.schedule import FAILED_STATES, DueRun, DueState, Schedule
from mcode_exec.store import job_rows, schedule_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.owner import Owner

KEPT_RUNS = 1000  # due times of a schedule that its history holds


class Claimed(Struct, frozen=True, kw_only=True):
    """A due time that this process runs."""

    schedule: Schedule
    run: DueRun


class Ended(Struct, frozen=True, kw_only=True):
    """A due time that is over, and the schedule as it stood."""

    schedule: Schedule
    run: DueRun


class Outcome(Struct, frozen=True, kw_only=True):
    """How a run ended."""

    state: DueState
    exit_code: int | None = None
    error_code: str | None = None
    error: str | None = None
    session_id: str | None = None
    cost_usd: Decimal | None = None


class DueLedger:
    """What one process writes of due times; `clock` says what is due."""

    def __init__(self, store: Store, owner: Owner, clock: Clock) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock

    # what is due

    async def take_up(self) -> list[Ended]:
        """Give every time that has become due its row; what ended by that without a run."""
        now_ms = self._clock.now_ms()
        ended: list[Ended] = []
        for schedule in await self._store.read(schedule_rows.all_schedules):
            if not schedule.is_paused and _is_to_be_looked_at(schedule, now_ms):
                ended += await self._take_up_one(schedule, now_ms)
        return ended

    async def _take_up_one(self, schedule: Schedule, now_ms: int) -> list[Ended]:
        # The clock has been set back behind the cursor: what has a row is not run again, the rest comes anew.
        after_ms = min(schedule.cursor_ms, now_ms)
        try:
            times = Times(schedule.cron, zone_of(schedule.timezone))
        except ConfigError as error:
            trouble = error
            return await self._write_if_same(schedule, lambda: self._break(schedule, trouble, now_ms))
        judged = judge(times, schedule.catch_up, after_ms, now_ms)
        next_ms = times.after(now_ms)
        return await self._write_if_same(
            schedule, lambda: self._insert_due(schedule, judged, next_ms, now_ms)
        )

    async def _write_if_same(self, schedule: Schedule, work: Callable[[], list[Ended]]) -> list[Ended]:
        """Do `work` in a transaction, unless another process has looked at the schedule, or changed it, meanwhile."""

        def write() -> list[Ended]:
            now = schedule_rows.find_schedule_by_id(schedule.id)
            return work() if now == schedule else []

        ended = await self._store.write(write)
        fault("after-due-inserted")
        return ended

    def _insert_due(
        self, schedule: Schedule, judged: Judged, next_ms: int | None, now_ms: int
    ) -> list[Ended]:
        ended: list[Ended] = []
        if judged.missed is not None:
            missed = DueRun(
                schedule_id=schedule.id,
                due_ms=judged.missed.first_ms,
                until_ms=judged.missed.last_ms,
                count=judged.missed.count,
                state="missed",
                ended_ms=now_ms,
                error=f"nothing looked at it while it was due (catch-up: {schedule.catch_up})",
            )
            if schedule_rows.put_run(missed):
                ended.append(Ended(schedule=schedule, run=missed))
        if judged.to_run and schedule.catch_up != "all":
            ended += self._leave_earlier(schedule, now_ms)
        for due_ms in judged.to_run:
            schedule_rows.put_run(
                DueRun(schedule_id=schedule.id, due_ms=due_ms, until_ms=due_ms, state="due")
            )
        schedule_rows.update_schedule(schedule.id, cursor_ms=now_ms, next_ms=next_ms, problem=None)
        schedule_rows.forget_runs(schedule.id, KEPT_RUNS)
        return ended

    def _leave_earlier(self, schedule: Schedule, now_ms: int) -> list[Ended]:
        """Due times that still wait, and give way to a later one."""
        ended = []
        for run in schedule_rows.open_runs(schedule.id):
            if run.state != "due":
                continue
            left = structs.replace(
                run, state="missed", ended_ms=now_ms, error="a later due time came before it could begin"
            )
            if schedule_rows.update_run(run, state=left.state, ended_ms=now_ms, error=left.error):
                ended.append(Ended(schedule=schedule, run=left))
        return ended

    def _break(self, schedule: Schedule, error: ConfigError, now_ms: int) -> list[Ended]:
        """A schedule whose times cannot be told: said once, as the failure of the time that was the next one."""
        due_ms = schedule.next_ms
        if due_ms is None:
            return []
        schedule_rows.update_schedule(schedule.id, next_ms=None, problem=error.message)
        run = DueRun(
            schedule_id=schedule.id,
            due_ms=due_ms,
            until_ms=due_ms,
            state="failed",
            exit_code=error.exit_code,
            error_code=error.code,
            error=error.message,
            ended_ms=now_ms,
            **self._hook_of(schedule, "failed"),
        )
        return [Ended(schedule=schedule, run=run)] if schedule_rows.put_run(run) else []

    # who runs it

    async def claim(self) -> Claimed | Ended | None:
        """The oldest due time that can begin, as ours; one that ends because another run is under way; or None."""

        def work() -> Claimed | Ended | None:
            now_ms = self._clock.now_ms()
            open_runs = schedule_rows.open_runs()
            for run in open_runs:
                if run.state != "due":
                    continue
                schedule = schedule_rows.find_schedule_by_id(run.schedule_id)
                if schedule is None or schedule.is_paused:
                    continue
                running = [
                    one for one in open_runs if one.schedule_id == run.schedule_id and one.state == "running"
                ]
                if running:
                    # what was due before the other began is its turn when that is over, whatever the policy
                    came_later = all(run.due_ms > (one.started_ms or 0) for one in running)
                    if schedule.on_overlap == "wait" or not came_later:
                        continue
                    if schedule.on_overlap == "skip":
                        return self._skip(schedule, run, running[0], now_ms)
                return self._claim(schedule, run, now_ms)
            return None

        fault("before-due-claim")
        claimed = await self._store.write(work)
        fault("after-due-claim")
        return claimed

    def _claim(self, schedule: Schedule, run: DueRun, now_ms: int) -> Claimed | None:
        values: dict[str, Any] = {
            "state": "running",
            "owner": self._owner.token,
            "attempt": run.attempt + 1,
            "started_ms": now_ms,
            "job_run_id": job_run_id(schedule, run.due_ms),
        }
        if not schedule_rows.update_run(run, **values):
            return None
        return Claimed(schedule=schedule, run=structs.replace(run, **values))

    def _skip(self, schedule: Schedule, run: DueRun, other: DueRun, now_ms: int) -> Ended:
        values: dict[str, Any] = {
            "state": "skipped",
            "ended_ms": now_ms,
            "error": f"run {other.job_run_id} was under way (on-overlap: skip)",
        }
        schedule_rows.update_run(run, **values)
        return Ended(schedule=schedule, run=structs.replace(run, **values))

    # how it ended

    async def end(self, claimed: Claimed, outcome: Outcome) -> Ended | None:
        """End a due time that we ran; None if the schedule was removed."""
        fault("before-due-end")
        ended = await self._store.write(lambda: self._end(claimed.schedule, claimed.run, outcome))
        fault("after-due-end")
        return ended

    def _end(self, schedule: Schedule, run: DueRun, outcome: Outcome) -> Ended | None:
        values: dict[str, Any] = {
            **structs.asdict(outcome),
            "ended_ms": self._clock.now_ms(),
            "owner": None,
            **self._hook_of(schedule, outcome.state),
        }
        cost = outcome.cost_usd
        stored = {**values, "cost_usd": None if cost is None else format(cost, "f")}
        if not schedule_rows.update_run(run, **stored):
            return None
        return Ended(schedule=schedule, run=structs.replace(run, **values))

    def _hook_of(self, schedule: Schedule, state: DueState) -> dict[str, Any]:
        """The failure command is still to be run, and this process runs it."""
        if state not in FAILED_STATES or not schedule.on_failure:
            return {}
        return {"hook": "pending", "owner": self._owner.token}

    async def put_back(self, run: DueRun) -> bool:
        """Let a due time be begun again by the next caller."""
        return await self._store.write(lambda: schedule_rows.update_run(run, state="due", owner=None))

    async def bring_back(self) -> list[Ended]:
        """What dead processes ran: how it ended, or due again; what is over by that."""
        ended: list[Ended] = []
        for run in await self._store.read(schedule_rows.open_runs):
            if run.state != "running" or (run.owner is not None and self._owner.is_alive(run.owner)):
                continue
            schedule = await self._store.read(partial(schedule_rows.find_schedule_by_id, run.schedule_id))
            if schedule is None:
                continue
            found = await self._judge_dead(schedule, run)
            if found is not None:
                ended.append(found)
        return ended

    async def _judge_dead(self, schedule: Schedule, run: DueRun) -> Ended | None:
        deaths = run.deaths + 1
        outcome = await self._outcome_of_job(run)
        has_begun = outcome is not None
        if outcome is None or outcome.state == "interrupted":
            if deaths < MAX_DEATHS and (not has_begun or schedule.when_interrupted == "resume"):
                await self._store.write(
                    lambda: schedule_rows.update_run(run, state="due", owner=None, deaths=deaths)
                )
                return None
            outcome = outcome or Outcome(state="interrupted")
            where = "it ran" if has_begun else "it began"
            again = f", {deaths} times" if deaths >= MAX_DEATHS else ""
            outcome = structs.replace(
                outcome,
                exit_code=4,
                error_code="TURN_ABORTED",
                error=f"its process died while {where}{again}; what it had done by then stays",
            )

        def work() -> Ended | None:
            schedule_rows.update_run(run, deaths=deaths)
            return self._end(schedule, run, outcome)

        return await self._store.write(work)

    async def _outcome_of_job(self, run: DueRun) -> Outcome | None:
        """How the job run of a dead process ended, `interrupted` if it has not; None if it has not begun."""
        run_id = run.job_run_id
        job = None if run_id is None else await self._store.read(lambda: job_rows.find_run(run_id or ""))
        if job is None or run_id is None:
            return None
        await Ledger(self._store, self._owner, self._clock).look_for_dead(run_id)
        states, codes, costs, tasks = await self._store.read(
            lambda: (
                job_rows.count_states(run_id),
                job_rows.exit_codes(run_id),
                job_rows.costs(run_id),
                job_rows.page_tasks(run_id, -1, 2),
            )
        )
        session_id = tasks[0][0].session_id if len(tasks) == 1 else None
        facts: dict[str, Any] = {"cost_usd": sum_of(costs), "session_id": session_id}
        if job.state == "running" and any(states.get(state) for state in OPEN):
            return Outcome(state="interrupted", **facts)
        code = job.exit_code if job.exit_code is not None else 0
        if job.state == "running":  # its tasks are over, and only that was not written down any more
            code = exit_code_of(codes, None, AbortScope())
            state: RunState = "succeeded" if code == 0 else "failed"
            await self._store.write(
                lambda: job_rows.update_run(
                    run_id, state=state, exit_code=code, ended_ms=self._clock.now_ms(), owner=None
                )
            )
        if code == 0:
            return Outcome(state="succeeded", exit_code=0, **facts)
        error = next((one.error for one in await failures_of(self._store, run_id) if one.error), None)
        return Outcome(
            state="cancelled" if job.state == "cancelled" else "failed",
            exit_code=code,
            error_code=None if error is None else error.code,
            error=None if error is None else error.message,
            **facts,
        )

    # failure commands

    async def claim_hooks(self) -> list[Ended]:
        """Failures whose command a dead process did not bring to its end; ours now."""

        def work() -> list[Ended]:
            found = []
            for run in schedule_rows.pending_hooks():
                if run.owner is not None and self._owner.is_alive(run.owner):
                    continue
                schedule = schedule_rows.find_schedule_by_id(run.schedule_id)
                if schedule is not None and schedule_rows.update_run(run, owner=self._owner.token):
                    found.append(Ended(schedule=schedule, run=structs.replace(run, owner=self._owner.token)))
            return found

        return await self._store.write(work)

    async def end_hook(self, run: DueRun, how: str) -> None:
        await self._store.write(lambda: schedule_rows.update_run(run, hook=how, owner=None))


def _is_to_be_looked_at(schedule: Schedule, now_ms: int) -> bool:
    return schedule.next_ms is None or schedule.next_ms <= now_ms or schedule.cursor_ms > now_ms
