"""`mcode sessions diff`: which files the turns of a session changed, as a list, a summary or a patch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mcode_exec.cli.flag_types import SESSION_ID, Key
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, list_format, notice

if TYPE_CHECKING:
    from mcode_exec.executor.change_reading import Diff

_COLUMNS = {
    "status": "STATUS",
    "path": "FILE",
    "additions": "+",
    "deletions": "-",
    "turn": "TURN",
}


@click.command(
    "diff",
    short_help="Files that a session changed.",
    epilog="""\b
Examples:
  mcode sessions diff mvs_1a2b3c4d --stat
  mcode sessions diff mvs_1a2b3c4d --turn turn_1b54 --patch | git apply -R      takes one turn back
  mcode sessions diff mvs_1a2b3c4d --output-format json | jq -r '.files[].path'""",
)
@click.argument("session", type=SESSION_ID)
@click.option("--turn", metavar="TURN", type=Key(), help="Only this turn's (an id, or its unique beginning).")
@click.option("--stat", is_flag=True, help="A line a file with a bar, and the sums.")
@click.option("--patch", is_flag=True, help="The changes themselves, as `git apply` takes them.")
@list_format
@data_dir
def diff(
    session: str, turn: str | None, stat: bool, patch: bool, output_format: str, data_dir: str | None
) -> int:
    """Which files the turns of SESSION changed, by edits and by commands, all turns taken together.

    What a turn changed is kept for 7 days. What is not known of it is said on stderr, and in `turns` of json.
    """
    from msgspec import to_builtins

    from mcode_exec.executor.change_reading import FileRow, diff_session
    from mcode_exec.output.tables import field_names, render

    if stat and patch:
        raise click.UsageError("--stat and --patch cannot be combined.")
    found = await_result(diff_session(data_dir, os.environ, session, turn=turn, with_patch=patch))
    rows = [to_builtins(file) for file in found.files]
    if output_format == "json":
        turns = to_builtins(found.turns)
        fields = {"sessionId": found.session_id, "files": rows, "turns": turns, "nextCursor": None}
        emit_document("sessions.diff", fields)
    elif output_format != "table":
        emit(render(rows, output_format, name="files", fields=field_names(FileRow), columns={}))
    elif patch:
        emit(_for_reader(found.patch))
    elif stat:
        from mcode_exec.output.file_stat import file_stat

        emit(file_stat(found.files).encode("utf-8", "replace"))
    else:
        for row in rows:
            row["turn"] = row["turnIds"][-1]
            if row["oldPath"] is not None:
                row["path"] = f"{row['oldPath']} => {row['path']}"
        emit(render(rows, "table", name="files", fields=(), columns=_COLUMNS))
    if output_format == "table":
        _tell(found)
    return 0


def _for_reader(patch: bytes) -> bytes:
    """As it is for a program; on a terminal nothing in it acts."""
    if not os.isatty(1):
        return patch
    from mcode_exec.output.escape import escape_text

    return escape_text(patch.decode("utf-8", "replace")).encode("utf-8", "replace")


def _tell(found: Diff) -> None:
    for sentence in found.notices:
        notice(sentence)
    if not found.files and not found.notices:
        notice("no files were changed")
