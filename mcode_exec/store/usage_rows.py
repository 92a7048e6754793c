"""What rows of `token_usage` come to, by agent, session, model or day.

Sums of tokens are the database's; money is summed as decimals, exactly.  A
class that no row reports is None, not zero, and rows without a price or
without their usage are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from msgspec import Struct
from peewee import SQL, fn

from mcode_exec.records.usage import By, Usage
from mcode_exec.store.tables import Sessions, TokenUsage, dicts


class UsageSum(Struct, frozen=True, kw_only=True):
    """One group of rows."""

    #: agent, session id, `provider/model` or `YYYY-MM-DD`; None: the default agent
    key: str | None
    #: of a session, for people
    title: str | None = None
    #: model calls that gave an answer, and attempts that gave none but may have been billed
    answers: int
    failed: int
    usage: Usage
    #: rows whose usage is not fully known
    incomplete: int
    #: what is known of the cost, and the rows whose cost is not known
    known_cost_usd: Decimal
    unpriced: int


class _DecimalSum:
    """SQLite's own sum() would add money as binary floats."""

    def __init__(self) -> None:
        self._total = Decimal(0)

    def step(self, value: str | None) -> None:
        if value is not None:
            self._total += Decimal(value)

    def finalize(self) -> str:
        return format(self._total, "f")


def sum_usage(
    by: By,
    *,
    since_ms: int | None,
    until_ms: int | None,
    session_id: str | None,
    day_of: Callable[[int], str],
) -> list[UsageSum]:
    """Groups by key, sessions by their newest call; `day_of` gives the day of a row's milliseconds.

    Runs on the store thread, in a read.
    """
    database = TokenUsage._meta.database
    database.register_aggregate(_DecimalSum, "decimal_sum", 1)
    database.register_function(day_of, "day_of", 1)
    key = _key(by)
    query = TokenUsage.select(
        key.alias("key"),
        fn.SUM(TokenUsage.kind == "answer").alias("answers"),
        fn.COUNT(SQL("*")).alias("rows"),
        *(fn.SUM(getattr(TokenUsage, name)).alias(name) for name in Usage.__struct_fields__),
        fn.SUM(TokenUsage.input_tokens.is_null() | TokenUsage.output_tokens.is_null()).alias("incomplete"),
        fn.decimal_sum(TokenUsage.cost_usd).alias("cost"),
        fn.SUM(TokenUsage.cost_usd.is_null()).alias("unpriced"),
    )
    if since_ms is not None:
        query = query.where(TokenUsage.at_ms >= since_ms)
    if until_ms is not None:
        query = query.where(TokenUsage.at_ms < until_ms)
    if session_id is not None:
        query = query.where(TokenUsage.session_id == session_id)
    order = fn.MAX(TokenUsage.row) if by == "session" else SQL("1")
    rows = dicts(query.group_by(key).order_by(order))
    titles = _titles([row["key"] for row in rows]) if by == "session" else {}
    return [_sum_of(row, titles.get(row["key"])) for row in rows]


def _key(by: By) -> Any:
    if by == "agent":
        return TokenUsage.agent
    if by == "session":
        return TokenUsage.session_id
    if by == "day":
        return fn.day_of(TokenUsage.at_ms)
    return TokenUsage.provider_id.concat("/").concat(TokenUsage.model_id)


def _titles(session_ids: list[str]) -> dict[str, str]:
    titles: dict[str, str] = {}
    for start in range(0, len(session_ids), 500):  # SQLite bounds the parameters of one statement
        part = session_ids[start : start + 500]
        query = Sessions.select(Sessions.id, Sessions.title).where(Sessions.id.in_(part))
        titles |= {row["id"]: row["title"] for row in dicts(query)}
    return titles


def _sum_of(row: dict[str, Any], title: str | None) -> UsageSum:
    return UsageSum(
        key=row["key"],
        title=title,
        answers=row["answers"],
        failed=row["rows"] - row["answers"],
        usage=Usage(**{name: row[name] for name in Usage.__struct_fields__}),
        incomplete=row["incomplete"],
        known_cost_usd=Decimal(row["cost"]),
        unpriced=row["unpriced"],
    )
