"""Deleting a session: sealed, its turn stopped, its rows gone; finished by others if its process dies.

From the seal on no turn is admitted; a turn that runs is told to stop, and ends
as `session-deleting`.  Rows go in small transactions, the session's own row
last: as long as it is there, so is the seal, and the next start goes on.  A
seal is undone only by who set it, before anything was deleted.
Totals of usage stay, and so do forks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from mcode_exec.clock import Clock
from mcode_exec.errors import SessionDeletingError, SessionError
from mcode_exec.faults import fault
from mcode_exec.records.session import Session
from mcode_exec.store import (
    deletion_rows,
    queue_rows,
    queue_state_rows,
    session_rows,
    signal_rows,
    turn_rows,
)
from mcode_exec.store.database import Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.lease import LEASE_S, is_held
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.queue import take_out
from mcode_exec.turns.settlement import settle_as_dead

MAX_DEPTH = 32  # levels of sub-agents; source: session-system notes
#: in `deleting_by`: the deletion was begun, and no process is at it
NOBODY = "nobody"
_BATCH = 250  # rows of a table in one transaction


#: raises inside the transaction that would seal a session what it is not to be deleted for; it gets the session and
#: what belongs to it
Check = Callable[[Sequence[Session]], None]


async def seal(
    store: Store, owner: Owner, session_id: str, clock: Clock, check: Check | None = None
) -> list[Session]:
    """Seal a session with its sub-agents and side conversations; all as they were, the session itself last.

    Raises: SessionError for one that does not exist, or that a live process deletes already; what `check` raises.
    """

    def transaction() -> list[Session]:
        sealed: list[Session] = []
        for one in family(session_id):
            session = session_rows.find_session(one)
            if session is None:
                continue
            deleter = session.deleting_by
            if deleter not in (None, owner.token) and owner.is_alive(str(deleter)):
                raise SessionDeletingError(one)
            session_rows.update_session(one, deleting_by=owner.token)
            deletion_rows.put_deletion(one, pid=owner.pid, host=owner.host, since_ms=clock.now_ms())
            sealed.append(session)
        if not sealed:
            raise SessionError(
                f"there is no session {session_id}; `mcode sessions list --all` shows what there is"
            )
        if check is not None:
            check(sealed)  # as they were; what it raises undoes the seals
        return sealed[::-1]

    return await store.write(transaction)


def family(session_id: str) -> list[str]:
    """A session and what belongs to it, parents first; a cycle is walked once."""
    found, level = [session_id], [session_id]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in session_rows.internal_children(parent)
            if child not in found
        ]
        if not level:
            break
        found += level
    return found


async def give_up(store: Store, owner: Owner, sessions: list[Session], clock: Clock, reason: str) -> None:
    """Undo the seals that were set on `sessions`, and what their turns were told; nothing was deleted yet.

    What an earlier deletion had sealed stays so: it is finished, not undone; `reason`: why not now.
    """

    def transaction() -> None:
        for session in sessions:
            if session.deleting_by is None and _let_go(session.id, owner, None):
                signal_rows.withdraw_aborts(session.id, "session-deleting", clock.now_ms())
                deletion_rows.delete_deletion(session.id)
            elif _let_go(session.id, owner, NOBODY):
                deletion_rows.put_reason(session.id, reason)

    await store.write(transaction)


async def leave(store: Store, owner: Owner, sessions: list[Session], reason: str) -> None:
    """Leave a deletion that cannot go on now to whoever comes next; `reason`: why."""

    def transaction() -> None:
        for session in sessions:
            if _let_go(session.id, owner, NOBODY):
                deletion_rows.put_reason(session.id, reason)

    await store.write(transaction)


def _let_go(session_id: str, owner: Owner, deleting_by: str | None) -> bool:
    now = session_rows.find_session(session_id)
    if now is None or now.deleting_by != owner.token:
        return False
    session_rows.update_session(session_id, deleting_by=deleting_by)
    lock = turn_rows.find_lock(session_id)
    if lock is not None and lock.kind == "deletion" and lock.owner == owner.token:
        turn_rows.delete_lock(session_id, lock.token)
    return True


async def take_lock(store: Store, owner: Owner, session_id: str, clock: Clock) -> bool:
    """Hold a sealed session for its deletion; False while its turn still has it."""

    def transaction() -> bool:
        lock = turn_rows.find_lock(session_id)
        if lock is not None and lock.kind == "deletion" and lock.owner == owner.token:
            return True
        if lock is not None and is_held(lock, owner, clock):
            return False
        if lock is not None:
            settle_as_dead(lock, clock.now_ms(), store.sessions_dir)
            turn_rows.delete_lock(session_id, lock.token)
        return turn_rows.insert_lock(_lock(owner, session_id, clock))

    return await store.write(transaction)


def _lock(owner: Owner, session_id: str, clock: Clock) -> Lock:
    lease_ms = int(LEASE_S * 1000)
    return Lock(
        session_id=session_id,
        kind="deletion",
        owner=owner.token,
        token="lease_" + os.urandom(16).hex(),
        turn_id=None,
        acquired_ms=clock.now_ms(),
        expires_ms=clock.now_ms() + lease_ms,
        boot_id=owner.boot_id,
        expires_boot_ms=clock.boot_ms() + lease_ms,
        pid=owner.pid,
        host=owner.host,
    )


async def delete_rows(store: Store, session: Session, clock: Clock) -> None:
    """Delete all rows of a sealed and held session, its own last."""

    def some_items() -> bool:
        items = queue_rows.page_items(session.id, limit=_BATCH)
        for item in items:
            take_out(item, "deleting", clock.now_ms())
        return bool(items)

    def rest_of_queue() -> None:
        queue_state_rows.delete_all(session.id)
        signal_rows.delete_all(session.id)

    while await store.write(some_items):
        pass
    await store.write(rest_of_queue)
    fault("after-queue")
    while await store.write(lambda: session_rows.delete_rows(session.id, _BATCH)):
        pass
    fault("after-rows")
    await store.write(lambda: session_rows.delete_session(session, clock.now_ms()))
