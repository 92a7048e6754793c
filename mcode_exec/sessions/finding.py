"""Finding sessions: by id or unique prefix, the newest of a workspace, pages for lists."""

from __future__ import annotations

import os
from functools import partial

from msgspec import Struct

from mcode_exec.errors import SessionError
from mcode_exec.ids import is_alias, is_session_id, is_session_prefix
from mcode_exec.paths import worktrees_dir
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.session import Project, Session
from mcode_exec.sessions.layout import history_paths
from mcode_exec.store import import_rows, message_rows, session_rows
from mcode_exec.store.database import Store

MAX_PARENTS = 32  # levels; source: session-system notes
#: sessions without a history that `--continue` names one by one
MAX_GONE_TOLD = 3
_MOST_IN_WORKTREE = 50  # sessions looked at, newest first
_CONTINUE_BATCH = 8  # candidates looked at per query; the first is nearly always right


class Found(Struct, frozen=True, kw_only=True):
    session: Session
    #: (code, message) for people
    notices: tuple[tuple[str, str], ...] = ()


def _named(text: str) -> Session:
    """The session an id or unique prefix names; inside a read."""
    if is_session_id(text):
        session = session_rows.find_session(text)
        if session is None:
            raise SessionError(f"there is no session {text}; `mcode sessions list --all` shows what there is")
        return session
    if is_alias(text):
        return _called(text)
    if not is_session_prefix(text):
        raise SessionError(
            f"{text!r} is no session id: give `mvs_` and 32 hex digits, or at least the first 8 of them"
        )
    candidates = session_rows.find_by_prefix(text)
    if not candidates:
        raise SessionError(
            f"no session id starts with {text}; `mcode sessions list --all` shows what there is"
        )
    if len(candidates) > 1:
        raise SessionError(f"several session ids start with {text}; give more of its digits")
    return candidates[0]


def is_internal(session: Session) -> bool:
    """A sub-agent's session or a side conversation: what is run in its place is its public parent."""
    return session.session_kind in ("task", "peek")


def _called(alias: str) -> Session:
    """The imported session that its own program calls `alias`, or by a name that begins so; inside a read."""
    found = import_rows.sessions_called(alias)
    if len(found) > 1:
        raise SessionError(f"several imported sessions are called {alias}…; name one by more of its id")
    session = session_rows.find_session(found[0]) if found else None
    if session is None:
        raise SessionError(
            f"there is no session {alias}, and none was imported that is called so; "
            "`mcode sessions list --all` shows what there is"
        )
    return session


async def find_named(store: Store, text: str) -> Found:
    """The session to run for `--session`: a sub-agent's resolves to its public parent.

    Raises: SessionError `session_not_found`, for a cycle of parents too.
    """

    def transaction() -> Found:
        session = _named(text)
        first = session
        seen = {session.id}
        while session.parent_id is not None and is_internal(session):
            parent = session_rows.find_session(session.parent_id)
            if parent is None or parent.id in seen or len(seen) > MAX_PARENTS:
                raise SessionError(f"the parents of session {first.id} lead nowhere; name another session")
            seen.add(parent.id)
            session = parent
        if session is first:
            return Found(session=session)
        notice = (
            "session.parent",
            f"{first.id} is an internal session; its parent {session.id} goes on instead",
        )
        return Found(session=session, notices=(notice,))

    return await store.read(transaction)


async def find_exact(store: Store, text: str) -> Session:
    """The session that an id or unique prefix names, internal ones included."""
    return await store.read(lambda: _named(text))


async def find_latest(store: Store, workspace: str, sessions_dir: str, flag: str = "--continue") -> Found:
    """The visible, unarchived conversation of a workspace, or of a worktree, with the newest turn.

    One whose history has vanished from disk is passed over with a notice.  `flag` asks for it.
    Raises: SessionError `session_not_found` when there is none.
    """
    found = await _find_in_worktree(store, workspace, sessions_dir)
    if found is not None:
        return Found(session=found)
    gone: list[str] = []
    limit = _CONTINUE_BATCH
    while True:
        wanted = limit
        sessions = await store.read(partial(session_rows.newest_conversations, workspace, wanted))
        for session in sessions[len(gone) :]:
            history = history_paths(sessions_dir, session.history_relative_dir).messages
            if session.history_bytes and not os.path.lexists(history):
                gone.append(f"session {session.id} is passed over: its history {history} is gone")
                continue
            return Found(session=session, notices=_of_gone(gone))
        if len(sessions) < limit:
            lost = f" (of {len(gone)} the history is gone)" if gone else ""
            raise SessionError(
                f"there is no session to continue in {workspace}{lost}; "
                f"run without {flag}, or name one by its id"
            )
        limit *= 8


async def _find_in_worktree(store: Store, workspace: str, sessions_dir: str) -> Session | None:
    """The newest conversation that works in the worktree around `workspace`, if that is one of ours."""
    base = os.path.realpath(worktrees_dir(os.path.dirname(sessions_dir)))
    owner, _, rest = workspace.removeprefix(base + "/").partition("/")
    if not workspace.startswith(base + "/") or not rest:
        return None

    def transaction() -> Session | None:
        made_for = session_rows.find_session(owner)
        if made_for is None or made_for.run_location is None:
            return None
        sessions = session_rows.sessions_at(made_for.run_location, _MOST_IN_WORKTREE)
        return next((session for session in sessions if _is_conversation(session)), None)

    return await store.read(transaction)


def _is_conversation(session: Session) -> bool:
    return (
        session.visibility == "visible"
        and session.session_kind == "conversation"
        and session.archived_ms is None
        and session.deleting_by is None
        and (session.last_turn_id is not None or session.history_bytes > 0)
    )


def _of_gone(gone: list[str]) -> tuple[tuple[str, str], ...]:
    """A notice for each, but no flood where somebody removed whole years."""
    told = gone[:MAX_GONE_TOLD]
    if len(gone) > len(told):
        told.append(f"{len(gone) - len(told)} more sessions are passed over: their histories are gone too")
    return tuple(("session.history-missing", sentence) for sentence in told)


async def find_keyed(store: Store, project: Project, key: str) -> Session | None:
    """The session that a key is bound to in a project."""

    def transaction() -> Session | None:
        known = session_rows.find_project(project.kind, project.identity)
        return None if known is None else session_rows.find_by_key(known.id, key)

    return await store.read(transaction)


async def messages_page(
    store: Store, session_id: str, *, before_row: int | None, limit: int
) -> list[tuple[int, DisplayMessage]]:
    """The newest `limit` messages before `before_row`, oldest first, with their row numbers."""
    return await store.read(lambda: message_rows.messages_before(session_id, before_row, limit))


async def messages_after(
    store: Store, session_id: str, message_id: str, *, limit: int = 500
) -> list[tuple[int, DisplayMessage]] | None:
    """Persisted messages after an anchor; None when the anchor is gone (the reader must resync)."""

    def transaction() -> list[tuple[int, DisplayMessage]] | None:
        found = message_rows.find_message(session_id, message_id)
        return None if found is None else message_rows.messages_after(session_id, found[0], limit)

    return await store.read(transaction)
