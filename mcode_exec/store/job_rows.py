"""Rows of `job_runs` and `job_tasks`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from peewee import fn

from mcode_exec.records.job import RunRow, RunState, TaskRow, TaskState
from mcode_exec.store.job_tables import JobRuns, JobTasks
from mcode_exec.store.statement import Statement
from mcode_exec.store.table import dicts, tuples

_RUN = tuple(getattr(JobRuns, name) for name in RunRow.__struct_fields__)
_TASK = tuple(getattr(JobTasks, name) for name in TaskRow.__struct_fields__)
_FIND_RUN = Statement(lambda run_id: JobRuns.select(*_RUN).where(JobRuns.id == run_id), str)
_FIND_TASK = Statement(
    lambda run_id, position: JobTasks.select(*_TASK).where(
        (JobTasks.run_id == run_id) & (JobTasks.position == position)
    ),
    *(str, int),
)
_INSERT_TASK = Statement(
    lambda run_id, task_id, position, digest: JobTasks.insert(
        run_id=run_id,
        task_id=task_id,
        position=position,
        digest=digest,
        state="pending",
        attempt=0,
        deaths=0,
        cost_usd="0",
    ),
    *(str, str, int, str),
)


def insert_run(run: RunRow) -> bool:
    """False if there is a run of that id."""
    query = JobRuns.insert(**msgspec.structs.asdict(run), ended_tasks=0).on_conflict_ignore()
    return bool(query.as_rowcount().execute())


def insert_tasks(run_id: str, tasks: Iterable[tuple[str, int, str]]) -> None:
    """(task id, position, digest) of each task of a new run."""
    _INSERT_TASK.run_each((run_id, task_id, position, digest) for task_id, position, digest in tasks)


def find_run(run_id: str) -> RunRow | None:
    row = _FIND_RUN.first(run_id)
    return None if row is None else msgspec.convert(row, RunRow)


def runs_with_prefix(prefix: str, limit: int) -> list[RunRow]:
    """Runs whose ids begin so."""
    query = (
        JobRuns.select(*_RUN)
        .where((JobRuns.id >= prefix) & (JobRuns.id < prefix + "\U0010ffff"))
        .order_by(JobRuns.id)
        .limit(limit)
    )
    return [msgspec.convert(row, RunRow) for row in dicts(query)]


def running_of(job_name: str) -> list[RunRow]:
    """Runs of a job that have not ended, the oldest first."""
    query = (
        JobRuns.select(*_RUN)
        .where((JobRuns.state == "running") & (JobRuns.job_name == job_name))
        .order_by(JobRuns.started_ms, JobRuns.id)
    )
    return [msgspec.convert(row, RunRow) for row in dicts(query)]


def page_runs(before: tuple[int, str] | None, limit: int) -> list[RunRow]:
    """The newest runs, those before (started, id)."""
    query = JobRuns.select(*_RUN)
    if before is not None:
        query = query.where(
            (JobRuns.started_ms < before[0]) | ((JobRuns.started_ms == before[0]) & (JobRuns.id < before[1]))
        )
    query = query.order_by(JobRuns.started_ms.desc(), JobRuns.id.desc()).limit(limit)
    return [msgspec.convert(row, RunRow) for row in dicts(query)]


def update_run(run_id: str, **values: Any) -> bool:
    return bool(JobRuns.update(**values).where(JobRuns.id == run_id).execute())


def end_run(run_id: str, owner: str, state: RunState, exit_code: int, ended_ms: int) -> bool:
    """False if the run is another process's by now."""
    query = JobRuns.update(state=state, exit_code=exit_code, ended_ms=ended_ms, owner=None).where(
        (JobRuns.id == run_id) & (JobRuns.owner == owner)
    )
    return bool(query.execute())


def ask_cancel(run_id: str, now_ms: int) -> bool:
    """Ask a run to end; False if it has ended."""
    query = JobRuns.update(cancel_ms=now_ms).where(
        (JobRuns.id == run_id) & (JobRuns.state == "running") & JobRuns.cancel_ms.is_null()
    )
    return bool(query.execute())


