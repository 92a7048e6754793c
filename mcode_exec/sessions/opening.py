"""Opening a session for a turn that has been admitted: finish, repair, and only then let it run.

What a dead process left is completed here, under the new owner's lease: rows
that history is ahead of, and results of calls that were cut short.
"""

from __future__ import annotations

import asyncio

from mcode_exec.clock import Clock
from mcode_exec.faults import fault
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.commit import CommitDoor, check_lease
from mcode_exec.sessions.history import CanonicalHistory, NeedsChangeError, open_history
from mcode_exec.sessions.layout import history_paths
from mcode_exec.sessions.record_rows import finish_rows
from mcode_exec.sessions.stream import SessionStream
from mcode_exec.sessions.transcript import missing_results
from mcode_exec.store.database import Patience, Store


async def open_door(
    *,
    store: Store,
    sessions_dir: str,
    session: Session,
    stream: SessionStream,
    turn_id: str,
    lease_token: str,
    is_takeover: bool,
    agent: str | None,
    redactor: Redactor,
    clock: Clock,
    patience: Patience | None = None,
) -> tuple[CommitDoor, CanonicalHistory]:
    """The door for one turn; the history is consistent with its rows and valid for a model.

    Raises: HistoryCorruptError; StoreFailedError; LeaseLostError.
    """
    paths = history_paths(sessions_dir, session.history_relative_dir)

    def opened(*, may_change: bool) -> CanonicalHistory:
        return open_history(
            paths,
            session.id,
            sessions_dir,
            known_bytes=session.history_bytes,
            takeover=is_takeover,
            now_ms=clock.now_ms(),
            may_change=may_change,
        )

    def changed() -> CanonicalHistory:
        # A process that slept may be past its lease, and its successor has written meanwhile.  Nobody takes
        # a lease while this transaction lasts.
        check_lease(session.id, lease_token)
        return opened(may_change=True)

    async def load() -> CanonicalHistory:
        if not is_takeover:
            try:
                return await store.on_thread(lambda: opened(may_change=False))
            except NeedsChangeError:
                pass
        return await store.write(changed, patience)

    history = await asyncio.shield(load())
    door = CommitDoor(
        store=store,
        history=history,
        stream=stream,
        session_id=session.id,
        turn_id=turn_id,
        lease_token=lease_token,
        agent=agent,
        redactor=redactor,
        clock=clock,
        patience=patience,
    )
    if history.beyond or (history.records and history.size != session.history_bytes):
        beyond, history.beyond = history.beyond, []
        await store.write(lambda: finish_rows(beyond, session.id, history.size, redactor), patience)
    fault("after-opening")
    for record in missing_results(history.records, clock.now_ms()):
        await door.commit(record)
    return door, history
