"""`mcode sessions delete`, and finishing what a process that died had begun to delete.

Each session is deleted for itself: what one comes to changes nothing for the
next, and each is accounted for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from mcode_exec import paths
from mcode_exec.errors import BusyError, McodeError, SessionDeletingError, StoreBusyError, StoreFailedError
from mcode_exec.faults import fault
from mcode_exec.records.session import Session
from mcode_exec.sessions import finding, search_index
from mcode_exec.sessions.removing import remove_files
from mcode_exec.store import reserve
from mcode_exec.turns import deletion
from mcode_exec.turns.aborting import ABORT_WAIT_S, request_abort

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_LOOK_S = 0.05

#: `kept`: as it was; `deleting`: sealed, and not gone yet; `not-found`: there is no such session
Outcome = Literal["deleted", "kept", "deleting", "not-found"]


class Deletion(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one session that was named, or that belongs to one."""

    #: as it was named, where that is no session
    session_id: str
    outcome: Outcome
    exit_code: int = 0
    #: why it is not deleted
    code: str | None = None
    message: str | None = None
    #: what of its files was left alone
    notice: str | None = None


class Unfinished(Struct, frozen=True, kw_only=True, rename="camel"):
    """A deletion that was begun and cannot be ended now."""

    session_id: str
    code: str
    message: str
    exit_code: int


Told = Callable[[Deletion], None]


async def delete_sessions(
    data_dir: str | None, env: Mapping[str, str], names: Sequence[str], told: Told
) -> int:
    """Delete sessions by id or unique prefix, each for itself.

    `told`: each session that is gone, sub-agents and side conversations included, and each name that is not.
    Returns the exit code of the first that is not deleted, else 0.
    Raises: StoreBusyError, StoreFailedError where the store cannot be opened.
    """
    from mcode_exec.executor.inspect import opened

    first = 0
    reserve.release(paths.database_file(paths.data_dir(data_dir, dict(env))))
    async with opened(data_dir, env) as runtime:
        for session_id in runtime.recovered.deleting:  # begun before, and ended by our own start
            if any(session_id.startswith(name) for name in names):
                told(Deletion(session_id=session_id, outcome="deleted"))
        gone = set(runtime.recovered.deleting)
        try:
            for name in names:
                code = await _delete_named(runtime, name, gone, told)
                first = first or code
        finally:
            await search_index.forget(runtime.store, sorted(gone))
    return first


async def _delete_named(runtime: Runtime, name: str, gone: set[str], told: Told) -> int:
    def tell(one: Deletion) -> None:
        gone.add(one.session_id)
        told(one)

    session_id = name
    try:
        session_id = (await finding.find_exact(runtime.store, name)).id
        await _delete(runtime, session_id, wait_s=ABORT_WAIT_S, told=tell)
    except McodeError as error:
        if session_id == name and any(one.startswith(name) for one in gone):
            return 0  # it went with one before it
        told(
            Deletion(
                session_id=session_id,
                outcome=await _state(runtime, session_id),
                exit_code=error.exit_code,
                code=error.code,
                message=error.message,
            )
        )
        return error.exit_code
    return 0


async def _state(runtime: Runtime, session_id: str) -> Outcome:
    """What a session is that was not deleted."""
    try:
        session = await finding.find_exact(runtime.store, session_id)
    except (StoreBusyError, StoreFailedError):
        return "kept"
    except McodeError:
        return "not-found"
    return "kept" if session.deleting_by is None else "deleting"


async def delete_unless(runtime: Runtime, session_id: str, check: deletion.Check) -> list[Deletion]:
    """Delete a session unless `check`, which is asked in the transaction that seals it, raises; nothing is stopped.

    Returns all that went with it, its own among them.  The search index is the caller's to clear.
    Raises: what `check` raises; SessionError, BusyError, StoreFailedError, StoreBusyError.
    """
    gone: list[Deletion] = []
    await _delete(runtime, session_id, wait_s=0.0, told=gone.append, check=check)
    return gone


