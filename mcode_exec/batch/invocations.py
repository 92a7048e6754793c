"""The invocation that an attempt of a task comes to."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from mcode_exec.batch.plan import Texts
from mcode_exec.batch.templates import text_of
from mcode_exec.errors import InvocationError
from mcode_exec.executor.workspaces import RECORDED
from mcode_exec.ids import new_run_id
from mcode_exec.records.invocation import CHECK_ATTEMPTS, Check, FlagRule, Invocation
from mcode_exec.records.job import JobSpec, PlannedTask, TaskSettings
from mcode_exec.records.labels import check_label

#: what cannot stand in the name of an environment variable
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]+")


def invocation_of(
    task: PlannedTask,
    texts: Texts,
    *,
    runner: Invocation,
    spec: JobSpec,
    turn_id: str,
    attempt: int,
    session_id: str | None,
) -> Invocation:
    """The invocation of one attempt; `session_id`: of the task that its session comes from, where it wants one.

    Raises: InvocationError.
    """
    if not texts.prompt.strip():
        raise InvocationError(f"the prompt of task {task.id} is empty")
    for key, value in texts.labels.items():
        check_label(key, value)
    settings = task.settings
    session = _session_fields(task, texts, session_id)
    is_new = not ("session" in session or "continue_latest" in session)
    wants_worktree = bool(settings.worktree) and is_new
    return Invocation(
        run_id=new_run_id(),
        turn_id=turn_id,
        prompt=texts.prompt,
        files=settings.files or (),
        worktree=wants_worktree,
        worktree_branch=_branch_of(texts, attempt) if wants_worktree else None,
        model=runner.model or settings.model,
        fallback_models=runner.fallback_models or settings.fallback_models or (),
        effort=settings.effort,
        agent=settings.agent,
        tools=settings.tools,
        no_project_instructions=bool(settings.no_project_instructions),
        system_prompt_file=settings.system_prompt_file,
        append_system_prompt=settings.append_system_prompt,
        title=texts.title,
        labels=tuple(texts.labels.items()),
        permission=settings.permission,
        rules=rules_of(settings),
        on_ask=settings.on_ask or "fail",
        env=settings.env or (),
        check=_check_of(task, spec),
        source="job" if runner.source == "api" else runner.source,
        timeout_s=settings.timeout,
        started_monotonic_s=time.monotonic(),
        max_steps=settings.max_steps,
        max_cost_usd=cost_limit(settings, spec),
        max_tokens=settings.max_tokens,
        deltas=False,
        config_file=runner.config_file,
        data_dir=runner.data_dir,
        trust_workspace=runner.trust_workspace,
        **{"cwd": settings.cwd or runner.cwd, **session},
    )


def _branch_of(texts: Texts, attempt: int) -> str | None:
    """The branch of an attempt: one before it may have left its own, with what it had come to."""
    return texts.branch if texts.branch is None or attempt == 1 else f"{texts.branch}-{attempt}"


def _session_fields(task: PlannedTask, texts: Texts, session_id: str | None) -> dict[str, Any]:
    """What says which session the task runs in."""
    kind, _, name = texts.session.partition(":")
    if kind == "key":
        if not name.strip():
            raise InvocationError(f"the session key of task {task.id} is empty")
        return {"session_key": name}
    if kind == "continue":
        return {"continue_latest": True}
    if kind == "id":
        return {"session": name}
    if kind == "from":
        return {"session": session_id, "cwd": RECORDED}
    if kind == "fork":
        return {"fork": session_id}
    return {}


def _check_of(task: PlannedTask, spec: JobSpec) -> Check | None:
    """What the task's answer has to stand, with the task's values as variables."""
    settings = task.settings
    if settings.check is None:
        return None
    attempts = CHECK_ATTEMPTS if settings.check_attempts is None else settings.check_attempts
    return Check(command=settings.check, attempts=attempts, environment=environment_of(spec, task.item))


def rules_of(settings: TaskSettings) -> tuple[FlagRule, ...]:
    """Allow rules before deny rules: the last match wins."""
    return (
        *(FlagRule(verdict="allow", text=text) for text in settings.allow or ()),
        *(FlagRule(verdict="deny", text=text) for text in settings.deny or ()),
    )


def cost_limit(settings: TaskSettings, spec: JobSpec) -> Decimal | None:
    """What a task may cost at most: its own limit, and never more than the job's."""
    limits = [limit for limit in (settings.max_cost, spec.job.max_cost) if limit is not None]
    return min(limits, default=None)


def environment_of(spec: JobSpec, item: Mapping[str, Any] | None) -> tuple[tuple[str, str], ...]:
    """What commands of the task's own (`check`) get of its values: MCODE_ITEM_* and MCODE_VAR_*."""
    found: dict[str, str] = {}
    for prefix, values in (("MCODE_VAR_", spec.vars), ("MCODE_ITEM_", item or {})):
        for key, value in values.items():
            name = prefix + _NOT_IN_NAMES.sub("_", str(key)).strip("_").upper()
            found[name] = text_of(value).replace("\0", "\ufffd")
    return tuple(found.items())


def writes(settings: TaskSettings) -> bool:
    """Whether a task may change files of its workspace."""
    return settings.permission != "read-only" and settings.tools != ()
