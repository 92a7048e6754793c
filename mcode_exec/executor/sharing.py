"""Pages of sessions for readers elsewhere: written when asked for, and anew after each turn.

What is shared are conversations without a parent.  A page is written once the
turn's result is out, within a second, and trouble with it is one sentence and
changes nothing else.  Two processes may write one page: whoever finds, having
written, that the session has gone on meanwhile writes it once more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec.errors import ConfigError, McodeError, OutputWriteFailedError, SessionError, StoreFailedError
from mcode_exec.executor.pages import newest
from mcode_exec.output.document_file import replace_page
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import finding
from mcode_exec.store import message_rows, session_rows, share_rows
from mcode_exec.store.share_rows import Share

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

#: newest messages that a page has
MAX_MESSAGES = 1_000
#: how long the end of a run waits for its page
AFTER_TURN_S = 1.0
_TRIES = 3


class EndedTurn(Struct, frozen=True):
    """That a turn of a session has ended in this process, and what the configuration says of sharing."""

    session_id: str
    auto_dir: str | None
    redactor: Redactor


class Shared(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one session."""

    session_id: str
    state: str
    #: its page, or the one that was removed
    path: str | None


async def write_pages(runtime: Runtime, say: Callable[[str], None]) -> None:
    """The pages of the sessions whose turns have ended here since; what goes wrong is said, and nothing is raised."""
    ended, runtime.ended[:] = list(runtime.ended), []
    for turn in {one.session_id: one for one in ended}.values():
        try:
            async with asyncio.timeout(AFTER_TURN_S):
                await _after_turn(runtime, turn)
        except TimeoutError:
            say(
                f"the page of session {turn.session_id} was not written: it took longer than {AFTER_TURN_S:g} s"
            )
        except McodeError as error:
            say(f"the page of session {turn.session_id} was not written: {error.message}")


async def _after_turn(runtime: Runtime, turn: EndedTurn) -> None:
    def look() -> tuple[Session | None, Share | None]:
        return session_rows.find_session(turn.session_id), share_rows.find_share(turn.session_id)

    session, share = await runtime.store.read(look)
    if session is None or session.deleting_by is not None or not is_shareable(session):
        return
    directory = turn.auto_dir
    if share is not None and share.state != "auto":
        directory = share.directory
    if directory is None:
        return
    if share is None or (share.state == "auto" and share.directory != directory):
        await _note(runtime, session.id, "auto", directory)
    await _write(runtime, session.id, directory, turn.redactor)
    await _leave(runtime, share, directory)


async def refresh_page(
    runtime: Runtime, session_id: str, redactor: Redactor, say: Callable[[str], None]
) -> None:
    """Write the page that a session has anew, since it was changed without a turn; trouble is said, and no more."""
    share = await runtime.store.read(lambda: share_rows.find_share(session_id))
    if share is None or share.directory is None or share.state == "unshared":
        return
    try:
        await _write(runtime, session_id, share.directory, redactor)
    except McodeError as error:
        say(f"the page of session {session_id} was not written: {error.message}")


async def _leave(runtime: Runtime, share: Share | None, directory: str) -> None:
    """A page that stands in another directory now leaves none where it stood."""
    if share is None or share.directory is None or share.directory == directory:
        return
    path = page_path(share.directory, share.session_id)
    try:
        await runtime.store.on_thread(partial(os.unlink, path))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise StoreFailedError(f"the page {path} could not be removed: {error.strerror}") from error


def is_shareable(session: Session) -> bool:
    """Whether it is a conversation of its own."""
    return (
        session.session_kind == "conversation"
        and session.parent_id is None
        and session.visibility == "visible"
    )


async def share(
    data_dir: str | None, env: Mapping[str, str], name: str, directory: str | None, auto_dir: str | None
) -> Shared:
    """Write a session's page into `directory` (else that of the configuration), now and after each turn.

    Raises: SessionError for a part of another session; ConfigError without a directory; StoreFailedError.
    """
    from mcode_exec.executor.inspect import opened

    wanted = directory or auto_dir
    if wanted is None:
        raise ConfigError(
            "there is no directory to share in: name one with --dir, or in your config file:\n"
            '[share]\nauto_dir = "/path/to/pages"'
        )
    async with opened(data_dir, env) as runtime:
        session = await finding.find_exact(runtime.store, name)
        if not is_shareable(session):
            raise SessionError(
                f"session {session.id} is no conversation of its own; "
                f"`mcode sessions show {session.id} --html FILE` writes a page of it",
                code="not_shareable",
            )
        known = await runtime.store.read(lambda: share_rows.find_share(session.id))
        await _write(runtime, session.id, wanted, Redactor(secret_values(env)))
        await _note(runtime, session.id, "shared", wanted)
        await _leave(runtime, known, wanted)
        return Shared(session_id=session.id, state="shared", path=page_path(wanted, session.id))


async def unshare(data_dir: str | None, env: Mapping[str, str], name: str) -> Shared:
    """Remove a session's page, and write none any more, whatever the configuration says."""
    from mcode_exec.executor.inspect import opened

    async with opened(data_dir, env) as runtime:
        session = await finding.find_exact(runtime.store, name)
        path = await remove_page(runtime, session.id)
        await _note(runtime, session.id, "unshared", None)
        return Shared(session_id=session.id, state="unshared", path=path)


async def remove_page(runtime: Runtime, session_id: str) -> str | None:
    """Take away the page that a session has; its path.  Raises: StoreFailedError when it stays."""
    known = await runtime.store.read(lambda: share_rows.find_share(session_id))
    if known is None or known.directory is None:
        return None
    path = page_path(known.directory, session_id)
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise StoreFailedError(f"the page {path} could not be removed: {error.strerror}") from error
    return path


def page_path(directory: str, session_id: str) -> str:
    return os.path.join(directory, f"{session_id}.html")


async def _note(
    runtime: Runtime, session_id: str, state: share_rows.ShareState, directory: str | None
) -> None:
    row = Share(session_id=session_id, state=state, directory=directory, at_ms=runtime.clock.now_ms())
    await runtime.store.write(lambda: share_rows.put_share(row))


async def _write(runtime: Runtime, session_id: str, directory: str, redactor: Redactor) -> None:
    for _ in range(_TRIES):
        before = await _state(runtime, session_id)
        pieces = [
            piece
            async for piece in newest(
                runtime, session_id, redactor, "html", turn_id=None, before_row=None, limit=MAX_MESSAGES
            )
        ]
        path = page_path(directory, session_id)
        try:
            # On the store's thread, which no end of the process waits for.
            await runtime.store.on_thread(partial(replace_page, path, b"".join(pieces)))
        except OSError as error:
            raise OutputWriteFailedError(f"cannot write {path!r}: {error.strerror or error}") from error
        if await _state(runtime, session_id) == before:
            return


async def _state(runtime: Runtime, session_id: str) -> tuple[int, int]:
    def look() -> tuple[int, int]:
        session = session_rows.find_session(session_id)
        return message_rows.newest_row(session_id), 0 if session is None else session.updated_ms

    return await runtime.store.read(look)
