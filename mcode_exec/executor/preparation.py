"""Everything a turn needs before it is submitted: prompt, model, permissions, session, request.

What can be refused is refused here, before any session is made; the session is
the last thing that is chosen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import structs

from mcode_exec.errors import InvocationError
from mcode_exec.executor import settings as resolving
from mcode_exec.executor.choice import Choice, choose
from mcode_exec.executor.delivery import Delivery, DrainerFlagsError, prompt_of
from mcode_exec.executor.effort import Effort, effort_of, effort_of_fallback, with_room
from mcode_exec.executor.models import ResolvedModel, check_distinct, resolve_model
from mcode_exec.executor.prompt import Prompt
from mcode_exec.executor.settings import Settings
from mcode_exec.executor.turn_plan import (
    Input,
    TurnPlan,
    check_attachments,
    find_repository,
    plan_turn,
    read_base_prompt,
    read_input,
)
from mcode_exec.ids import new_turn_id
from mcode_exec.output.sink import Sink
from mcode_exec.permissions.rules import RuleSet
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.operation import Operation
from mcode_exec.records.permission import Preset
from mcode_exec.records.session import Project, Session
from mcode_exec.records.turn import TurnRequest
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import making
from mcode_exec.sessions.titles import title_in
from mcode_exec.store import session_rows
from mcode_exec.turns.requests import project_scope, session_scope
from mcode_exec.turns.words import text_of
from mcode_exec.workspace import git

if TYPE_CHECKING:
    from mcode_exec.config import AgentConfig
    from mcode_exec.executor.retrying import Retry
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.turns.admission import Policy


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
        fallbacks: tuple[tuple[ResolvedModel, str | None], ...],
        preset: Preset,
        rules: RuleSet,
        drainer_rules: RuleSet | None,
        parent_rules: tuple[RuleSet, ...],
        base_prompt: str | None,
        choice: Choice,
        git_root: str | None,
        request: TurnRequest,
        redactor: Redactor,
        retry: Retry | None,
        notices: Iterable[tuple[str, str]],
    ) -> None:
        self.settings = settings
        self.prompt = prompt
        self.model = model
        self.agent = agent
        self.effort = effort
        #: what is called when the model has failed for good, with the effort of each
        self.fallbacks = fallbacks
        self.preset = preset
        self.rules = rules
        #: of the sessions above this one, and of the process that delivers it from the queue: the strictest count
        self.other_rules = (*parent_rules, *(() if drainer_rules is None else (drainer_rules,)))
        #: text of --system-prompt-file
        self.base_prompt = base_prompt
        self.choice = choice
        self.git_root = git_root
        self.request = request
        self.redactor = redactor
        #: another attempt of an earlier turn
        self.retry = retry
        self.policies: tuple[Policy, ...] = () if retry is None else (retry.policy(),)
        self.notices = tuple(notices)
        #: the session made for this turn was removed again
        self.is_dropped = False
        #: the session's last prompt was taken back for it
        self.has_rewound = False


async def prepare(
    runtime: Runtime,
    invocation: Invocation,
    sink: Sink,
    delivery: Delivery | None = None,
    given: Input | None = None,
    retry: Retry | None = None,
) -> Prepared:
    """Resolve an invocation; `delivery`: it comes from the queue, and says what that item says.

    `given`: what it says, where that was read before.  `retry`: it is another attempt of that turn.

    Raises: InvocationError, ConfigError, KeyMissingError, SessionError, StoreFailedError.
    """
    settings, workspace = await runtime.settings(invocation)
    config = settings.config
    redactor = Redactor((*secret_values(runtime.env, config.secret_env_names), *config.secret_literals))
    sink.redact_with(redactor)
    given = given or await _given(invocation, delivery, retry)
    project = await _project(runtime, workspace, git.find_root(workspace))
    plan = await plan_turn(
        runtime.store,
        runtime.sessions_dir,
        invocation,
        settings,
        workspace=workspace,
        project=project,
        is_held=runtime.is_held,
        inherited=runtime.inherited,
    )
    model = await resolve_model(runtime, settings, text=plan.model_text, redactor=redactor)
    check_attachments(given.prompt, model.info)
    resolving.check_price(settings.limits, model.info)
    effort = effort_of(invocation.effort, plan, model.info.ref, model.endpoint.api)
    effort = with_room(effort, model.info, model.endpoint, settings.limits.max_tokens)
    fallbacks = await _fallbacks(runtime, settings, invocation, model, redactor)
    session = _new_session(
        runtime, invocation, project, workspace, given.prompt, model, plan, effort.level, redactor
    )
    choice = await choose(
        invocation,
        workspace=workspace,
        project=project,
        new_id=session.id,
        create=lambda: _create(runtime, invocation, project, session, plan, redactor),
        found=plan.found,
    )
    if choice.is_rebound:  # its project may be one in which no session was made yet
        await runtime.store.write(lambda: session_rows.ensure_project(project))
    if not (choice.is_new and invocation.request_id):  # a known request has a session of its own
        await sink.session_known(choice.session.id)
    return Prepared(
        settings=plan.settings,
        prompt=given.prompt,
        model=model,
        agent=plan.agent,
        effort=effort.level,
        fallbacks=tuple((model, kept.level) for model, kept in fallbacks),
        preset=plan.preset,
        rules=plan.rules,
        drainer_rules=None if delivery is None else _drainer_rules(delivery, plan),
        parent_rules=plan.parent_rules
        if invocation.side_of is None
        else (_parent_rules(invocation, plan), *plan.parent_rules),
        base_prompt=given.base_prompt,
        choice=choice,
        git_root=git.find_root(choice.directory),
        request=_request(invocation, choice, given.prompt, redactor, retry)
        if delivery is None
        else _request_of(delivery, choice, redactor),
        redactor=redactor,
        retry=retry,
        notices=(
            *(() if retry is None else retry.notices()),
            *given.prompt.notices,
            *plan.notices,
            *effort.notices,
            *model.notices,
            *(notice for other, kept in fallbacks for notice in (*kept.notices, *other.notices)),
            *choice.notices,
        ),
    )


async def _given(invocation: Invocation, delivery: Delivery | None, retry: Retry | None) -> Input:
    """What the turn says: an item's words, an earlier turn's, or the invocation's own."""
    if delivery is not None:
        return Input(prompt=prompt_of(delivery.item), base_prompt=None)
    if retry is not None:
        return Input(prompt=retry.prompt(), base_prompt=await read_base_prompt(invocation))
    return await read_input(invocation)


