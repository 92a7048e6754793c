"""`mcode sessions prune`: old sessions go, each through the same deletion as one that is named.

Batch after batch, the oldest first; what a kill leaves half done is finished by
the next start of mcode, and the rest stands as it stood.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from mcode_exec import paths
from mcode_exec.errors import McodeError, SessionDeletingError, StoreBusyError
from mcode_exec.executor.deletion import delete_unless
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.workspaces import workspace_path
from mcode_exec.faults import fault
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import search_index
from mcode_exec.sessions.sizes import freed_bytes
from mcode_exec.store import reserve
from mcode_exec.turns import retention
from mcode_exec.turns.retention import Candidate, KeptError, Reason, Wanted

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_BATCH = 250  # sessions; source: session-system notes, retention

#: `would-delete`: in a dry run; `kept`: something runs or waits in it; `failed`: it could not be deleted
Outcome = Literal["deleted", "would-delete", "kept", "failed"]


class Pruned(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one old session, or would."""

    session_id: str
    title: str
    workspace: str
    activity_ms: int
    outcome: Outcome
    #: what keeps it
    reason: Reason | None = None
    #: of it and of what belongs to it
    messages: int
    #: of its files, those that go
    bytes: int
    exit_code: int = 0
    #: why it could not be deleted
    code: str | None = None
    message: str | None = None
    #: what of its files was left alone
    notice: str | None = None


class Asked(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

    older_than_s: float
    cwd: str | None = None
    archived: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    #: sessions at most
    limit: int | None = None
    dry_run: bool = False


Told = Callable[[Pruned], None]


async def prune_sessions(data_dir: str | None, env: Mapping[str, str], asked: Asked, told: Told) -> bool:
    """Delete the sessions that are old; `told`: each of them, and each that something keeps.

    Returns whether more are left than `limit` allowed.
    Raises: InvocationError; StoreBusyError, StoreFailedError where the store cannot be used.
    """
    workspace = None
    if asked.cwd is not None:
        workspace = workspace_path(asked.cwd, env).encode("utf-8", "replace").decode()
    if not asked.dry_run:
        reserve.release(paths.database_file(paths.data_dir(data_dir, dict(env))))
    redactor = Redactor(secret_values(env))
    async with opened(data_dir, env) as runtime:
        if runtime.store.is_read_only:
            return False  # no run has made a store
        wanted = Wanted(
            before_ms=runtime.clock.now_ms() - int(asked.older_than_s * 1000),
            workspace=workspace,
            archived=asked.archived,
            labels=asked.labels,
        )
        gone: list[str] = []
        try:
            has_more = await _prune_all(runtime, asked, wanted, redactor, told, gone)
        finally:
            await search_index.forget(runtime.store, gone)
        if not has_more and not asked.dry_run:
            from mcode_exec.executor.change_retention import prune_changes

            await prune_changes(runtime)
        return has_more


async def _prune_all(
    runtime: Runtime, asked: Asked, wanted: Wanted, redactor: Redactor, told: Told, gone: list[str]
) -> bool:
    left = asked.limit
    after: tuple[int, str] | None = None
    while True:
        batch, after = await retention.page(
            runtime.store, runtime.owner, runtime.clock, wanted, after, _BATCH
        )
        for one in batch:
            if left == 0 and one.reason is None:
                return True
            pruned = await _prune(runtime, one, wanted, redactor, gone, is_dry=asked.dry_run)
            if pruned is None:
                continue
            if left is not None and pruned.outcome in ("deleted", "would-delete"):
                left -= 1
            told(pruned)
            fault("after-pruned")
        if after is None:
            return False


async def _prune(
    runtime: Runtime, one: Candidate, wanted: Wanted, redactor: Redactor, gone: list[str], *, is_dry: bool
) -> Pruned | None:
    """What becomes of a candidate; None for one that is old no more.  `gone`: ids of what was deleted."""
    session = one.session
    size = await asyncio.to_thread(_size, runtime.sessions_dir, one)

    def pruned(
        outcome: Outcome,
        reason: Reason | None = None,
        error: McodeError | None = None,
        notice: str | None = None,
    ) -> Pruned:
        return Pruned(
            session_id=session.id,
            title=redactor.text(session.title),
            workspace=session.workspace,
            activity_ms=session.activity_ms,
            outcome=outcome,
            reason=reason,
            messages=one.messages,
            bytes=size,
            exit_code=0 if error is None else error.exit_code,
            code=None if error is None else error.code,
            message=None if error is None else error.message,
            notice=notice,
        )

    if one.reason is not None:
        return pruned("kept", one.reason)
    if is_dry:
        return pruned("would-delete")
    try:
        deletions = await delete_unless(
            runtime,
            session.id,
            lambda members: retention.check(members, wanted, runtime.owner, runtime.clock),
        )
    except KeptError as error:
        return None if error.reason == "recent" else pruned("kept", error.reason)
    except SessionDeletingError:
        return None  # another process is quicker
    except StoreBusyError:
        raise
    except McodeError as error:
        return None if error.code == "session_not_found" else pruned("failed", error=error)
    gone += [each.session_id for each in deletions]
    left_alone = "; ".join(each.notice for each in deletions if each.notice is not None)
    return pruned("deleted", notice=left_alone or None)


def _size(sessions_dir: str, one: Candidate) -> int:
    return sum(freed_bytes(sessions_dir, member.history_relative_dir) for member in one.members)
