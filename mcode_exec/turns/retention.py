"""Retention: which sessions are old enough to go, and what keeps one all the same.

A session is as old as the newest turn of it and of what belongs to it: its
sub-agents and side conversations go with it, and not before.  What runs, waits
in a queue, or is drained is never old.  The last word is said in the transaction
that seals it, so that a turn that begins meanwhile wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from mcode_exec.clock import Clock
from mcode_exec.errors import McodeError
from mcode_exec.records.session import Session
from mcode_exec.store import retention_rows, session_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.archiving import unrest
from mcode_exec.turns.deletion import family
from mcode_exec.turns.owner import Owner

#: `running`: something is at work in it, or stands behind its queue; `queued`: items wait; `recent`: it or what
#: belongs to it is not old, or it is not one of those that are meant
Reason = Literal["running", "queued", "recent"]


class Wanted(Struct, frozen=True, kw_only=True):
    """Which sessions are to go."""

    #: without a turn since then
    before_ms: int
    #: canonical path, None: of every workspace
    workspace: str | None = None
    #: only archived ones
    archived: bool = False
    #: only those that have them all
    labels: tuple[tuple[str, str], ...] = ()


class KeptError(McodeError):
    """The session is not one of those that are to go."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"it is kept: {reason}")
        self.reason = reason


class Candidate(Struct, frozen=True, kw_only=True):
    """A session that is old, with what belongs to it, itself first."""

    members: tuple[Session, ...]
    messages: int
    #: what keeps it all the same
    reason: Reason | None

    @property
    def session(self) -> Session:
        return self.members[0]


def reason_to_keep(members: Sequence[Session], wanted: Wanted, owner: Owner, clock: Clock) -> Reason | None:
    """What keeps a session that has `members`, itself the first; inside a transaction."""
    if any(one.activity_ms >= wanted.before_ms for one in members) or not _is_meant(members[0], wanted):
        return "recent"
    for one in members:
        busy = unrest(one, owner, clock)
        if busy is not None:
            return "queued" if busy.code == "session_has_queued_messages" else "running"
        if any(map(owner.is_alive, retention_rows.own_drainers(one.id))):
            return "running"
    return None


def _is_meant(session: Session, wanted: Wanted) -> bool:
    return (
        (wanted.workspace is None or session.workspace == wanted.workspace)
        and (not wanted.archived or session.archived_ms is not None)
        and all(session.labels.get(key) == value for key, value in wanted.labels)
    )


def check(members: Sequence[Session], wanted: Wanted, owner: Owner, clock: Clock) -> None:
    """Raise KeptError for a session that is kept; inside the transaction that would seal it."""
    reason = reason_to_keep(members, wanted, owner, clock)
    if reason is not None:
        raise KeptError(reason)


async def page(
    store: Store, owner: Owner, clock: Clock, wanted: Wanted, after: tuple[int, str] | None, limit: int
) -> tuple[list[Candidate], tuple[int, str] | None]:
    """Candidates of the next `limit` old sessions, the oldest first; and where to go on, None at the end."""

    def look() -> tuple[list[Candidate], tuple[int, str] | None]:
        sessions = retention_rows.page_older(
            wanted.before_ms,
            workspace=wanted.workspace,
            archived=wanted.archived,
            after=after,
            limit=limit,
        )
        found = [one for session in sessions if (one := _candidate(session, wanted, owner, clock))]
        last = sessions[-1] if len(sessions) == limit else None
        return found, None if last is None else (last.activity_ms, last.id)

    return await store.read(look)


def _candidate(session: Session, wanted: Wanted, owner: Owner, clock: Clock) -> Candidate | None:
    if not _is_meant(session, wanted) or _goes_with_another(session):
        return None
    members = [one for one in map(session_rows.find_session, family(session.id)) if one is not None]
    reason = reason_to_keep(members, wanted, owner, clock)
    if reason == "recent":
        return None
    messages = sum(retention_rows.count_messages(one.id) for one in members)
    return Candidate(members=tuple(members), messages=messages, reason=reason)


def _goes_with_another(session: Session) -> bool:
    """A sub-agent or side conversation goes with its parent, as long as there is one."""
    if session.session_kind not in ("task", "peek") or session.parent_id is None:
        return False
    return session_rows.find_session(session.parent_id) is not None
