"""`mcode sessions import`: the door back for what `sessions export` wrote."""

from __future__ import annotations

import os

import click

from mcode_exec.cli.list_options import await_result, data_dir, emit, list_format, notice

_COLUMNS = {
    "sessionId": "SESSION",
    "outcome": "OUTCOME",
    "messages": "MESSAGES",
    "title": "TITLE",
}


@click.command(
    "import",
    short_help="Bring back a session that was exported.",
    epilog="""\b
Examples:
  mcode sessions import session.json             under its own id; again: unchanged
  mcode sessions import session.json --new-id    a copy beside it
""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--new-id", is_flag=True, help="As a copy under a new id, whether the session is here or not.")
@list_format
@data_dir
def import_(files: tuple[str, ...], new_id: bool, output_format: str, data_dir: str | None) -> int:
    """Bring back sessions that `mcode sessions export` wrote, with history, usage, turns and attachments.

    A session that is here already stays as it is. Permissions and session keys do not come along.
    """
    from mcode_exec.executor.restoring import Restored, restore_file
    from mcode_exec.output.tables import field_names, render

    rows = []
    for file in files:
        restored = await_result(restore_file(data_dir, os.environ, file, as_new=new_id))
        rows.append(
            {
                name: getattr(restored, own)
                for name, own in zip(field_names(Restored), Restored.__struct_fields__, strict=True)
            }
        )
    emit(render(rows, output_format, name="imported", fields=field_names(Restored), columns=_COLUMNS))
    if output_format == "table" and any(row["outcome"] == "unchanged" for row in rows):
        notice("a session that is here already was left as it is; --new-id makes a copy")
    return 0
