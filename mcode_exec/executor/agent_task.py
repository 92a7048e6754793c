"""What one turn's agent gets: its model, tools, limits, and a system prompt with the facts of this place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcode_exec.agent.instructions import Instructions, read_instructions
from mcode_exec.agent.ports import AgentTask, Callee
from mcode_exec.agent.system_prompt import PromptFacts, system_prompt
from mcode_exec.config import agent_prompt
from mcode_exec.executor.models import ResolvedModel
from mcode_exec.executor.preparation import Prepared
from mcode_exec.records.invocation import Invocation
from mcode_exec.tools import registry
from mcode_exec.workspace import git

if TYPE_CHECKING:
    from mcode_exec.permissions.judge import Judge


def agent_task(
    invocation: Invocation,
    prepared: Prepared,
    *,
    session_id: str,
    turn_id: str,
    judge: Callable[[], Judge],
    now_ms: int,
) -> tuple[AgentTask, tuple[tuple[str, str], ...]]:
    """The task, and the notices (code, message) of the instructions that went into it.

    `judge` is asked only where a rule may hide a tool.
    """
    model = prepared.model
    hidden: frozenset[str] = frozenset()
    if any(rules.may_hide for rules in (prepared.rules, *prepared.other_rules)):
        hidden = frozenset(name for name in prepared.settings.tools if judge().hides(_permission_of(name)))
    offered = [name for name in prepared.settings.tools if name not in hidden]
    tools = registry.schemas(offered) if model.info.takes_tools else ()
    instructions = read_instructions(
        workspace=prepared.choice.directory,
        git_root=prepared.git_root,
        further=prepared.settings.config.instructions,
        with_project=not invocation.no_project_instructions,
    )
    task = AgentTask(
        turn_id=turn_id,
        agent=prepared.agent.name if prepared.agent else None,
        cache_key=prepared.choice.session.cache_key or session_id,
        callee=_callee(model, prepared.effort),
        fallbacks=tuple(_callee(model, effort) for model, effort in prepared.fallbacks),
        system=_system(
            invocation, prepared, instructions, tools=tuple(tool.name for tool in tools), now_ms=now_ms
        ),
        tools=tools,
        hidden_tools=hidden,
        limits=prepared.settings.limits,
        check=invocation.check,
        deadline_s=invocation.started_monotonic_s + prepared.settings.timeout_s
        if prepared.settings.timeout_s is not None
        else None,
    )
    return task, instructions.notices


def _callee(model: ResolvedModel, effort: str | None) -> Callee:
    return Callee(model=model.info, endpoint=model.endpoint, effort=effort, read_key=model.read_key)


def _system(
    invocation: Invocation,
    prepared: Prepared,
    instructions: Instructions,
    *,
    tools: tuple[str, ...],
    now_ms: int,
) -> str:
    head = git.head_state(prepared.git_root) if prepared.git_root is not None else None
    machine = os.uname()
    return system_prompt(
        PromptFacts(  # noqa: S604  `shell` is a fact here, not an order
            workspace=prepared.choice.directory,
            platform=f"{machine.sysname.lower()} {machine.machine}",
            shell="bash",
            date=time.strftime("%Y-%m-%d", time.gmtime(now_ms // 1000)),
            preset=prepared.preset,
            tools=tools,
            git_branch=head.branch if head is not None else None,
            instructions=instructions.sections,
            base_text=prepared.base_prompt,
            agent_prompt=agent_prompt(prepared.agent) if prepared.agent is not None else None,
            append_text=invocation.append_system_prompt,
            size="small" if prepared.model.is_small else "full",
        )
    )


def _permission_of(tool: str) -> str:
    return "edit" if tool in ("write", "edit") else tool