async def _fallbacks(
    runtime: Runtime, settings: Settings, invocation: Invocation, model: ResolvedModel, redactor: Redactor
) -> list[tuple[ResolvedModel, Effort]]:
    """`--fallback-model`: whatever would stop one from being called is found before anything is begun."""
    found = []
    for text in invocation.fallback_models:
        other = await resolve_model(runtime, settings, text=text, redactor=redactor)
        resolving.check_price(settings.limits, other.info)
        effort = effort_of_fallback(invocation.effort, other.info.ref, other.endpoint.api)
        found.append((other, with_room(effort, other.info, other.endpoint, settings.limits.max_tokens)))
    check_distinct((model, *(other for other, _ in found)))
    if invocation.record is not None:
        from mcode_exec.executor.tape import check_not_played, target_of

        target = target_of(invocation.record, runtime.env, runtime.data)
        check_not_played(target, (model.recording, *(other.recording for other, _ in found)))
    return found


async def _project(runtime: Runtime, workspace: str, root: str | None) -> Project:
    """The project of a workspace; what names a repository is looked up once per checkout."""
    repository, key = await find_repository(runtime.store, root)
    if key is not None and repository is not None:
        await runtime.store.write(lambda: session_rows.put_repository(key, repository))
    return making.project_of(workspace, repository, runtime.clock.now_ms())


def _new_session(
    runtime: Runtime,
    invocation: Invocation,
    project: Project,
    workspace: str,
    prompt: Prompt,
    model: ResolvedModel,
    plan: TurnPlan,
    effort: str | None,
    redactor: Redactor,
) -> Session:
    now_ms = runtime.clock.now_ms()
    given = title_in(redactor.text(invocation.title or ""))
    origin = None if plan.source is None else plan.source.session
    if origin is not None and given is None and invocation.side_of is None:
        title, is_default = making.forked_title(origin.title), False
    else:
        title, is_default = making.title_of(given or redactor.text(prompt.text), now_ms)
    session = making.new_session(
        project_id=project.id,
        workspace=workspace,
        title=title,
        title_is_default=is_default,
        now_ms=now_ms,
        # nobody's conversation: a person's `--continue` never goes on with it
        session_kind="cron" if invocation.source in ("job", "cron") else "conversation",
        session_key=invocation.session_key,
        labels=dict(invocation.labels),
        permission=resolving.permission_of(invocation),
    )
    ref = model.info.ref
    session = structs.replace(
        session,
        provider_id=ref.provider_id,
        model_id=ref.model_id,
        variant=ref.variant,
        effort=effort,
        agent=plan.agent.name if plan.agent is not None else None,
        context_tokens=model.info.context_tokens,
    )
    if plan.source is None:
        return session
    from mcode_exec.executor import forking

    session = making.inheriting_session(session, plan.source.session, plan.source.at)
    if invocation.side_of is not None:
        session = making.side_session(session, plan.source.session)
    return forking.placed(session, plan.source.session)


