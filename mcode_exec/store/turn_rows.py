"""Rows of `session_locks`, `turn_receipts` and `client_requests`."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from mcode_exec.records.turn import Holder, LockKind, Receipt
from mcode_exec.store.tables import ClientRequests, SessionLocks, TurnReceipts, dicts, tuples


class Lock(Struct, frozen=True, kw_only=True):
    """A session lock as it stands in the table."""

    session_id: str
    kind: LockKind
    owner: str
    token: str
    turn_id: str | None
    acquired_ms: int
    expires_ms: int
    boot_id: str
    expires_boot_ms: int
    pid: int
    host: str

    def holder(self) -> Holder:
        return Holder(
            kind=self.kind,
            turn_id=self.turn_id,
            owner=self.owner,
            pid=self.pid,
            host=self.host,
            acquired_ms=self.acquired_ms,
            expires_ms=self.expires_ms,
        )


def find_lock(session_id: str) -> Lock | None:
    query = SessionLocks.select().where(SessionLocks.session_id == session_id)
    return next((msgspec.convert(row, Lock) for row in dicts(query)), None)


def all_locks(limit: int) -> list[Lock]:
    return [msgspec.convert(row, Lock) for row in dicts(SessionLocks.select().limit(limit))]


def insert_lock(lock: Lock) -> bool:
    """Take a free session; False if a lock row exists."""
    values = {name: getattr(lock, name) for name in Lock.__struct_fields__}
    return bool(SessionLocks.insert(**values).on_conflict_ignore().as_rowcount().execute())


def extend_lock(session_id: str, token: str, expires_ms: int, expires_boot_ms: int) -> bool:
    """Renew a lease; False if it is no longer signed by `token`.  Never makes a row."""
    query = SessionLocks.update(expires_ms=expires_ms, expires_boot_ms=expires_boot_ms).where(
        (SessionLocks.session_id == session_id) & (SessionLocks.token == token)
    )
    return bool(query.execute())


def holds_lock(session_id: str, token: str) -> bool:
    query = SessionLocks.select().where(
        (SessionLocks.session_id == session_id) & (SessionLocks.token == token)
    )
    return bool(query.exists())


def delete_lock(session_id: str, token: str) -> bool:
    query = SessionLocks.delete().where(
        (SessionLocks.session_id == session_id) & (SessionLocks.token == token)
    )
    return bool(query.execute())


def _receipt(row: dict[str, Any]) -> Receipt:
    if row["result"] is not None:
        row["result"] = bytes(row["result"])
    row["is_dispatched"] = bool(row["is_dispatched"])
    return Receipt(**row)


def find_receipt(turn_id: str) -> Receipt | None:
    query = TurnReceipts.select().where(TurnReceipts.turn_id == turn_id)
    return next((_receipt(row) for row in dicts(query)), None)


def find_request(scope: str, request_id: str) -> Receipt | None:
    """The receipt of the newest attempt of a client request."""
    query = ClientRequests.select(ClientRequests.turn_id).where(
        (ClientRequests.request_scope == scope) & (ClientRequests.request_id == request_id)
    )
    return next((find_receipt(turn_id) for (turn_id,) in tuples(query)), None)


def insert_receipt(
    *,
    turn_id: str,
    session_id: str,
    digest: str,
    source: str,
    request_scope: str | None,
    request_id: str | None,
    attempt: int,
    accepted_ms: int,
    is_dispatched: bool = False,
) -> Receipt:
    """Write a receipt under the next sequence number; it becomes its request's newest attempt."""
    sequence = TurnReceipts.insert(
        turn_id=turn_id,
        session_id=session_id,
        digest=digest,
        source=source,
        request_scope=request_scope,
        request_id=request_id,
        attempt=attempt,
        accepted_ms=accepted_ms,
        is_dispatched=int(is_dispatched),
    ).execute()
    if request_id is not None and request_scope is not None:
        ClientRequests.replace(
            request_scope=request_scope, request_id=request_id, session_id=session_id, turn_id=turn_id
        ).execute()
    return Receipt(
        sequence=int(sequence),
        turn_id=turn_id,
        session_id=session_id,
        digest=digest,
        source=source,
        attempt=attempt,
        accepted_ms=accepted_ms,
        request_id=request_id,
        request_scope=request_scope,
        is_dispatched=is_dispatched,
    )


def settle_receipt(
    turn_id: str,
    *,
    settled_ms: int,
    outcome: str,
    reason: str | None,
    code: str | None,
    result: bytes | None,
) -> bool:
    """Write a turn's terminal fact; False if it has one already."""
    query = TurnReceipts.update(
        settled_ms=settled_ms, outcome=outcome, reason=reason, code=code, result=result
    ).where((TurnReceipts.turn_id == turn_id) & TurnReceipts.settled_ms.is_null())
    return bool(query.execute())
