"""`mcode sessions rename|label|archive|unarchive`: what changes of a session without a turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from mcode_exec.errors import InvocationError, McodeError, StoreBusyError, StoreFailedError
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.sharing import refresh_page
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import finding, keeping
from mcode_exec.sessions.titles import title_in
from mcode_exec.turns import archiving

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

#: `unchanged`: it was so before; `kept`: it is as it was; `not-found`: there is no such session
Outcome = Literal["archived", "unarchived", "unchanged", "kept", "not-found"]


class Archiving(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one session that was named."""

    #: as it was named, where that is no session
    session_id: str
    outcome: Outcome
    exit_code: int = 0
    #: why it is as it was
    code: str | None = None
    message: str | None = None


Told = Callable[[Archiving], None]


async def rename_session(
    data_dir: str | None, env: Mapping[str, str], name: str, title: str, say: Callable[[str], None]
) -> Session:
    """Call a session by the first line of `title`, secrets masked; `say`: what goes wrong with its page.

    Raises: InvocationError for a title in which nothing can be seen; SessionError.
    """
    redactor = Redactor(secret_values(env))
    shown = title_in(redactor.text(title))
    if shown is None:
        raise InvocationError("a title needs something that can be seen")
    async with opened(data_dir, env) as runtime:
        session = await finding.find_exact(runtime.store, name)
        renamed = await keeping.rename(runtime.store, session.id, shown, runtime.clock.now_ms())
        await refresh_page(runtime, session.id, redactor, say)
        return renamed


async def label_session(
    data_dir: str | None,
    env: Mapping[str, str],
    name: str,
    *,
    added: Mapping[str, str],
    removed: Collection[str],
) -> Session:
    """Give a session labels and take some away; with neither it is only read.

    Raises: SessionError; InvocationError for too many labels.
    """
    is_read = not added and not removed
    async with opened(data_dir, env, reads_only=is_read) as runtime:
        session = await finding.find_exact(runtime.store, name)
        if is_read:
            return session
        return await keeping.label(runtime.store, session.id, added, removed, runtime.clock.now_ms())


async def archive_sessions(
    data_dir: str | None, env: Mapping[str, str], names: Sequence[str], told: Told, *, archives: bool
) -> int:
    """Put sessions away, or take them out again, each for itself.

    Returns the exit code of the first that stays as it was for a reason, else 0.
    Raises: StoreBusyError, StoreFailedError where the store cannot be used.
    """
    first = 0
    async with opened(data_dir, env) as runtime:
        for name in names:
            one = await _archive(runtime, name, archives=archives)
            told(one)
            first = first or one.exit_code
    return first


async def _archive(runtime: Runtime, name: str, *, archives: bool) -> Archiving:
    session_id = name
    try:
        session_id = (await finding.find_exact(runtime.store, name)).id
        if archives:
            is_changed = await archiving.archive(runtime.store, runtime.owner, session_id, runtime.clock)
        else:
            is_changed = await archiving.unarchive(runtime.store, session_id, runtime.clock)
    except (StoreBusyError, StoreFailedError):
        raise
    except McodeError as error:
        return Archiving(
            session_id=session_id,
            outcome="not-found" if error.code == "session_not_found" else "kept",
            exit_code=error.exit_code,
            code=error.code,
            message=error.message,
        )
    done: Outcome = "archived" if archives else "unarchived"
    return Archiving(session_id=session_id, outcome=done if is_changed else "unchanged")
