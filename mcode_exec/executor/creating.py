"""`mcode sessions create`: a session without a turn, for runs to come."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct, structs

from mcode_exec.errors import InvocationError
from mcode_exec.executor import settings as resolving
from mcode_exec.executor.effort import check_variant
from mcode_exec.executor.models import reach
from mcode_exec.executor.runtime import Runtime
from mcode_exec.executor.turn_plan import MODEL_FLAG, find_repository
from mcode_exec.executor.workspaces import usable_workspace
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.session import Project, Session
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import children, finding, making
from mcode_exec.sessions.titles import default_title, title_in
from mcode_exec.store import session_rows
from mcode_exec.workspace import git


class Created(Struct, frozen=True, kw_only=True):
    session: Session
    #: False: its key was bound to it already
    is_new: bool
    #: (code, message) for people
    notices: tuple[tuple[str, str], ...] = ()


async def create_session(invocation: Invocation, env: Mapping[str, str], parent: str | None) -> Created:
    """Make the session that the flags describe, under `parent` if one is named.

    Raises: InvocationError, ConfigError, SessionError, StoreFailedError, StoreBusyError.
    """
    workspace = usable_workspace(invocation.cwd, env)
    resolving.check_rules(invocation)
    title = None
    if invocation.title is not None:
        title = title_in(Redactor(secret_values(env)).text(invocation.title))
        if title is None:
            raise InvocationError(
                "--title has nothing in it that can be seen; leave it out for a default one"
            )
    runtime = await Runtime.open(invocation, env)
    try:
        notices: tuple[tuple[str, str], ...] = ()
        parent_id = None
        if parent is not None:
            found = await finding.find_named(runtime.store, parent)
            parent_id, notices = found.session.id, found.notices
        project = await project_at(runtime, workspace)
        now_ms = runtime.clock.now_ms()
        model = await _model(runtime, invocation, workspace)
        session = making.new_session(
            project_id=project.id,
            workspace=workspace,
            title=title or default_title(now_ms, is_child=parent_id is not None),
            title_is_default=title is None,
            now_ms=now_ms,
            session_key=invocation.session_key,
            labels=dict(invocation.labels),
            permission=resolving.permission_of(invocation),
        )
        session = structs.replace(session, agent=invocation.agent, **model)
        made, is_new = await children.create_ahead(runtime.store, project, session, parent_id)
    finally:
        await runtime.close()
    return Created(session=made, is_new=is_new, notices=notices)


async def _model(runtime: Runtime, invocation: Invocation, workspace: str) -> dict[str, Any]:
    """What the session keeps of `--model`; an agent is looked up beside it.  No key is asked for.

    Raises: ConfigError, ModelUnknownError.
    """
    if invocation.model is None and invocation.agent is None:
        return {}
    config = resolving.resolve(invocation, runtime.env, workspace).config
    if invocation.model is None:
        return {}
    found = await asyncio.to_thread(
        partial(reach, invocation.model, config, runtime.env, runtime.catalogue(config), needs_key=False)
    )
    ref = found.info.ref
    check_variant(ref, found.api, MODEL_FLAG)
    return {
        "provider_id": ref.provider_id,
        "model_id": ref.model_id,
        "variant": ref.variant,
        "context_tokens": found.info.context_tokens,
    }


async def project_at(runtime: Runtime, workspace: str) -> Project:
    """The project of a directory as it is now; what names a repository is looked up once per checkout."""
    repository, key = await find_repository(runtime.store, git.find_root(workspace))
    if key is not None and repository is not None:
        await runtime.store.write(lambda: session_rows.put_repository(key, repository))
    return making.project_of(workspace, repository, runtime.clock.now_ms())
