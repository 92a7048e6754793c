"""Rows of `session_locks`, `turn_receipts` and `client_requests`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from peewee import fn

from mcode_exec.records.turn import Holder, LockKind, Receipt
from mcode_exec.store.statement import Statement
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


_FIND_LOCK = Statement(
    lambda session_id: SessionLocks.select().where(SessionLocks.session_id == session_id), str
)


def find_lock(session_id: str) -> Lock | None:
    row = _FIND_LOCK.first(session_id)
    return None if row is None else msgspec.convert(row, Lock)


def page_locks(after: str, limit: int) -> list[Lock]:
    """Locks by session id, those behind `after`."""
    query = SessionLocks.select().where(SessionLocks.session_id > after).order_by(SessionLocks.session_id)
    return [msgspec.convert(row, Lock) for row in dicts(query.limit(limit))]


_LOCK_NUMBERS = ("acquired_ms", "expires_ms", "expires_boot_ms", "pid")
_INSERT_LOCK = Statement(
    lambda *values: SessionLocks.insert(
        **dict(zip(Lock.__struct_fields__, values, strict=True))
    ).on_conflict_ignore(),
    *(int if name in _LOCK_NUMBERS else str for name in Lock.__struct_fields__),
)


def insert_lock(lock: Lock) -> bool:
    """Take a free session; False if a lock row exists."""
    return bool(_INSERT_LOCK.count(*(getattr(lock, name) for name in Lock.__struct_fields__)))


def _ours(session_id: str, token: str) -> Any:
    return (SessionLocks.session_id == session_id) & (SessionLocks.token == token)


_EXTEND = Statement(
    lambda session_id, token, expires_ms, expires_boot_ms: SessionLocks.update(
        expires_ms=expires_ms, expires_boot_ms=expires_boot_ms
    ).where(_ours(session_id, token)),
    str,
    str,
    int,
    int,
)
_HOLDS = Statement(
    lambda session_id, token: SessionLocks.select(SessionLocks.session_id).where(_ours(session_id, token)),
    str,
    str,
)
_DELETE_LOCK = Statement(
    lambda session_id, token: SessionLocks.delete().where(_ours(session_id, token)), str, str
)


def extend_lock(session_id: str, token: str, expires_ms: int, expires_boot_ms: int) -> bool:
    """Renew a lease; False if it is no longer signed by `token`.  Never makes a row."""
    return bool(_EXTEND.count(session_id, token, expires_ms, expires_boot_ms))


def holds_lock(session_id: str, token: str) -> bool:
    return _HOLDS.exists(session_id, token)


def delete_lock(session_id: str, token: str) -> bool:
    return bool(_DELETE_LOCK.count(session_id, token))


def _receipt(row: dict[str, Any]) -> Receipt:
    if row["result"] is not None:
        row["result"] = bytes(row["result"])
    row["is_dispatched"] = bool(row["is_dispatched"])
    return Receipt(**row)


_FIND_RECEIPT = Statement(lambda turn_id: TurnReceipts.select().where(TurnReceipts.turn_id == turn_id), str)


def find_receipt(turn_id: str) -> Receipt | None:
    row = _FIND_RECEIPT.first(turn_id)
    return None if row is None else _receipt(row)


def find_request(scope: str, request_id: str) -> Receipt | None:
    """The receipt of the newest attempt of a client request."""
    query = ClientRequests.select(ClientRequests.turn_id).where(
        (ClientRequests.request_scope == scope) & (ClientRequests.request_id == request_id)
    )
    return next((find_receipt(turn_id) for (turn_id,) in tuples(query)), None)


def newest_receipts(session_id: str, before: int | None, limit: int) -> list[Receipt]:
    """Receipts of a session without their results, newest first, those before a sequence number."""
    fields = [getattr(TurnReceipts, name) for name in Receipt.__struct_fields__ if name != "result"]
    query = TurnReceipts.select(*fields).where(TurnReceipts.session_id == session_id)
    if before is not None:
        query = query.where(TurnReceipts.sequence < before)
    rows = dicts(query.order_by(TurnReceipts.sequence.desc()).limit(limit))
    return [_receipt({**row, "result": None}) for row in rows]


def receipts_of(turn_ids: Sequence[str]) -> list[Receipt]:
    """The receipts of turns, with their results; those that have none are left out."""
    return [receipt for turn_id in turn_ids if (receipt := find_receipt(turn_id)) is not None]


def turns_with_prefix(session_id: str, prefix: str) -> list[str]:
    """At most two turns of a session whose ids start with `prefix`: enough to know whether it is unique."""
    query = TurnReceipts.select(TurnReceipts.turn_id).where(
        (TurnReceipts.session_id == session_id)
        & (TurnReceipts.turn_id >= prefix)
        & (TurnReceipts.turn_id < prefix + "g")
    )
    return [str(turn_id) for (turn_id,) in tuples(query.limit(2))]


class Turn(Struct, frozen=True):
    """That a turn was accepted, and whether it has ended."""

    sequence: int
    turn_id: str
    is_settled: bool


def _turns(condition: Any) -> Any:
    columns = (TurnReceipts.sequence, TurnReceipts.turn_id, TurnReceipts.settled_ms.is_null(False))
    return TurnReceipts.select(*columns).where(condition).order_by(TurnReceipts.sequence)


_TURNS_AFTER = Statement(
    lambda session_id, sequence, limit: _turns(
        (TurnReceipts.session_id == session_id) & (TurnReceipts.sequence > sequence)
    ).limit(limit),
    *(str, int, int),
)
_TURN_AT = Statement(
    lambda session_id, sequence: _turns(
        (TurnReceipts.session_id == session_id) & (TurnReceipts.sequence == sequence)
    ),
    *(str, int),
)
_TURN_NAMED = Statement(lambda turn_id: _turns(TurnReceipts.turn_id == turn_id), str)


def _as_turns(rows: list[tuple[Any, ...]]) -> list[Turn]:
    return [Turn(sequence, turn_id, bool(is_settled)) for sequence, turn_id, is_settled in rows]


def turns_after(session_id: str, sequence: int, limit: int) -> list[Turn]:
    """Turns of a session behind a sequence number, oldest first."""
    return _as_turns(_TURNS_AFTER.tuples(session_id, sequence, limit))


def turn_at(session_id: str, sequence: int) -> Turn | None:
    """The turn of a sequence number, if it is one of this session."""
    return next(iter(_as_turns(_TURN_AT.tuples(session_id, sequence))), None)


def turn_named(turn_id: str) -> Turn | None:
    return next(iter(_as_turns(_TURN_NAMED.tuples(turn_id))), None)


def newest_sequence(session_id: str) -> int:
    """The sequence number of a session's newest turn; 0: it has none."""
    query = TurnReceipts.select(fn.MAX(TurnReceipts.sequence)).where(TurnReceipts.session_id == session_id)
    return next((int(sequence or 0) for (sequence,) in tuples(query)), 0)


