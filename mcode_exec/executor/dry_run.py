"""`--dry-run`: what would run, with the source of each value; no model call, and nothing made or changed.

Invariant: a run that could not start ends a dry run too, with the same error
and in the same order: outputs, data directory, configuration, input, session,
model.  What only happens later (a busy session, the provider's answer) is not
foreseen.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcode_exec import config as configuration
from mcode_exec import paths
from mcode_exec.clock import SystemClock
from mcode_exec.config import Config
from mcode_exec.executor import settings as resolving
from mcode_exec.executor.choice import check_worktree, place, shared_worktree
from mcode_exec.executor.effort import FALLBACK_FLAG, effort_of, effort_of_fallback
from mcode_exec.executor.inherited import holding_of, read_elsewhere
from mcode_exec.executor.models import Reach, catalogue_of, check_distinct, reach
from mcode_exec.executor.prompt import Prompt
from mcode_exec.executor.runtime import check_data_directory
from mcode_exec.executor.turn_plan import (
    Input,
    TurnPlan,
    check_attachments,
    find_repository,
    plan_turn,
    read_base_prompt,
    read_input,
)
from mcode_exec.executor.workspaces import recorded_workspace, workspace_of, workspace_recorded
from mcode_exec.ids import new_session_id
from mcode_exec.output.files import check_target
from mcode_exec.permissions.judge import Judge
from mcode_exec.permissions.places import Scope
from mcode_exec.records.history import TextBlock
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.session import Project
from mcode_exec.sessions import making
from mcode_exec.store.database import Store
from mcode_exec.workspace import git


async def describe(invocation: Invocation, prompt: Prompt | None = None) -> dict[str, Any]:
    """The resolved invocation as plain values; `prompt`: what it says, where the invocation does not.

    Raises what the run itself would raise before its first model call.
    """
    env = dict(os.environ)
    outputs = _checked_outputs(
        invocation, None if invocation.ephemeral else paths.find_data_dir(invocation.data_dir, env)
    )
    data = None if invocation.ephemeral else paths.data_dir(invocation.data_dir, env)
    if data is not None:
        check_data_directory(data)
    inherited = None
    if invocation.ephemeral and invocation.fork is not None:
        inherited = await read_elsewhere(invocation, env)
    async with _looking(data) as store:
        workspace = workspace_of(invocation, env)
        if workspace is None and inherited is not None:
            workspace = workspace_recorded(invocation, inherited.source.session)
        elif workspace is None:
            workspace = await recorded_workspace(store, invocation)
        settings = resolving.resolve(invocation, env, workspace)
        given = await _given(invocation, prompt)
        repository, _ = await find_repository(store, git.find_root(workspace))
        project = making.project_of(workspace, repository, SystemClock().now_ms())
        plan = await plan_turn(
            store,
            "" if data is None else paths.sessions_dir(data),
            invocation,
            settings,
            workspace=workspace,
            project=project,
            is_held=holding_of(data) if data is not None else lambda _lock: False,
            inherited=inherited,
        )
    worktree = await asyncio.to_thread(_worktree, invocation, plan, workspace, project, data)
    directory = workspace if worktree is None else str(worktree.get("directory", workspace))
    catalogue = catalogue_of(settings.config, data)
    found = await asyncio.to_thread(reach, plan.model_text, settings.config, env, catalogue)
    check_attachments(given.prompt, found.info)
    resolving.check_price(settings.limits, found.info)
    effort = effort_of(invocation.effort, plan, found.info.ref, found.api)
    fallbacks = [
        await asyncio.to_thread(reach, text, settings.config, env, catalogue)
        for text in invocation.fallback_models
    ]
    for fallback in fallbacks:
        resolving.check_price(settings.limits, fallback.info)
        effort_of_fallback(invocation.effort, fallback.info.ref, fallback.api)
    check_distinct((found, *fallbacks))
    if invocation.record is not None:
        from mcode_exec.executor.tape import check_not_played

        check_not_played(outputs["--record"], (one.recording for one in (found, *fallbacks)))
    scope = Scope(
        workspace=directory,
        home=paths.home(env),
        temp_dir=None,
        data_dir=data,
        own_dirs=paths.own_directories(env),
    )
    check = invocation.check
    return {
        "invocation": {
            "workspace": workspace,
            "session": _session(invocation, plan),
            "worktree": worktree,
            **_prompt(invocation, given.prompt),
            "dataDir": data,
            "agent": plan.agent.name if plan.agent is not None else None,
            "effort": effort.level,
            "onAsk": invocation.on_ask,
            "outputFormat": invocation.output_format,
            "outputs": outputs,
            "timeoutSeconds": settings.timeout_s,
            "check": None if check is None else {"command": check.command, "attempts": check.attempts},
        },
        "model": _model(found, plan.model_source, settings.config),
        "fallbackModels": [_model(fallback, FALLBACK_FLAG, settings.config) for fallback in fallbacks],
        "limits": _limits(plan),
        "config": {
            "files": list(settings.config.files),
            "isWorkspaceTrusted": settings.config.is_workspace_trusted,
            "sources": settings.config.sources,
        },
        "tools": list(plan.settings.tools) if found.info.takes_tools else [],
        "permission": {
            "preset": plan.preset,
            "rules": Judge(plan.rules, scope).describe(),
            **_inherited(plan, scope),
        },
    }


def _inherited(plan: TurnPlan, scope: Scope) -> dict[str, Any]:
    """The rules of the sessions above this one, where there are any."""
    layers = [
        {"preset": rules.preset, "rules": Judge(rules, scope).describe()} for rules in plan.parent_rules
    ]
    return {"inherited": layers} if layers else {}


async def _given(invocation: Invocation, prompt: Prompt | None) -> Input:
    if prompt is None:
        return await read_input(invocation)
    return Input(prompt=prompt, base_prompt=await read_base_prompt(invocation))


def _checked_outputs(invocation: Invocation, data: str | None) -> dict[str, str]:
    """The files that the run would write, by flag.  Raises: OutputWriteFailedError."""
    targets = {
        "--events": invocation.events_file,
        "-o": invocation.output_file,
        "--result": invocation.result_file,
        "--session-id-file": invocation.session_id_file,
    }
    given = {flag: path for flag, path in targets.items() if path is not None}
    for flag, path in given.items():
        check_target(flag, path, data=data)
    if invocation.record is not None:
        from mcode_exec.executor.tape import target_of

        given["--record"] = target_of(invocation.record, os.environ, data)
    return given


@asynccontextmanager
async def _looking(data: str | None) -> AsyncIterator[Store]:
    """The store as it stands; an empty one where there is none."""
    path = None if data is None else paths.database_file(data)
    store = await Store.open_read_only(path, SystemClock())
    try:
        yield store
    finally:
        await store.close()


def _session(invocation: Invocation, plan: TurnPlan) -> dict[str, Any]:
    """What the turn would continue; without an id it begins a session."""
    session = plan.session
    if session is not None:
        return {
            "id": session.id,
            "workspace": session.workspace,
            "title": session.title,
            "status": session.shown_status,
        }
    if plan.source is not None:
        return {
            "id": None,
            "isPrivate": invocation.ephemeral,
            "forkedFrom": plan.source.session.id,
            "forkedAt": plan.source.at,
        }
    return {"id": None, "isPrivate": invocation.ephemeral, "key": invocation.session_key}


def _worktree(
    invocation: Invocation, plan: TurnPlan, workspace: str, project: Project, data: str | None
) -> dict[str, Any] | None:
    """The worktree that the turn would work in, or that would be made for it.

    Raises: SessionError for one that is gone, InvocationError where none can be made.
    """
    session = plan.session
    if session is not None:
        if invocation.session_key is not None:
            check_worktree(session, invocation)
        location = place(session, invocation, workspace, project, ()).run_location
        if location is None:
            return None
        return {"path": location.path, "branch": location.branch, "directory": location.directory}
    if not invocation.worktree:
        return None
    from mcode_exec.executor.worktrees import plan_worktree

    shared = None if plan.source is None else shared_worktree(workspace, plan.source.session)
    directory = workspace if shared is None else shared.directory
    planned = plan_worktree(data or "", directory, new_session_id(), invocation.worktree_branch)
    return {"repository": planned.repository, "branch": planned.branch, "commit": planned.commit}


def _prompt(invocation: Invocation, prompt: Prompt) -> dict[str, Any]:
    # each file is one block, after the words
    words = prompt.content[: len(prompt.content) - len(invocation.files)]
    return {
        "prompt": prompt.text[:500],
        "promptBytes": sum(len(block.text.encode()) for block in words if isinstance(block, TextBlock)),
        "attachments": [os.path.basename(path) for path in invocation.files],
    }


def _model(found: Reach, source: str, config: Config) -> dict[str, Any]:
    info, endpoint = found.info, found.endpoint
    described: dict[str, Any] = {
        "name": str(info.ref),
        "source": source,
        "contextTokens": info.context_tokens,
        "outputTokens": info.output_tokens,
        "limitsFrom": info.source,
        "priceUsdPerMillion": None
        if info.price is None
        else {"input": str(info.price.input), "output": str(info.price.output)},
    }
    if found.recording is not None:
        described["recording"] = found.recording.directory
    if endpoint is not None:
        provider = config.providers.get(info.ref.provider_id)
        key_source = None if provider is None else configuration.key_source(provider)
        described["api"] = endpoint.api
        described["keyFrom"] = endpoint.key_env or key_source
    return described


def _limits(plan: TurnPlan) -> Mapping[str, Any]:
    limits = plan.settings.limits
    return {
        "maxSteps": limits.max_steps,
        "maxCostUsd": None if limits.max_cost_usd is None else str(limits.max_cost_usd),
        "maxTokens": limits.max_tokens,
        "sources": limits.sources,
    }
