"""Rows of a session as exports carry them: usage, receipts of turns that have ended, prefixes."""

from __future__ import annotations

import msgspec

from mcode_exec.records.export import ExportedTurn, ExportedUsage
from mcode_exec.records.turn import Receipt
from mcode_exec.store.tables import Prefixes, TokenUsage, TurnReceipts, dicts, tuples

_USAGE_FIELDS = ExportedUsage.__struct_fields__


def usage_after(session_id: str, after_row: int, limit: int) -> list[tuple[int, ExportedUsage]]:
    """(row, usage) of a session in the order of the calls, those behind a row."""
    query = (
        TokenUsage.select()
        .where((TokenUsage.session_id == session_id) & (TokenUsage.row > after_row))
        .order_by(TokenUsage.row)
        .limit(limit)
    )
    return [
        (int(row["row"]), ExportedUsage(**{name: row[name] for name in _USAGE_FIELDS}))
        for row in dicts(query)
    ]


def put_usage(session_id: str, usage: ExportedUsage) -> None:
    TokenUsage.insert(session_id=session_id, **msgspec.structs.asdict(usage)).execute()


def delete_usage(session_id: str) -> None:
    """What a session that is being brought back has had written already."""
    TokenUsage.delete().where(TokenUsage.session_id == session_id).execute()


def settled_after(session_id: str, sequence: int, limit: int) -> list[Receipt]:
    """Receipts of turns that have ended, with their results, in the order of their acceptance."""
    query = (
        TurnReceipts.select()
        .where(
            (TurnReceipts.session_id == session_id)
            & (TurnReceipts.sequence > sequence)
            & TurnReceipts.settled_ms.is_null(False)
        )
        .order_by(TurnReceipts.sequence)
        .limit(limit)
    )
    return [
        Receipt(
            **{
                **row,
                "result": None if row["result"] is None else bytes(row["result"]),
                "is_dispatched": bool(row["is_dispatched"]),
            }
        )
        for row in dicts(query)
    ]


def put_turn(session_id: str, turn: ExportedTurn, result: bytes | None) -> None:
    """Insert the receipt of a turn that ran elsewhere; one that is here already stays as it is."""
    TurnReceipts.insert(
        turn_id=turn.turn_id,
        session_id=session_id,
        digest=turn.digest,
        source=turn.source,
        attempt=turn.attempt,
        accepted_ms=turn.accepted_ms,
        settled_ms=turn.settled_ms,
        outcome=turn.outcome,
        reason=turn.reason,
        code=turn.code,
        result=result,
        is_dispatched=int(turn.is_dispatched),
    ).on_conflict_ignore().execute()


def prefix_body(digest: str) -> bytes | None:
    query = Prefixes.select(Prefixes.body).where(Prefixes.digest == digest)
    return next((bytes(body) for (body,) in tuples(query)), None)
