"""Which sessions are old: pages by their newest activity, the oldest first."""

from __future__ import annotations

from peewee import SQL, fn

from mcode_exec.records.session import Session
from mcode_exec.store import session_rows
from mcode_exec.store.statement import Statement
from mcode_exec.store.tables import Messages, QueueDrainers, Sessions, tuples


def page_older(
    before_ms: int, *, workspace: str | None, archived: bool, after: tuple[int, str] | None, limit: int
) -> list[Session]:
    """Sessions without activity since `before_ms` that nobody deletes, the oldest first.

    `after`: (activity_ms, id) of the last one seen; `archived`: only those.
    """
    query = Sessions.select(Sessions.id).where(
        (Sessions.activity_ms < before_ms) & Sessions.deleting_by.is_null()
    )
    if workspace is not None:
        query = query.where(Sessions.workspace == workspace)
    if archived:
        query = query.where(Sessions.archived_ms.is_null(False))
    if after is not None:
        activity_ms, session_id = after
        query = query.where(
            (Sessions.activity_ms >= activity_ms)
            & ((Sessions.activity_ms > activity_ms) | (Sessions.id > session_id))
        )
    query = query.order_by(Sessions.activity_ms, Sessions.id).limit(limit)
    found = (session_rows.find_session(session_id) for (session_id,) in tuples(query))
    return [session for session in found if session is not None]


_COUNT = Statement(
    lambda session_id: Messages.select(fn.COUNT(SQL("*"))).where(Messages.session_id == session_id), str
)
_DRAINERS = Statement(
    lambda session_id: QueueDrainers.select(QueueDrainers.owner).where(
        QueueDrainers.session_id == session_id
    ),
    str,
)


def count_messages(session_id: str) -> int:
    return next((int(count) for (count,) in _COUNT.tuples(session_id)), 0)


def own_drainers(session_id: str) -> list[str]:
    """Owner tokens of those who drain this session in particular, dead ones among them."""
    return [owner for (owner,) in _DRAINERS.tuples(session_id)]
