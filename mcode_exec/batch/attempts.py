"""One attempt of a task: what its names stand for, whether it is to run, its turn, its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from mcode_exec.abort import AbortScope
from mcode_exec.batch.invocations import invocation_of
from mcode_exec.batch.plan import TaskTemplates, values_for
from mcode_exec.errors import InternalError, McodeError, SessionError
from mcode_exec.executor.delivery_sink import DeliverySink
from mcode_exec.executor.worktrees import tidy_worktree
from mcode_exec.ids import new_run_id
from mcode_exec.output.sink import Sink
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.job import Plan, PlannedTask, TaskRow
from mcode_exec.records.result import Result, error_info
from mcode_exec.store import job_rows

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_MAX_BUG = 300  # characters

#: is told what a task does: its id, the step, the tool or the phase
Watch = Callable[[str, int, str], None]


class Skipped(Struct, frozen=True, kw_only=True):
    """The task is not to run."""

    reason: str


class Ran(Struct, frozen=True, kw_only=True):
    """The attempt is over."""

    result: Result
    #: takes the secrets of its configuration out of JSON data
    mask: Callable[[object], object]


class TaskSink(DeliverySink):
    """What a task says meanwhile goes out with its id; nothing of it is the run's own output."""

    def __init__(self, outer: Sink, *, name: str, watch: Watch) -> None:
        super().__init__(outer, name=name)
        self._watch = watch
        self._task_id = name
        self.session_id: str | None = None
        self.turn_id: str | None = None
        self._mask_json: Callable[[object], object] | None = None

    def bind(self, *, session_id: str | None = None, turn_id: str | None = None) -> None:
        self.session_id = session_id or self.session_id
        self.turn_id = turn_id or self.turn_id

    async def session_known(self, session_id: str) -> None:
        self.session_id = session_id

    def mask_json(self, data: object) -> object:
        """JSON data without the secrets of this turn's configuration."""
        return data if self._redactor is None else self._redactor.json(data)

    def status(
        self, *, step: int, tool: str | None, tokens: int | None, cost_usd: Decimal | None, phase: str
    ) -> None:
        self._watch(self._task_id, step, tool or phase)


