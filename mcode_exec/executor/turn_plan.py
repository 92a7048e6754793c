"""What a turn comes to: the session it continues, its agent, what names its model, its rules.

Reads the store and changes nothing: a run goes on from here, `--dry-run` stops
here.  What cannot be run is refused in the same words to both.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec import config as configuration
from mcode_exec.errors import InvocationError, SessionDeletingError, SessionError
from mcode_exec.executor import settings as resolving
from mcode_exec.executor.prompt import Prompt, read_prompt
from mcode_exec.executor.settings import Settings
from mcode_exec.permissions.presets import strictest_preset
from mcode_exec.permissions.rules import RuleSet
from mcode_exec.records import labels
from mcode_exec.records.history import FileBlock, ImageBlock
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.model import ModelInfo
from mcode_exec.records.permission import Preset
from mcode_exec.records.session import Project, Session
from mcode_exec.sessions import finding
from mcode_exec.sessions.finding import Found
from mcode_exec.store import session_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.requests import project_scope, session_scope
from mcode_exec.turns.words import check_words
from mcode_exec.workspace import git

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcode_exec.config import AgentConfig
    from mcode_exec.executor.inherited import Inherited
    from mcode_exec.sessions.inheriting import Source
    from mcode_exec.store.turn_rows import Lock


#: where the model's name may stand, beside agents and the configuration
MODEL_FLAG, OF_SESSION = "--model", "session"


class Input(Struct, frozen=True, kw_only=True):
    """What the invocation says, read."""

    prompt: Prompt
    #: text of --system-prompt-file
    base_prompt: str | None


class TurnPlan(Struct, frozen=True, kw_only=True):
    """A turn in a session that exists already, or in a new one."""

    settings: Settings
    found: Found | None
    #: what a new session begins with
    source: Source | None
    agent: AgentConfig | None
    #: what names the model, and where that stands
    model_text: str | None
    model_source: str
    #: the strictest of its own and of the sessions above it
    preset: Preset
    rules: RuleSet
    #: of the sessions above it, the nearest first: the strictest word counts
    parent_rules: tuple[RuleSet, ...]
    #: (code, message)
    notices: tuple[tuple[str, str], ...]

    @property
    def session(self) -> Session | None:
        return None if self.found is None else self.found.session

    @property
    def origin(self) -> Session | None:
        """The session whose choices count: the one that goes on, else the one that a new one begins with."""
        if self.found is not None:
            return self.found.session
        return None if self.source is None else self.source.session


async def read_input(invocation: Invocation) -> Input:
    """Everything that the invocation gives to read.  Raises: InvocationError."""
    prompt = await read_prompt(invocation)
    if invocation.when_busy in ("queue", "steer"):  # refused whether the session is busy or not
        check_words(prompt.content)
    return Input(prompt=prompt, base_prompt=await read_base_prompt(invocation))


async def read_base_prompt(invocation: Invocation) -> str | None:
    """What `--system-prompt-file` holds.  Raises: InvocationError."""
    if invocation.system_prompt_file is None:
        return None
    return await resolving.read_system_prompt(invocation.system_prompt_file)


async def plan_turn(
    store: Store,
    sessions_dir: str,
    invocation: Invocation,
    settings: Settings,
    *,
    workspace: str,
    project: Project,
    is_held: Callable[[Lock], bool],
    inherited: Inherited | None = None,
) -> TurnPlan:
    """The turn that `invocation` asks for.

    `is_held`: whether somebody alive holds a lock.  `inherited`: what a new session begins with, where it was
    read in another store.
    Raises: SessionError for a session that does not exist or belongs elsewhere; InvocationError, ConfigError;
        BusyError for one that has nothing yet to begin with.
    """
    found = await _existing_session(store, sessions_dir, invocation, workspace, project)
    existing = found.session if found is not None else None
    if existing is not None and existing.deleting_by is not None:
        raise SessionDeletingError(existing.id)
    if existing is not None and invocation.session is not None:
        _check_workspace(existing, invocation, workspace)
    if invocation.labels:
        labels.changed({} if existing is None else existing.labels, dict(invocation.labels), ())
    if existing is None and inherited is None and begins_with_another(invocation):
        from mcode_exec.executor.inherited import read_inherited

        inherited = await read_inherited(store, sessions_dir, invocation, workspace, is_held)
    source = None if existing is not None or inherited is None else inherited.source
    origin = existing or (None if source is None else source.session)
    agent, notices = _agent_of(settings, origin)
    settings = resolving.with_agent(settings, agent, invocation)
    text, model_source = _model_of(invocation, settings, agent, origin)
    preset, rules = resolving.rule_set(settings, agent, invocation, origin, is_new=origin is None)
    parent_rules, lost = resolving.parent_rules(settings, origin)
    return TurnPlan(
        settings=settings,
        found=found,
        source=source,
        agent=agent,
        model_text=text,
        model_source=model_source,
        preset=strictest_preset((preset, *(rules.preset for rules in parent_rules))),
        rules=rules,
        parent_rules=parent_rules,
        notices=(*(() if source is None or inherited is None else inherited.notices), *notices, *lost),
    )


def begins_with_another(invocation: Invocation) -> bool:
    """Whether a new session of this invocation begins with the history of another."""
    return invocation.fork is not None or invocation.side_of is not None


async def find_repository(store: Store, root: str | None) -> tuple[str | None, str | None]:
    """What names the repository at `root`, and the key under which that is still to be kept, if it is."""
    if root is None:
        return None, None
    key = git.directory_key(root)
    if key is not None:
        kept = await store.read(lambda: session_rows.find_repository(key))
        if kept is not None:
            return kept, None
    return await asyncio.to_thread(git.root_commit, root), key


def attached(prompt: Prompt) -> tuple[ImageBlock | FileBlock, ...]:
    """What of a prompt is no text, wherever its bytes lie by now."""
    return tuple(block for block in prompt.content if isinstance(block, ImageBlock | FileBlock))


def check_attachments(prompt: Prompt, model: ModelInfo) -> None:
    """An attachment that the model cannot see would be answered all the same.  Raises: InvocationError."""
    if not model.takes_images and (blocks := attached(prompt)):
        names = ", ".join(block.filename or block.mime for block in blocks)
        raise InvocationError(f"--file {names}: {model.ref} takes no images; `mcode models` shows which do")


async def _existing_session(
    store: Store, sessions_dir: str, invocation: Invocation, workspace: str, project: Project
) -> Found | None:
    """The session the invocation selects, if it exists already."""
    if invocation.session is not None:
        return await finding.find_named(store, invocation.session)
    if invocation.continue_latest:
        return await finding.find_latest(store, workspace, sessions_dir)
    if invocation.session_key is None and invocation.request_id is None:
        return None
    if invocation.session_key is not None:
        keyed = await finding.find_keyed(store, project, invocation.session_key)
        return None if keyed is None else Found(session=keyed)
    scope = project_scope(project.id)
    if invocation.side_of is not None:
        parent = await finding.find_named(store, invocation.side_of)
        scope = session_scope(parent.session.id)
    request_id = invocation.request_id
    assert request_id is not None
    earlier = await store.read(lambda: turn_rows.find_request(scope, request_id))
    if earlier is None:
        return None
    return Found(session=await finding.find_exact(store, earlier.session_id))


def _check_workspace(session: Session, invocation: Invocation, workspace: str) -> None:
    if session.workspace == workspace or invocation.cwd is not None:
        return
    if session.run_location is not None and is_within(workspace, session.run_location.path):
        return
    here = f"`mcode exec --session {session.id} --cwd .` moves it here"
    if os.path.isdir(session.workspace):
        there, gone = f", `mcode exec --session {session.id} --cwd @recorded` runs it there", ""
    else:
        names = f"{shlex.quote(session.workspace)} {shlex.quote(workspace)}"
        there = f", `mcode projects relocate {names}` brings all sessions from there"
        gone = " (which is gone)"
    raise SessionError(
        f"session {session.id} belongs to {session.workspace}{gone}, not to {workspace}: {here}{there}",
        code="workspace_mismatch",
    )


def is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _agent_of(
    settings: Settings, existing: Session | None
) -> tuple[AgentConfig | None, tuple[tuple[str, str], ...]]:
    """The agent of this turn: the flag's, else the session's if the config still has it."""
    if settings.agent is not None or existing is None or existing.agent is None:
        return settings.agent, ()
    agent = settings.config.agents.get(existing.agent)
    if agent is None:
        lost = f"the config has no agent {existing.agent!r} any more; it is left out"
        return None, (("agent.missing", lost),)
    return agent, ()


def _model_of(
    invocation: Invocation, settings: Settings, agent: AgentConfig | None, existing: Session | None
) -> tuple[str | None, str]:
    """What names the model, and where: flag, agent of this turn, session, agent of the session, config."""
    if invocation.model is not None:
        return invocation.model, MODEL_FLAG
    if invocation.agent is not None and agent is not None and agent.model is not None:
        return agent.model, f"agent {agent.name}"
    if existing is not None and existing.provider_id is not None and existing.model_id is not None:
        variant = f"#{existing.variant}" if existing.variant else ""
        return f"{existing.provider_id}/{existing.model_id}{variant}", OF_SESSION
    if agent is not None and agent.model is not None:
        return agent.model, f"agent {agent.name}"
    return settings.config.model, configuration.source_of(settings.config, "model")