async def _delete(
    runtime: Runtime, session_id: str, *, wait_s: float, told: Told, check: deletion.Check | None = None
) -> None:
    store, owner, clock = runtime.store, runtime.owner, runtime.clock
    sealed = await deletion.seal(store, owner, session_id, clock, check)
    fault("after-seal")
    try:
        for session in sealed:
            await _stop(runtime, session, wait_s)
    except McodeError as error:
        await deletion.give_up(store, owner, sealed, clock, error.message)
        raise
    fault("after-stop")
    left = list(sealed)
    try:
        for session in sealed:
            notice = await _remove(runtime, session)
            left.remove(session)
            told(Deletion(session_id=session.id, outcome="deleted", notice=notice))
    except McodeError as error:
        cause = error.__cause__
        await _leave(runtime, left, cause.message if isinstance(cause, McodeError) else error.message)
        raise


async def _leave(runtime: Runtime, left: list[Session], reason: str) -> None:
    try:
        await deletion.leave(runtime.store, runtime.owner, left, reason)
    except McodeError:
        pass  # the seal has our token, and we end: the next start finds it so


async def _stop(runtime: Runtime, session: Session, wait_s: float) -> None:
    """Hold the session for its deletion; its turn is told to stop, and waited for.  Raises: BusyError."""
    store, owner, clock = runtime.store, runtime.owner, runtime.clock
    until_s = clock.monotonic_s() + wait_s
    is_told = False
    while not await deletion.take_lock(store, owner, session.id, clock):
        if not is_told:
            await request_abort(store, owner, session.id, clock, reason="session-deleting")
            is_told = True
        if clock.monotonic_s() >= until_s:
            within = f"did not end within {wait_s:g} s" if wait_s else "has not ended yet"
            became = "it was not deleted, try again later"
            if session.deleting_by is not None:
                became = "its deletion, which was begun before, goes on when that has ended"
            raise BusyError(f"what runs in session {session.id} {within}; {became}")
        await asyncio.sleep(_LOOK_S)


async def _remove(runtime: Runtime, session: Session) -> str | None:
    """Files first, the rows that name them after; what was left alone is returned.  Raises: StoreFailedError."""
    try:
        notice = await asyncio.to_thread(remove_files, runtime.sessions_dir, session.history_relative_dir)
    except StoreFailedError as error:
        raise StoreFailedError(
            f"session {session.id} is sealed and not deleted yet: {error.message}; once that is mended "
            f"`mcode sessions delete {session.id}` or `mcode recover` goes on"
        ) from error
    if session.run_location is not None:
        from mcode_exec.executor.worktrees import remove_worktree

        left = await remove_worktree(runtime, session)
        notice = "; ".join(one for one in (notice, left) if one is not None) or None
    fault("after-files")
    page = await _remove_page(runtime, session.id)
    notice = "; ".join(told for told in (notice, page) if told) or None
    await deletion.delete_rows(runtime.store, session, runtime.clock)
    fault("after-deletion")
    return notice


async def _remove_page(runtime: Runtime, session_id: str) -> str | None:
    """What is to be known of the session's page, if it stays."""
    from mcode_exec.executor.sharing import remove_page

    try:
        await remove_page(runtime, session_id)
    except StoreFailedError as error:
        return error.message
    return None


async def finish_deletions(
    runtime: Runtime, session_ids: Sequence[str]
) -> tuple[tuple[str, ...], tuple[Unfinished, ...]]:
    """Go on where a dead process stopped: the ids of those that are gone now, and those that are not, with why."""
    gone: list[str] = []
    unfinished: list[Unfinished] = []
    for session_id in session_ids:
        if session_id in gone:
            continue
        try:
            await _delete(runtime, session_id, wait_s=0.0, told=lambda one: gone.append(one.session_id))
        except SessionDeletingError:
            continue  # another process is quicker
        except (BusyError, StoreBusyError, StoreFailedError) as error:
            unfinished.append(
                Unfinished(
                    session_id=session_id,
                    code=error.code,
                    message=error.message,
                    exit_code=error.exit_code,
                )
            )
        except McodeError:
            continue  # it is gone
    # the search index is left alone: a turn may run in this process, and whoever searches next takes them out
    return tuple(gone), tuple(unfinished)
