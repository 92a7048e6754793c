"""What changes of a session without a turn: what it is called, and its labels.

Neither is history, so a turn may run meanwhile; and neither moves the session to
the top of a list, which only turns do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import structs

from mcode_exec.errors import SessionDeletingError, SessionError
from mcode_exec.records import labels
from mcode_exec.records.session import Session
from mcode_exec.store import session_rows
from mcode_exec.store.database import Store


def get_kept(session_id: str) -> Session:
    """A session that is there and stays, inside a transaction.  Raises: SessionError."""
    session = session_rows.find_session(session_id)
    if session is None:
        raise SessionError(
            f"there is no session {session_id}; `mcode sessions list --all` shows what there is"
        )
    if session.deleting_by is not None:
        raise SessionDeletingError(session_id)
    return session


async def rename(store: Store, session_id: str, title: str, now_ms: int) -> Session:
    """Call a session `title`.  Raises: SessionError."""

    def transaction() -> Session:
        session = get_kept(session_id)
        if session.title != title or session.title_is_default:
            session_rows.update_session(session_id, title=title, title_is_default=0, updated_ms=now_ms)
        return structs.replace(session, title=title, title_is_default=False)

    return await store.write(transaction)


async def label(
    store: Store, session_id: str, added: Mapping[str, str], removed: Collection[str], now_ms: int
) -> Session:
    """Give a session labels and take some away.  Raises: SessionError; InvocationError for too many."""

    def transaction() -> Session:
        session = get_kept(session_id)
        changed = labels.changed(session.labels, added, removed)
        if changed != session.labels:
            session_rows.update_session(session_id, labels=changed, updated_ms=now_ms)
        return structs.replace(session, labels=changed)

    return await store.write(transaction)
