"""`mcode sessions history`: what people said to a session."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from mcode_exec.cli.flag_types import SESSION_ID
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, list_format, notice
from mcode_exec.cli.session_filters import page_limit

if TYPE_CHECKING:
    from mcode_exec.records.finding import Prompt

_COLUMNS = {"time": "TIME", "said": "SAID", "text": "PROMPT"}


@click.command(
    "history",
    short_help="The prompts of a session.",
    epilog="""\b
Examples:
  mcode sessions history mvs_0123abcd
  mcode sessions history mvs_0123abcd --limit 1 --output-format jsonl    the newest one, whole""",
)
@click.argument("session", type=SESSION_ID)
@page_limit("Prompts.")
@click.option("--before", metavar="CURSOR", help="Earlier prompts.")
@list_format
@data_dir
def history(session: str, limit: int, before: str | None, output_format: str, data_dir: str | None) -> int:
    """The prompts of SESSION, the newest last; what was said to a turn that was running is marked as a steer.

    SESSION is an id or a unique prefix of one. A table shows the beginning of each; the other formats have all
    of it.
    """
    from mcode_exec.executor.session_lists import session_prompts
    from mcode_exec.output.tables import field_names, render
    from mcode_exec.records.finding import Prompt

    page = await_result(session_prompts(data_dir, os.environ, session, limit=limit, before_cursor=before))
    if output_format == "json":
        rows = [_row(prompt) for prompt in page.prompts]
        emit_document(None, {"sessionId": page.session.id, "prompts": rows, "nextCursor": page.cursor})
        return 0
    is_table = output_format == "table"
    rows = [_table_row(prompt) if is_table else _row(prompt) for prompt in page.prompts]
    emit(render(rows, output_format, name="prompts", fields=field_names(Prompt), columns=_COLUMNS))
    if not rows and is_table:
        notice("no prompts" if before is None else "no earlier prompts")
    if page.cursor is not None:
        notice(f"earlier prompts: --before {page.cursor}")
    return 0


def _row(prompt: Prompt) -> dict[str, Any]:
    from msgspec import to_builtins

    fields: dict[str, Any] = to_builtins(prompt)
    return fields


def _table_row(prompt: Prompt) -> dict[str, Any]:
    from mcode_exec.output.transcript import local_time

    words = " ".join(prompt.text[:1_000].split())
    files = "".join(f" [{name}]" for name in prompt.files)
    return {
        "time": local_time(prompt.at_ms),
        "said": "prompt" if prompt.steered_by is None else "steer",
        "text": (words + files).strip(),
    }
