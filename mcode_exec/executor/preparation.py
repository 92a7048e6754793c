"""Everything a turn needs before it is submitted: prompt, model, permissions, session, request.

What can be refused is refused here, before any session is made; the session is
the last thing that is chosen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mcode_exec.errors import InvocationError
from mcode_exec.executor import settings as resolving
from mcode_exec.executor.choice import Choice, choose
from mcode_exec.executor.models import ResolvedModel, resolve_model
from mcode_exec.executor.prompt import Prompt, read_prompt
from mcode_exec.executor.settings import Settings
from mcode_exec.ids import new_turn_id
from mcode_exec.output.sink import Sink
from mcode_exec.permissions.rules import RuleSet
from mcode_exec.records.history import FileBlock, ImageBlock
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.permission import Preset
from mcode_exec.records.session import Project, Session
from mcode_exec.records.turn import TurnRequest
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import finding, making
from mcode_exec.sessions.finding import Found
from mcode_exec.store import session_rows, turn_rows
from mcode_exec.workspace import git

if TYPE_CHECKING:
    from mcode_exec.config import AgentConfig
    from mcode_exec.executor.runtime import Runtime


class Prepared:
    """A turn that is ready to be submitted."""

    def __init__(
        self,
        *,
        settings: Settings,
        prompt: Prompt,
        model: ResolvedModel,
        agent: AgentConfig | None,
        effort: str | None,
        preset: Preset,
        rules: RuleSet,
        base_prompt: str | None,
        choice: Choice,
        git_root: str | None,
        request: TurnRequest,
        redactor: Redactor,
        notices: Iterable[tuple[str, str]],
    ) -> None:
        self.settings = settings
        self.prompt = prompt
        self.model = model
        self.agent = agent
        self.effort = effort
        self.preset = preset
        self.rules = rules
        #: text of --system-prompt-file
        self.base_prompt = base_prompt
        self.choice = choice
        self.git_root = git_root
        self.request = request
        self.redactor = redactor
        self.notices = tuple(notices)
        #: the session made for this turn was removed again
        self.is_dropped = False


async def prepare(runtime: Runtime, invocation: Invocation, sink: Sink) -> Prepared:
    """Resolve an invocation.

    Raises: InvocationError, ConfigError, KeyMissingError, SessionError, StoreFailedError.
    """
    if invocation.request_id is not None and not invocation.request_id.strip():
        raise InvocationError("--request-id is empty")
    settings, workspace = await runtime.settings(invocation)
    config = settings.config
    redactor = Redactor((*secret_values(runtime.env, config.secret_env_names), *config.secret_literals))
    sink.redact_with(redactor)
    prompt = await read_prompt(invocation)
    base_prompt = None
    if invocation.system_prompt_file is not None:
        base_prompt = await resolving.read_system_prompt(invocation.system_prompt_file)
    git_root = git.find_root(workspace)
    project = await _project(runtime, workspace, git_root)
    found = await _existing_session(runtime, invocation, workspace, project)
    existing = found.session if found is not None else None
    agent, agent_notices = _agent_of(settings, existing)
    settings = resolving.with_agent(settings, agent, invocation)
    model = await resolve_model(
        runtime, settings, text=_model_text(invocation, settings, agent, existing), redactor=redactor
    )
    _check_attachments(prompt, model)
    resolving.check_price(settings.limits, model.info)
    preset, rules = resolving.rule_set(settings, agent, invocation, existing, is_new=existing is None)
    effort = invocation.effort or (existing.effort if existing is not None else None)
    choice = await choose(
        runtime.store,
        invocation,
        workspace=workspace,
        project=project,
        new_session=_new_session(
            runtime, invocation, project, workspace, prompt, model, agent, effort, redactor
        ),
        found=found,
    )
    await sink.session_known(choice.session.id)
    return Prepared(
        settings=settings,
        prompt=prompt,
        model=model,
        agent=agent,
        effort=effort,
        preset=preset,
        rules=rules,
        base_prompt=base_prompt,
        choice=choice,
        git_root=git_root,
        request=_request(invocation, choice, prompt, redactor),
        redactor=redactor,
        notices=(*prompt.notices, *agent_notices, *model.notices, *choice.notices),
    )


async def _existing_session(
    runtime: Runtime, invocation: Invocation, workspace: str, project: Project
) -> Found | None:
    """The session the invocation selects, if it exists already."""
    if invocation.session is not None:
        return await finding.find_named(runtime.store, invocation.session)
    if invocation.continue_latest:
        return await finding.find_latest(runtime.store, workspace, runtime.sessions_dir)
    if invocation.session_key is None and invocation.request_id is None:
        return None
    if invocation.session_key is not None:
        keyed = await finding.find_keyed(runtime.store, project, invocation.session_key)
        return None if keyed is None else Found(session=keyed)
    scope = f"project:{project.id}"
    request_id = invocation.request_id
    assert request_id is not None
    earlier = await runtime.store.read(lambda: turn_rows.find_request(scope, request_id))
    if earlier is None:
        return None
    return Found(session=await finding.find_exact(runtime.store, earlier.session_id))


def _agent_of(
    settings: Settings, existing: Session | None
) -> tuple[AgentConfig | None, list[tuple[str, str]]]:
    """The agent of this turn: the flag's, else the session's if the config still has it."""
    if settings.agent is not None or existing is None or existing.agent is None:
        return settings.agent, []
    agent = settings.config.agents.get(existing.agent)
    if agent is None:
        return None, [
            ("agent.missing", f"the config has no agent {existing.agent!r} any more; it is left out")
        ]
    return agent, []


def _model_text(
    invocation: Invocation, settings: Settings, agent: AgentConfig | None, existing: Session | None
) -> str | None:
    """What names the model: flag, agent of this turn, session, agent of the session, config."""
    if invocation.model is not None:
        return invocation.model
    if invocation.agent is not None and agent is not None and agent.model is not None:
        return agent.model
    if existing is not None and existing.provider_id is not None and existing.model_id is not None:
        variant = f"#{existing.variant}" if existing.variant else ""
        return f"{existing.provider_id}/{existing.model_id}{variant}"
    if agent is not None and agent.model is not None:
        return agent.model
    return settings.config.model


async def _project(runtime: Runtime, workspace: str, root: str | None) -> Project:
    """The project of a workspace; what names a repository is looked up once per checkout."""
    repository = None
    if root is not None:
        key = git.directory_key(root)
        if key is not None:
            repository = await runtime.store.read(lambda: session_rows.find_repository(key))
        if repository is None:
            repository = await asyncio.to_thread(git.root_commit, root)
            if key is not None and repository is not None:
                found = repository
                await runtime.store.write(lambda: session_rows.put_repository(key, found))
    return making.project_of(workspace, repository, runtime.clock.now_ms())


def _check_attachments(prompt: Prompt, model: ResolvedModel) -> None:
    """An attachment that the model cannot see would be answered all the same."""
    if prompt.attachments and not model.info.takes_images:
        names = ", ".join(
            block.filename or block.mime
            for block in prompt.content
            if isinstance(block, ImageBlock | FileBlock)
        )
        raise InvocationError(
            f"--file {names}: {model.info.ref} takes no images; `mcode models` shows which do"
        )


def _new_session(
    runtime: Runtime,
    invocation: Invocation,
    project: Project,
    workspace: str,
    prompt: Prompt,
    model: ResolvedModel,
    agent: AgentConfig | None,
    effort: str | None,
    redactor: Redactor,
) -> Session:
    now_ms = runtime.clock.now_ms()
    title, is_default = making.title_of(redactor.text(invocation.title or prompt.text), now_ms)
    session = making.new_session(
        project_id=project.id,
        workspace=workspace,
        title=title,
        title_is_default=is_default,
        now_ms=now_ms,
        session_key=invocation.session_key,
        labels=dict(invocation.labels),
        permission=resolving.permission_of(invocation),
    )
    from msgspec import structs

    ref = model.info.ref
    return structs.replace(
        session,
        provider_id=ref.provider_id,
        model_id=ref.model_id,
        variant=ref.variant,
        effort=effort,
        agent=agent.name if agent is not None else None,
        context_tokens=model.info.context_tokens,
    )


def _request(invocation: Invocation, choice: Choice, prompt: Prompt, redactor: Redactor) -> TurnRequest:
    session = choice.session
    has_selector = bool(invocation.session or invocation.continue_latest or invocation.session_key)
    scope = f"session:{session.id}" if has_selector else f"project:{choice.project.id}"
    request_id = invocation.request_id
    return TurnRequest(
        session_id=session.id,
        turn_id=new_turn_id(),
        digest=prompt.digest(),
        request_id=request_id,
        request_scope=scope if request_id is not None else None,
        title=None if invocation.title is None else redactor.text(invocation.title),
        labels=dict(invocation.labels),
        rebind_workspace=choice.workspace if choice.is_rebound else None,
        rebind_project_id=choice.project.id if choice.is_rebound else None,
    )