async def _create(
    runtime: Runtime,
    invocation: Invocation,
    project: Project,
    session: Session,
    plan: TurnPlan,
    redactor: Redactor,
) -> tuple[Session, Operation | None]:
    """Store the session of a turn: at once where that is one row, else step by step."""
    source = plan.source
    if plan.found is not None or (source is None and not invocation.worktree):
        return await making.create_session(runtime.store, project, session), None
    from mcode_exec.executor import forking

    worktree = None
    if invocation.worktree:
        from mcode_exec.executor.worktrees import plan_worktree

        worktree = await asyncio.to_thread(
            plan_worktree,
            runtime.data,
            forking.directory_of(session),
            session.id,
            invocation.worktree_branch,
        )
    wanted = forking.Wanted(
        session=session,
        project=project,
        source=source,
        notes=forking.notes_of(session, source, worktree),
        worktree=worktree,
        visibility=session.visibility,
    )
    return await forking.make(runtime, wanted, redactor)


def _parent_rules(invocation: Invocation, plan: TurnPlan) -> RuleSet:
    """What the session would allow that a side conversation is of: a child's verdict is never wider."""
    narrowed = structs.replace(invocation, permission=None, rules=())
    settings = structs.replace(plan.settings, flag_rules=())
    _, rules = resolving.rule_set(settings, plan.agent, narrowed, plan.origin, is_new=False)
    return rules


def _drainer_rules(delivery: Delivery, plan: TurnPlan) -> RuleSet:
    """What the process that delivers an item would allow in that session itself.

    Raises: DrainerFlagsError, ConfigError.
    """
    try:
        settings = resolving.settings_of(
            structs.replace(delivery.drainer, agent=None, tools=None), plan.settings.config
        )
        _, rules = resolving.rule_set(settings, plan.agent, delivery.drainer, plan.session, is_new=False)
    except InvocationError as error:
        raise DrainerFlagsError(error.message) from error
    return rules


def _request_of(delivery: Delivery, choice: Choice, redactor: Redactor) -> TurnRequest:
    """The submission of an item: under the turn id, the digest and the claim that it has."""
    item, payload = delivery.item, delivery.item.payload
    return TurnRequest(
        session_id=choice.session.id,
        turn_id=item.turn_id,
        digest=item.digest,
        source=item.source,
        priority=delivery.priority,
        item_id=item.id,
        claim_token=item.claim_token,
        request_id=payload.request_id,
        request_scope=payload.request_scope,
        words=None if payload.request_id is None else text_of(payload.content),
        title=None if payload.title is None else title_in(redactor.text(payload.title)),
        prompt_title=_prompt_title(choice.session, prompt_of(item), redactor),
        labels=dict(payload.labels),
    )


def _prompt_title(session: Session, prompt: Prompt, redactor: Redactor) -> str | None:
    """What a session is called from now on that nobody has said anything to yet."""
    return title_in(redactor.text(prompt.text)) if session.title_is_default else None


def _request(
    invocation: Invocation, choice: Choice, prompt: Prompt, redactor: Redactor, retry: Retry | None
) -> TurnRequest:
    session = choice.session
    has_selector = bool(invocation.session or invocation.continue_latest or invocation.session_key)
    scope = session_scope(session.id) if has_selector else project_scope(choice.project.id)
    if invocation.side_of is not None and session.parent_id is not None:
        scope = session_scope(session.parent_id)
    request_id = invocation.request_id
    request = TurnRequest(
        session_id=session.id,
        turn_id=invocation.turn_id or new_turn_id(),
        digest=prompt.digest(),
        source=invocation.source,
        priority=invocation.priority,
        clears_paused=invocation.paused_queue == "clear",
        request_id=request_id,
        request_scope=scope if request_id is not None else None,
        words=None if request_id is None else text_of(prompt.content),
        title=None if invocation.title is None else title_in(redactor.text(invocation.title)),
        prompt_title=None if retry is not None else _prompt_title(session, prompt, redactor),
        labels=dict(invocation.labels),
        rebind_workspace=choice.workspace if choice.is_rebound else None,
        rebind_project_id=choice.project.id if choice.is_rebound else None,
        leaves_worktree=choice.leaves_worktree,
    )
    return request if retry is None else retry.submission(request)
