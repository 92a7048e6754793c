"""Job specs, the tasks they come to, and what becomes of a job run.  docs/jobs.md, docs/contract.md §10."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct

from mcode_exec.records.permission import Preset
from mcode_exec.records.result import ErrorInfo, Result

#: a task of a run; those from `succeeded` on are over
TaskState = Literal[
    "pending",
    "running",
    "succeeded",
    "failed",
    "timeout",
    "cancelled",
    "limit_exceeded",
    "interaction_required",
    "skipped",
    "not_run",
]
#: over, but without a turn: its condition did not hold; the run ended before it was its turn
UNRUN: frozenset[TaskState] = frozenset(("skipped", "not_run"))
OPEN: frozenset[TaskState] = frozenset(("pending", "running"))

#: `interrupted`: its process died, the same run id goes on with it
RunState = Literal["running", "succeeded", "failed", "cancelled", "interrupted"]
OnOverlap = Literal["skip", "wait", "replace"]
CatchUp = Literal["none", "one", "all"]
#: a value of `vars`, of an item or of a matrix
Value = Any


class TaskSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of `mcode exec` a spec can say; None: what `[defaults]`, else the configuration, says."""

    model: str | None = None
    fallback_models: tuple[str, ...] | None = None
    effort: str | None = None
    agent: str | None = None
    tools: tuple[str, ...] | None = None
    append_system_prompt: str | None = None
    system_prompt_file: str | None = None
    no_project_instructions: bool | None = None
    files: tuple[str, ...] | None = None
    cwd: str | None = None
    permission: Preset | None = None
    #: allow rules stand before deny rules: the last match wins
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    on_ask: Literal["fail", "deny"] | None = None
    env: tuple[str, ...] | None = None
    #: seconds
    timeout: float | None = None
    max_steps: int | None = None
    max_cost: Decimal | None = None
    max_tokens: int | None = None
    title: str | None = None
    labels: Mapping[str, str] | None = None
    #: a git worktree of its own for each attempt
    worktree: bool | None = None
    worktree_branch: str | None = None
    #: tasks that write may run beside each other in one workspace
    shared_workspace: bool | None = None
    check: str | None = None
    check_attempts: int | None = None
    #: further attempts of this run after one that did not succeed
    retries: int | None = None


class TaskSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of `[[tasks]]`, or a line of a JSON Lines file."""

    id: str
    prompt: str
    #: the file and line that it stands on, for people
    place: str
    needs: tuple[str, ...] = ()
    when: str | None = None
    #: `new`, `key:NAME`, `continue`, `id:ID`, `from:TASK`, `fork:TASK`
    session: str = "new"
    #: one task for each of them, with the id behind the `/`
    items: tuple[tuple[str, Mapping[str, Value]], ...] | None = None
    settings: TaskSettings = TaskSettings()


class JobTable(Struct, frozen=True, kw_only=True):
    """`[job]`."""

    name: str
    #: tasks at once
    concurrency: int = 4
    #: USD, of all tasks together
    max_cost: Decimal | None = None
    #: so many tasks that did not succeed end the run
    max_failures: int | None = None
    #: seconds, of the whole run
    timeout: float | None = None
    on_overlap: OnOverlap = "skip"


class ScheduleTable(Struct, frozen=True, kw_only=True):
    """`[schedule]`: what `mcode schedule add NAME SPEC` takes over."""

    cron: str
    timezone: str | None = None
    catch_up: CatchUp = "one"


class JobSpec(Struct, frozen=True, kw_only=True):
    """A spec file, read and checked."""

    path: str
    job: JobTable
    vars: Mapping[str, Value]
    tasks: tuple[TaskSpec, ...]
    schedule: ScheduleTable | None = None


class PlannedTask(Struct, frozen=True, kw_only=True):
    """One task of a run: an entry of the spec, or one of the many that its items make of it."""

    id: str
    #: its place in the plan, from 0
    position: int
    spec: TaskSpec
    #: `[defaults]` and its own
    settings: TaskSettings
    item: Mapping[str, Value] | None
    #: ids of the planned tasks that each need stands for, in their order
    needs: Mapping[str, tuple[str, ...]]
    #: of everything that says what it does, but for the outputs of its needs
    digest: str


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that a spec comes to; a task stands behind those that it needs."""

    spec: JobSpec
    tasks: tuple[PlannedTask, ...]


class TaskRow(Struct, frozen=True, kw_only=True):
    """What the store knows of a task of a run."""

    run_id: str
    task_id: str
    position: int
    digest: str
    state: TaskState
    #: attempts that were begun
    attempt: int = 0
    #: processes that died while they ran it
    deaths: int = 0
    #: who runs it
    owner: str | None = None
    turn_id: str | None = None
    session_id: str | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    exit_code: int | None = None
    #: of all attempts; None: not known
    cost_usd: Decimal | None = Decimal(0)
    #: its place among the tasks of the run that are over, from 1; None while it is open
    ended_sequence: int | None = None


class RunRow(Struct, frozen=True, kw_only=True):
    """What the store knows of a job run."""

    id: str
    job_name: str
    spec_path: str
    workspace: str
    state: RunState
    owner: str | None
    started_ms: int
    ended_ms: int | None = None
    exit_code: int | None = None
    cancel_ms: int | None = None


class TaskRecord(Result, frozen=True, kw_only=True, rename="camel"):
    """A line of `--results`: the result of the task's last attempt, and which task it was."""

    task_id: str
    task_attempt: int
    started_at_ms: int | None


class UnrunTask(Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of `--results` for a task that had no turn."""

    schema_version: Literal[1] = 1
    type: Literal["job.task"] = "job.task"
    task_id: str
    status: Literal["skipped", "not_run"]
    exit_code: None = None
    reason: str


class TaskCounts(Struct, frozen=True, kw_only=True, rename="camel"):
    total: int = 0
    succeeded: int = 0
    #: in any way that is no success, with a turn
    unsuccessful: int = 0
    skipped: int = 0
    not_run: int = 0


class TaskSummary(Struct, frozen=True, kw_only=True, rename="camel"):
    """A task as summaries and reports show it."""

    task_id: str
    status: TaskState
    attempt: int
    exit_code: int | None
    session_id: str | None
    started_at_ms: int | None
    duration_ms: int | None
    cost_usd: Decimal | None
    error: ErrorInfo | None = None
    #: why it had no turn
    reason: str | None = None
    branch: str | None = None
    #: the first 2,000 characters of its answer, for reports
    output: str | None = None


class JobResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """What `mcode jobs run --output-format json` prints, and what reports are made of."""

    schema_version: Literal[1] = 1
    type: Literal["job.result"] = "job.result"
    run_id: str
    job_name: str
    status: Literal["succeeded", "failed", "cancelled", "skipped"]
    exit_code: int
    counts: TaskCounts = TaskCounts()
    #: the first 100 that did not succeed
    failures: tuple[TaskSummary, ...] = ()
    #: null when the cost of a call is not known
    cost_usd: Decimal | None = None
    started_at_ms: int = 0
    duration_ms: int = 0
    #: what ended the run before every task had its turn
    stopped_by: str | None = None
