"""`mcode sessions`: list, search, show, watch, export, import, verify, fork and delete what is kept.

Each command but the list is a module of its own.
"""

from __future__ import annotations

import os
from typing import Any

import click

from mcode_exec.cli.archive_command import archive, unarchive
from mcode_exec.cli.btw_command import btw
from mcode_exec.cli.create_command import create
from mcode_exec.cli.delete_command import delete
from mcode_exec.cli.diff_command import diff
from mcode_exec.cli.edit_last_command import edit_last
from mcode_exec.cli.export_command import export
from mcode_exec.cli.flag_types import TEXT
from mcode_exec.cli.fork_command import fork
from mcode_exec.cli.history_command import history
from mcode_exec.cli.import_command import import_
from mcode_exec.cli.label_command import label
from mcode_exec.cli.list_options import await_result, data_dir, emit, list_format, notice
from mcode_exec.cli.prune_command import prune
from mcode_exec.cli.rename_command import rename
from mcode_exec.cli.rewind_command import rewind
from mcode_exec.cli.search_command import search
from mcode_exec.cli.session_filters import flags_of, page_limit, session_filters
from mcode_exec.cli.session_rows import COLUMNS, FIELDS, row_of, table_row, tell_deletions
from mcode_exec.cli.share_command import share, unshare
from mcode_exec.cli.show_command import show
from mcode_exec.cli.tree_command import tree
from mcode_exec.cli.verify_command import verify
from mcode_exec.cli.watch_command import watch


@click.group("sessions", short_help="List, search, show, watch, fork, export, verify and delete sessions.")
def command() -> None:
    """List, search, show, watch, fork, export, verify and delete sessions."""


command.add_command(search)
command.add_command(tree)
command.add_command(history)
command.add_command(show)
command.add_command(watch)
command.add_command(create)
command.add_command(rename)
command.add_command(label)
command.add_command(archive)
command.add_command(unarchive)
command.add_command(export)
command.add_command(import_)
command.add_command(share)
command.add_command(unshare)
command.add_command(delete)
command.add_command(fork)
command.add_command(btw)
command.add_command(rewind)
command.add_command(edit_last)
command.add_command(prune)
command.add_command(diff)
command.add_command(verify)


@command.command(
    "list",
    short_help="Sessions of this workspace, newest first.",
    epilog="""\b
Examples:
  mcode sessions list --label ci=nightly --status error
  mcode sessions list --all --since 7d --output-format jsonl
  mcode sessions list --text "flaky test"        these words in its messages or title
  mcode sessions list --archived""",
)
@session_filters
@click.option(
    "--text", type=TEXT, metavar="WORDS", help="These words in a message or the title, as in search."
)
@page_limit("Sessions.")
@click.option("--before", metavar="CURSOR", help="Continue an earlier list.")
@list_format
@data_dir
def list_(
    text: str | None,
    limit: int,
    before: str | None,
    output_format: str,
    data_dir: str | None,
    **filters: Any,
) -> int:
    """Sessions of this workspace, by their newest turn; --since is about that."""
    from mcode_exec.executor.session_lists import list_sessions
    from mcode_exec.output.tables import render

    flags = flags_of(filters, text=text)
    page = await_result(
        list_sessions(data_dir, os.environ, flags, limit=limit, before_cursor=before, told=notice)
    )
    is_table = output_format == "table"
    seals, cursor = page.seals, page.cursor
    rows = [table_row(one) if is_table else row_of(one, seals.get(one.id)) for one in page.sessions]
    emit(render(rows, output_format, name="sessions", fields=FIELDS, columns=COLUMNS, cursor=cursor))
    if not rows and is_table:
        notice("no sessions here" if not flags.all_workspaces else "no sessions")
    if is_table:
        tell_deletions(seals)
    if cursor is not None and output_format != "json":
        notice(f"more: --before {cursor}")
    return 0