class Attempts:
    """What the attempts of a run have in common."""

    def __init__(
        self, runtime: Runtime, plan: Plan, run_id: str, invocation: Invocation, sink: Sink, watch: Watch
    ) -> None:
        self._runtime = runtime
        self._watch = watch
        self._spec = plan.spec
        #: where each task stands
        self._places = {task.id: task.position for task in plan.tasks}
        #: tasks in whose sessions others go on, or with whose histories they begin
        self._continued = frozenset(
            other
            for kind, _, other in (task.spec.session.partition(":") for task in plan.tasks)
            if kind in ("from", "fork")
        )
        self._run_id = run_id
        self._invocation = invocation
        self._sink = sink
        #: of the entries whose templates were read last
        self._templates: dict[str, TaskTemplates] = {}

    def _templates_of(self, task: PlannedTask) -> TaskTemplates:
        found = self._templates.get(task.spec.id)
        if found is None:
            found = self._templates[task.spec.id] = TaskTemplates(task.spec)
        return found

    async def values(self, task: PlannedTask) -> dict[str, Any]:
        """What the names of the task stand for, now that its needs are over."""
        needs: dict[str, dict[str, Any]] = {}
        for need, ids in task.needs.items():
            is_one = ids == (need,)
            rows = [await self._over(one) for one in ids]
            needs[need] = _of_one(*rows[0]) if is_one else _of_many(rows)
        return values_for(self._spec, task.id, task.item, needs, self._run_id)

    async def _over(self, task_id: str) -> tuple[TaskRow, dict[str, Any]]:
        """A task that is over, and its record."""
        position = self._places[task_id]

        def read() -> tuple[TaskRow | None, bytes | None]:
            return job_rows.find_task(self._run_id, position), job_rows.find_record(self._run_id, position)

        row, record = await self._runtime.store.read(read)
        assert row is not None
        return row, msgspec.json.decode(record) if record else {}

    def why_not(self, task: PlannedTask, values: Mapping[str, Any]) -> str | None:
        """Why the task is skipped; None: it is to run.  Raises: InvocationError for a condition that has no sense."""
        if task.spec.when is None:
            for need, over in values["needs"].items():
                if over["status"] != "succeeded":
                    return f"{need}, which it needs, is {str(over['status']).replace('_', ' ')}"
            return None
        if self._templates_of(task).holds(values):
            return None
        return f"its condition does not hold: {task.spec.when}"

    async def run(
        self, task: PlannedTask, values: Mapping[str, Any], turn_id: str, attempt: int, abort: AbortScope
    ) -> Ran:
        """Run the task's turn to its result, whatever becomes of it."""
        sink = TaskSink(self._sink, name=task.id, watch=self._watch)
        started_s = time.monotonic()
        try:
            texts = self._templates_of(task).texts(values)
            session_id = await self._session_of(task, values)
            invocation = invocation_of(
                task,
                texts,
                runner=self._invocation,
                spec=self._spec,
                turn_id=turn_id,
                attempt=attempt,
                session_id=session_id,
            )
            with abort.inner() as scope:
                result = await self._runtime.run(invocation, sink, scope)
        except McodeError as error:
            result = _failed(error, sink, started_s)
        except Exception as error:  # a bug, or memory ran out: this task fails alone
            self._sink.bug(error)
            told = f"{type(error).__name__}: {error}".strip().rstrip(":")[:_MAX_BUG]
            bug = InternalError(f"unexpected {told}; this is a bug in mcode (-v shows where)")
            result = _failed(bug, sink, started_s)
        return Ran(result=result, mask=sink.mask_json)

    async def tidied(self, task: PlannedTask, result: Result) -> Result:
        """`result`, once the worktree is removed that was the attempt's own and in which nothing is left to do.

        Nothing in it, no branch: the result names none.  Where another task or run may go on, all stays.
        """
        if result.worktree is None or result.session_id is None or task.id in self._continued:
            return result
        if task.spec.session != "new" and not task.spec.session.startswith("fork:"):
            return result
        if await tidy_worktree(self._runtime, result.session_id) != "gone":
            return result
        return structs.replace(result, worktree=None)

    async def _session_of(self, task: PlannedTask, values: Mapping[str, Any]) -> str | None:
        """The session that the task goes on with, or begins with.  Raises: SessionError."""
        kind, _, other = task.spec.session.partition(":")
        if kind not in ("from", "fork"):
            return None
        row, _ = await self._over(other)
        if row.session_id is None:
            raise SessionError(f"task {other} has no session to go on with: it is {row.state}")
        return row.session_id


def _failed(error: McodeError, sink: TaskSink, started_s: float) -> Result:
    return Result(
        run_id=new_run_id(),
        session_id=sink.session_id,
        turn_id=sink.turn_id,
        status="interaction_required" if error.exit_code == 5 else "failed",
        exit_code=error.exit_code,
        error=error_info(error),
        retryable=error.retryable,
        duration_ms=round((time.monotonic() - started_s) * 1000),
    )


def _of_one(row: TaskRow, record: Mapping[str, Any]) -> dict[str, Any]:
    """What templates know of a task that is over; source: NEED_FIELDS of plan."""
    output = record.get("output")
    if output is None:
        output = record.get("partialOutput")
    error = record.get("error") or {}
    return {
        "status": row.state,
        "output": "" if output is None else output,
        "error": error.get("message") or record.get("reason") or "",
        "exit_code": row.exit_code,
        "session_id": row.session_id or "",
        "branch": (record.get("worktree") or {}).get("branch") or "",
    }


def _of_many(rows: list[tuple[TaskRow, dict[str, Any]]]) -> dict[str, Any]:
    """The tasks that one entry stands for, as one: it has succeeded if all of them have."""
    ones = [{"id": row.task_id, **_of_one(row, record)} for row, record in rows]
    unsuccessful = [one for one in ones if one["status"] != "succeeded"]
    return {
        "status": unsuccessful[0]["status"] if unsuccessful else "succeeded",
        "output": [one["output"] for one in ones],
        "error": "\n".join(f"{one['id']}: {one['error']}" for one in unsuccessful),
        "exit_code": [one["exit_code"] for one in ones],
        "session_id": [one["session_id"] for one in ones],
        "branch": [one["branch"] for one in ones],
    }