def task_states(run_id: str) -> list[tuple[str, int, str, TaskState, int]]:
    """(id, position, digest, state, attempt) of every task, in its place."""
    query = (
        JobTasks.select(
            JobTasks.task_id, JobTasks.position, JobTasks.digest, JobTasks.state, JobTasks.attempt
        )
        .where(JobTasks.run_id == run_id)
        .order_by(JobTasks.position)
    )
    return [
        (one, position, digest, state, attempt) for one, position, digest, state, attempt in tuples(query)
    ]


def find_task(run_id: str, position: int) -> TaskRow | None:
    row = _FIND_TASK.first(run_id, position)
    return None if row is None else _task(row)


def _task(row: dict[str, Any]) -> TaskRow:
    return msgspec.convert(row, TaskRow, strict=False)


def running_tasks(run_id: str) -> list[TaskRow]:
    query = (
        JobTasks.select(*_TASK)
        .where((JobTasks.run_id == run_id) & (JobTasks.state == "running"))
        .order_by(JobTasks.position)
    )
    return [_task(row) for row in dicts(query)]


_CLAIM = Statement(
    lambda owner, turn_id, started_ms, run_id, position: JobTasks.update(
        state="running",
        owner=owner,
        turn_id=turn_id,
        session_id=None,
        started_ms=started_ms,
        attempt=JobTasks.attempt + 1,
    ).where((JobTasks.run_id == run_id) & (JobTasks.position == position) & (JobTasks.state == "pending")),
    *(str, str, int, str, int),
)


def claim_task(run_id: str, position: int, owner: str, turn_id: str, now_ms: int) -> bool:
    """Begin an attempt; False if the task is not open any more, or somebody else's."""
    return bool(_CLAIM.count(owner, turn_id, now_ms, run_id, position))


def release_task(run_id: str, position: int, turn_id: str, *, died: bool, cost_usd: str | None) -> bool:
    """Let an attempt that is over be followed by another; False if the task is not at that attempt."""
    query = JobTasks.update(
        state="pending",
        owner=None,
        deaths=JobTasks.deaths + (1 if died else 0),
        cost_usd=cost_usd,
    ).where(
        (JobTasks.run_id == run_id)
        & (JobTasks.position == position)
        & (JobTasks.state == "running")
        & (JobTasks.turn_id == turn_id)
    )
    return bool(query.execute())


_END_TASK = Statement(
    lambda state, session_id, ended_ms, exit_code, cost_usd, sequence, record, run_id, position, turn_id: (
        JobTasks.update(
            state=state,
            owner=None,
            session_id=session_id,
            ended_ms=ended_ms,
            exit_code=exit_code,
            cost_usd=cost_usd,
            ended_sequence=sequence,
            record=record,
        ).where(
            (JobTasks.run_id == run_id)
            & (JobTasks.position == position)
            & (JobTasks.state == "running")
            & (JobTasks.turn_id == turn_id)
        )
    ),
    *(str, str, int, int, str, int, bytes, str, int, str),
)
_NEXT_SEQUENCE = Statement(
    lambda run_id: JobRuns.update(ended_tasks=JobRuns.ended_tasks + 1).where(JobRuns.id == run_id), str
)
_SEQUENCE = Statement(lambda run_id: JobRuns.select(JobRuns.ended_tasks).where(JobRuns.id == run_id), str)


def _next_sequence(run_id: str) -> int:
    _NEXT_SEQUENCE.run(run_id)
    return int(_SEQUENCE.tuples(run_id)[0][0])


def end_task(
    run_id: str,
    position: int,
    turn_id: str,
    *,
    state: TaskState,
    session_id: str | None,
    ended_ms: int,
    exit_code: int | None,
    cost_usd: str | None,
    record: bytes,
) -> int | None:
    """End the attempt, and the task with it; its place among those that are over, None where it is not at that
    attempt.  Inside a transaction."""
    sequence = _next_sequence(run_id)
    count = _END_TASK.count(
        state, session_id, ended_ms, exit_code, cost_usd, sequence, record, run_id, position, turn_id
    )
    return sequence if count else None


