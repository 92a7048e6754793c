"""`mcode usage`: tokens and money of model calls, by agent, session, model or day."""

from __future__ import annotations

import os
import shutil
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from mcode_exec.cli.flag_types import SESSION_ID
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, list_format, notice

if TYPE_CHECKING:
    from mcode_exec.executor.usage import UsageRow
    from mcode_exec.records.usage import By

_HEADINGS = {"agent": "AGENT", "session": "SESSION", "model": "MODEL", "day": "DAY"}
_COLUMNS = {
    "answers": "CALLS",
    "failed": "FAILED",
    "inputTokens": "INPUT",
    "cacheReadTokens": "CACHED",
    "cacheWriteTokens": "CACHE WRITE",
    "outputTokens": "OUTPUT",
    "reasoningTokens": "REASONING",
    "cost": "USD",
}
#: newest of a list that a chart shows
_MOST_BARS = 30


@click.command(
    "usage",
    short_help="Tokens and cost of model calls.",
    epilog="""\b
Examples:
  mcode usage                                    by model, everything that is kept
  mcode usage --by day --since 7d --timezone Europe/Berlin
  mcode usage --by session --since 2026-01-01 --output-format csv
  mcode usage --session mvs_0123abcd --output-format json""",
)
@click.option("--by", type=click.Choice(list(_HEADINGS)), default="model", show_default=True)
@click.option("--since", metavar="WHEN", help="From there on: 7d, 2026-01-31 or 2026-01-31T12:00.")
@click.option("--until", metavar="WHEN", help="Up to there, not included.")
@click.option("--session", type=SESSION_ID, metavar="ID", help="Of one session.")
@click.option("--timezone", metavar="ZONE", help="Of days and of times without one [default: UTC].")
@click.option("--chart", is_flag=True, help="Also a bar chart (the [plots] extra).")
@list_format
@data_dir
def command(
    by: By,
    since: str | None,
    until: str | None,
    session: str | None,
    timezone: str | None,
    chart: bool,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Tokens and cost of model calls, failed ones that were billed included, and their sum.

    Unknown is not zero: a class of tokens that nobody reported is null, and so is a cost with an
    unknown part (knownCostUsd has the rest of it).
    """
    from mcode_exec.executor.usage import usage

    if chart and output_format != "table":
        raise click.UsageError("--chart and --output-format cannot be combined: a chart is for people.")
    rows, total = await_result(
        usage(data_dir, os.environ, by=by, since=since, until=until, session=session, timezone=timezone)
    )
    # what cannot be drawn is said before anything is printed
    drawn = _chart(rows, by) if chart and rows else ""
    if output_format == "json":
        emit_document(None, {"usage": rows, "total": total, "nextCursor": None})
        return 0
    from mcode_exec.executor.usage import UsageRow
    from mcode_exec.output.tables import field_names, render

    is_table = output_format == "table"
    lines = [_table_row(row) if is_table else _row(row) for row in (*rows, total)]
    columns = {"key": _HEADINGS[by], **({"title": "TITLE"} if by == "session" else {}), **_COLUMNS}
    shown = lines if rows or not is_table else []
    emit(render(shown, output_format, name="usage", fields=field_names(UsageRow), columns=columns))
    if is_table and not rows:
        notice("no model calls yet" if since is until is session is None else "no model calls there")
    if drawn:
        emit(drawn.encode("utf-8", "replace"))
    return 0


def _row(row: UsageRow) -> dict[str, Any]:
    from msgspec import to_builtins

    fields: dict[str, Any] = to_builtins(row, builtin_types=(Decimal,))
    return fields


def _table_row(row: UsageRow) -> dict[str, Any]:
    fields = _row(row)
    if row.by == "total":
        fields["key"] = "total"
    elif row.by == "agent" and row.key is None:
        fields["key"] = "(none)"
    known = _dollars(row.known_cost_usd)
    fields["cost"] = known if row.cost_usd is not None else f"{known} + ?"
    if row.usage_incomplete:
        for name in ("inputTokens", "outputTokens"):
            fields[name] = "?" if fields[name] is None else f"{fields[name]} + ?"
    return fields


def _dollars(amount: Decimal) -> str:
    """Four places, and more where these would show nothing of the amount."""
    places = 4 if not amount or amount >= Decimal("0.0001") else min(-amount.adjusted() + 1, 12)
    return format(amount, f".{places}f")


def _chart(rows: list[UsageRow], by: str) -> str:
    """Money where every price is known, else tokens."""
    from mcode_exec.output.chart import bars

    rows = rows[-_MOST_BARS:]
    has_cost = any(row.known_cost_usd for row in rows) and all(row.cost_usd is not None for row in rows)
    values = [row.known_cost_usd if has_cost else row.total_tokens or 0 for row in rows]
    labels = [row.title or row.key or "(none)" for row in rows]
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return "\n" + bars(labels, values, title=f"{'US dollars' if has_cost else 'tokens'} by {by}", width=width)
