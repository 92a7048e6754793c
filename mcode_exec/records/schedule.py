"""Schedules, and what became of each of their due times.  docs/schedules.md."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from msgspec import Struct

from mcode_exec.records.job import CatchUp, OnOverlap, TaskSettings

#: what becomes of a run whose process ended under it: it is over, or the next caller goes on with it
WhenInterrupted = Literal["leave", "resume"]
#: `due`: nobody has begun it; `missed`: it was not to be run any more; `skipped`: another run was under way;
#: `interrupted`: its process died
DueState = Literal["due", "running", "succeeded", "failed", "cancelled", "skipped", "missed", "interrupted"]
#: not over
OPEN_STATES: frozenset[DueState] = frozenset(("due", "running"))
#: over, and somebody should know
FAILED_STATES: frozenset[DueState] = frozenset(("failed", "cancelled", "interrupted"))


class Schedule(Struct, frozen=True, kw_only=True):
    """What is to run, and when."""

    id: str
    name: str
    #: as its author wrote it: five fields, or a word such as `@daily`
    cron: str
    #: IANA name
    timezone: str
    catch_up: CatchUp
    on_overlap: OnOverlap
    when_interrupted: WhenInterrupted
    workspace: str
    #: a job spec, read when it is due; else there is a prompt
    spec_path: str | None = None
    prompt: str | None = None
    #: read when it is due
    prompt_file: str | None = None
    #: of a prompt: `new`, or `key:NAME`
    session: str = "new"
    #: of a prompt; of a spec what its model flags override
    settings: TaskSettings = TaskSettings()
    #: command that is told of each run that did not succeed; no shell reads it
    on_failure: tuple[str, ...] = ()
    config_file: str | None = None
    trust_workspace: bool = False
    is_paused: bool = False
    #: why nothing can be due, such as a time zone that is gone
    problem: str | None = None
    #: due times up to here have rows
    cursor_ms: int
    #: the first due time behind the cursor; None: it cannot be told
    next_ms: int | None
    created_ms: int
    updated_ms: int


class DueRun(Struct, frozen=True, kw_only=True):
    """A due time, and what became of it; of `missed` ones a row stands for all that were missed in a row."""

    schedule_id: str
    due_ms: int
    state: DueState
    #: the last due time that the row stands for
    until_ms: int
    #: due times that it stands for; None: too many to count
    count: int | None = 1
    owner: str | None = None
    #: processes that began it, and those of them that died
    attempt: int = 0
    deaths: int = 0
    #: what `mcode jobs status` knows it by
    job_run_id: str | None = None
    #: where it was a single turn
    session_id: str | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    exit_code: int | None = None
    error_code: str | None = None
    error: str | None = None
    #: null: not known
    cost_usd: Decimal | None = None
    #: `pending`, or how the failure command ended: its exit code, or a word
    hook: str | None = None


class ErrorOfRun(Struct, frozen=True, kw_only=True):
    #: null where no turn failed, such as for a due time that was missed
    code: str | None
    message: str


class ScheduleRunRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of `schedule run-due --output-format jsonl`, and of `schedule history`."""

    schema_version: Literal[1] = 1
    type: Literal["schedule.run"] = "schedule.run"
    schedule: str
    due_ms: int
    #: the same in the zone of the schedule, as ISO 8601 with its offset
    due_at: str
    status: DueState
    exit_code: int | None
    attempt: int
    job_run_id: str | None
    session_id: str | None
    started_at_ms: int | None
    ended_at_ms: int | None
    cost_usd: Decimal | None
    error: ErrorOfRun | None
    #: of `missed`: the last due time that it stands for, and how many; null: too many to count
    until_ms: int | None = None
    count: int | None = 1
    #: how the failure command ended
    hook: str | None = None


class ScheduleRowRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """A row of `schedule list`."""

    name: str
    #: `active`, `paused`, or `broken`: it can have no due time
    state: Literal["active", "paused", "broken"]
    cron: str
    timezone: str
    next_ms: int | None
    next_at: str | None
    #: of the last due time that was to be run
    last_due_ms: int | None
    last_due_at: str | None
    last_status: DueState | None
    last_exit_code: int | None
    last_error: str | None
    catch_up: CatchUp
    on_overlap: OnOverlap
    when_interrupted: WhenInterrupted
    workspace: str
    spec_path: str | None
    prompt: str | None
    prompt_file: str | None
    session: str
    on_failure: tuple[str, ...]
    problem: str | None


class RunDueResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """What `schedule run-due --output-format json` prints."""

    schema_version: Literal[1] = 1
    type: Literal["schedule.result"] = "schedule.result"
    exit_code: int
    runs: tuple[ScheduleRunRecord, ...]