def leave_task(run_id: str, position: int, state: TaskState, ended_ms: int, record: bytes) -> int | None:
    """End a task that had no turn; its place among those that are over.  Inside a transaction."""
    sequence = _next_sequence(run_id)
    query = JobTasks.update(state=state, ended_ms=ended_ms, ended_sequence=sequence, record=record).where(
        (JobTasks.run_id == run_id) & (JobTasks.position == position) & (JobTasks.state == "pending")
    )
    return sequence if query.execute() else None


def reopen_tasks(run_id: str, positions: Iterable[int]) -> None:
    """Tasks that are over are open again; what their attempts cost stays."""
    for position in positions:
        JobTasks.update(
            state="pending",
            owner=None,
            deaths=0,
            ended_ms=None,
            ended_sequence=None,
            exit_code=None,
            record=None,
        ).where((JobTasks.run_id == run_id) & (JobTasks.position == position)).execute()


def find_record(run_id: str, position: int) -> bytes | None:
    """The record of a task that is over."""
    query = JobTasks.select(JobTasks.record).where(
        (JobTasks.run_id == run_id) & (JobTasks.position == position)
    )
    return next((bytes(record) for (record,) in tuples(query) if record is not None), None)


def ended_behind(run_id: str, sequence: int, limit: int) -> list[tuple[TaskRow, bytes]]:
    """Tasks that are over, in the order in which they ended, those behind `sequence`, with their records."""
    query = (
        JobTasks.select(*_TASK, JobTasks.record)
        .where((JobTasks.run_id == run_id) & (JobTasks.ended_sequence > sequence))
        .order_by(JobTasks.ended_sequence)
        .limit(limit)
    )
    return [(_task(row), record) for row, record in _with_records(dicts(query))]


def _with_records(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], bytes]]:
    for row in rows:
        record = row.pop("record")
        yield row, bytes(record or b"")


def page_tasks(run_id: str, after: int, limit: int) -> list[tuple[TaskRow, bytes]]:
    """Tasks of a run in their places, those behind `after`, with their records (empty while open)."""
    query = (
        JobTasks.select(*_TASK, JobTasks.record)
        .where((JobTasks.run_id == run_id) & (JobTasks.position > after))
        .order_by(JobTasks.position)
        .limit(limit)
    )
    return [(_task(row), record) for row, record in _with_records(dicts(query))]


def unsuccessful(run_id: str, limit: int) -> list[tuple[TaskRow, bytes]]:
    """The first tasks of a run, in their places, that had a turn and did not succeed, with their records."""
    query = (
        JobTasks.select(*_TASK, JobTasks.record)
        .where((JobTasks.run_id == run_id) & JobTasks.exit_code.is_null(False) & (JobTasks.exit_code != 0))
        .order_by(JobTasks.position)
        .limit(limit)
    )
    return [(_task(row), record) for row, record in _with_records(dicts(query))]


def count_states(run_id: str) -> dict[TaskState, int]:
    query = (
        JobTasks.select(JobTasks.state, fn.COUNT(JobTasks.position))
        .where(JobTasks.run_id == run_id)
        .group_by(JobTasks.state)
    )
    return dict(tuples(query))


def exit_codes(run_id: str) -> set[int]:
    """The distinct exit codes of tasks that are over without success."""
    query = (
        JobTasks.select(JobTasks.exit_code)
        .where((JobTasks.run_id == run_id) & JobTasks.exit_code.is_null(False) & (JobTasks.exit_code != 0))
        .distinct()
    )
    return {code for (code,) in tuples(query)}


def costs(run_id: str) -> list[str | None]:
    """What the attempts of each task have cost; None where that is not known."""
    return [cost for (cost,) in tuples(JobTasks.select(JobTasks.cost_usd).where(JobTasks.run_id == run_id))]
