"""`mcode sessions fork`: a fork for itself, without a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec import Struct

from mcode_exec.executor import forking
from mcode_exec.executor.inherited import read_inherited
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.turn_plan import find_repository
from mcode_exec.executor.workspaces import recorded_workspace, workspace_of
from mcode_exec.executor.worktrees import plan_worktree
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.result import WorktreeInfo
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import making
from mcode_exec.sessions.titles import title_in
from mcode_exec.store import session_rows
from mcode_exec.workspace import git


class Forked(Struct, frozen=True, kw_only=True):
    session: Session
    worktree: WorktreeInfo | None
    #: (code, message) for people
    notices: tuple[tuple[str, str], ...]


async def fork_session(invocation: Invocation, env: Mapping[str, str]) -> Forked:
    """Fork what the invocation names, in the workspace that it names.

    Raises: SessionError, BusyError where there is nothing to begin with yet, InvocationError,
        HistoryCorruptError, StoreFailedError, StoreBusyError; nothing of a fork is left then.
    """
    redactor = Redactor(secret_values(env))
    async with opened(invocation.data_dir, env) as runtime:
        workspace = workspace_of(invocation, env)
        if workspace is None:
            workspace = await recorded_workspace(runtime.store, invocation)
        inherited = await read_inherited(
            runtime.store, runtime.sessions_dir, invocation, workspace, runtime.is_held
        )
        source = inherited.source
        now_ms = runtime.clock.now_ms()
        repository, key = await find_repository(runtime.store, git.find_root(workspace))
        if key is not None and repository is not None:
            await runtime.store.write(lambda: session_rows.put_repository(key, repository))
        project = making.project_of(workspace, repository, now_ms)
        title = making.forked_title(source.session.title)
        session = making.new_session(
            project_id=project.id,
            workspace=workspace,
            title=title_in(redactor.text(invocation.title or "")) or title,
            title_is_default=False,
            now_ms=now_ms,
            labels=dict(invocation.labels),
        )
        session = making.inheriting_session(session, source.session, source.at)
        session = forking.placed(session, source.session)
        worktree = None
        if invocation.worktree:
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
            is_for_itself=True,
        )
        made, _ = await forking.make(runtime, wanted, redactor)
    location = made.run_location
    return Forked(
        session=made,
        worktree=None if location is None else WorktreeInfo(path=location.path, branch=location.branch),
        notices=inherited.notices,
    )
