"""Holding a session for work on its files: while it lasts, no turn is admitted.

The lock row is of the same table as a turn's, so that admission and this see
each other in one transaction; a dead holder's goes with recovery.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcode_exec.clock import Clock
from mcode_exec.errors import BusyError
from mcode_exec.store import operation_rows, session_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.lease import LEASE_S
from mcode_exec.turns.owner import Owner


@asynccontextmanager
async def maintenance(store: Store, owner: Owner, session_id: str, clock: Clock) -> AsyncIterator[None]:
    """Keep turns out of a session.

    Raises: BusyError when one runs; StoreBusyError, StoreFailedError.
    """
    wanted = maintenance_lock(owner, session_id, clock)

    def transaction() -> bool:
        session = session_rows.find_session(session_id)
        if session is None or session.deleting_by is not None or operation_rows.is_held_up(session_id):
            return False
        return turn_rows.insert_lock(wanted)

    if not await store.write(transaction):
        raise BusyError(f"session {session_id} is busy; its files are worked on only while nothing runs")
    try:
        yield
    finally:
        await store.write(lambda: turn_rows.delete_lock(session_id, wanted.token))


def maintenance_lock(owner: Owner, session_id: str, clock: Clock) -> Lock:
    """The row that keeps turns out of a session."""
    now_ms, lease_ms = clock.now_ms(), int(LEASE_S * 1000)
    return Lock(
        session_id=session_id,
        kind="maintenance",
        owner=owner.token,
        token="lease_" + os.urandom(16).hex(),
        turn_id=None,
        acquired_ms=now_ms,
        expires_ms=now_ms + lease_ms,
        boot_id=owner.boot_id,
        expires_boot_ms=clock.boot_ms() + lease_ms,
        pid=owner.pid,
        host=owner.host,
    )
