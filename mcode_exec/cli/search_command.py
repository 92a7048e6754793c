"""`mcode sessions search`: words in messages and titles."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from mcode_exec.cli.flag_types import TEXT
from mcode_exec.cli.list_options import await_result, data_dir, emit, list_format, notice
from mcode_exec.cli.session_filters import flags_of, page_limit, session_filters

if TYPE_CHECKING:
    from mcode_exec.records.finding import Place, SearchHit

_COLUMNS = {"time": "TIME", "sessionId": "SESSION", "place": "IN", "snippet": "TEXT"}


@click.command(
    "search",
    short_help="Words in messages and titles.",
    epilog="""\b
Examples:
  mcode sessions search deadlock worker          both words in one message, or in one title
  mcode sessions search '"connection reset"'     these words in a row
  mcode sessions search 'migrat*' --all          words that begin so (3 letters or more)
  mcode sessions search retry --in prompt --since 7d
  mcode sessions search retry --output-format jsonl""",
)
@click.argument("text", type=TEXT, nargs=-1, required=True)
@click.option(
    "--in", "places", type=click.Choice(["title", "prompt", "answer", "tool"]), multiple=True,
    metavar="PLACE", help="Repeatable: title, prompt, answer, tool [default: everywhere].",
)  # fmt: skip
@session_filters
@page_limit("Hits.")
@click.option("--before", metavar="CURSOR", help="Continue an earlier search.")
@list_format
@data_dir
def search(
    text: tuple[str, ...],
    places: tuple[Place, ...],
    limit: int,
    before: str | None,
    output_format: str,
    data_dir: str | None,
    **filters: Any,
) -> int:
    """Messages of this workspace's sessions in which all words of TEXT stand, and titles, newest first.

    Searched are prompts, answers, names of files, and of tool calls the input and the first 4,000 characters
    of the output. Case and accents make no difference; "words in quotes" stand in a row, and word* is the
    beginning of one. Nothing else in TEXT has a meaning. --since is about the message.

    The index (search.db in the data directory) is made by the first search and brought up to date by each;
    it may be removed.
    """
    from mcode_exec.executor.session_lists import search_sessions
    from mcode_exec.output.tables import field_names, render
    from mcode_exec.records.finding import SearchHit

    page = await_result(
        search_sessions(
            data_dir,
            os.environ,
            flags_of(filters, text=" ".join(text)),
            places=places,
            limit=limit,
            before_cursor=before,
            told=notice,
        )
    )
    is_table = output_format == "table"
    rows = [_table_row(hit) if is_table else _row(hit) for hit in page.hits]
    emit(
        render(
            rows,
            output_format,
            name="hits",
            fields=field_names(SearchHit),
            columns=_COLUMNS,
            cursor=page.cursor,
        )
    )
    if not rows and is_table:
        notice("nothing found" if filters["all_workspaces"] else "nothing found here (--all: everywhere)")
    if page.cursor is not None and output_format != "json":
        notice(f"more: --before {page.cursor}")
    return 0


def _row(hit: SearchHit) -> dict[str, Any]:
    from msgspec import to_builtins

    fields: dict[str, Any] = to_builtins(hit)
    return fields


def _table_row(hit: SearchHit) -> dict[str, Any]:
    from mcode_exec.output.transcript import local_time

    return {**_row(hit), "time": local_time(hit.at_ms)}