_INSERT_RECEIPT = Statement(
    lambda turn_id, session_id, digest, source, scope, request_id, attempt, at_ms, is_dispatched: (
        TurnReceipts.insert(
            turn_id=turn_id,
            session_id=session_id,
            digest=digest,
            source=source,
            request_scope=scope,
            request_id=request_id,
            attempt=attempt,
            accepted_ms=at_ms,
            is_dispatched=is_dispatched,
        )
    ),
    *(str, str, str, str, str, str, int, int, int),
)


def bind_request(scope: str, request_id: str, session_id: str, turn_id: str) -> None:
    """Let a turn be found under an id; it takes the place of one that was found there."""
    ClientRequests.replace(
        request_scope=scope, request_id=request_id, session_id=session_id, turn_id=turn_id
    ).execute()


def insert_receipt(
    *,
    turn_id: str,
    session_id: str,
    digest: str,
    source: str,
    request_scope: str | None,
    request_id: str | None,
    found_in: Iterable[str] = (),
    attempt: int,
    accepted_ms: int,
    is_dispatched: bool = False,
) -> Receipt:
    """Write a receipt under the next sequence number; it becomes the newest attempt of its request in `found_in`."""
    sequence = _INSERT_RECEIPT.run(
        turn_id,
        session_id,
        digest,
        source,
        request_scope,
        request_id,
        attempt,
        accepted_ms,
        int(is_dispatched),
    ).lastrowid
    for scope in found_in:
        assert request_id is not None
        bind_request(scope, request_id, session_id, turn_id)
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


_SETTLE = Statement(
    lambda turn_id, settled_ms, outcome, reason, code, result: TurnReceipts.update(
        settled_ms=settled_ms, outcome=outcome, reason=reason, code=code, result=result
    ).where((TurnReceipts.turn_id == turn_id) & TurnReceipts.settled_ms.is_null()),
    *(str, int, str, str, str, bytes),
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
    return bool(_SETTLE.count(turn_id, settled_ms, outcome, reason, code, result))
