"""`mcode sessions rename`."""

from __future__ import annotations

import os

import click

from mcode_exec.cli.flag_types import SESSION_ID, TEXT
from mcode_exec.cli.list_options import await_result, data_dir, emit_document, notice


@click.command(
    "rename",
    short_help="Call a session something else.",
    epilog="""\b
Examples:
  mcode sessions rename mvs_1a2b3c4d "The flaky date test" """,
)
@click.argument("session", type=SESSION_ID)
@click.argument("title", type=TEXT)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@data_dir
def rename(session: str, title: str, output_format: str, data_dir: str | None) -> int:
    """Call SESSION by TITLE: its first line, at most 80 characters of it.

    A turn may run meanwhile. It does not move the session to the top of lists: only turns do.
    """
    from mcode_exec.executor.keeping import rename_session

    renamed = await_result(rename_session(data_dir, os.environ, session, title, notice))
    if output_format == "json":
        emit_document("sessions.rename", {"sessionId": renamed.id, "title": renamed.title})
    else:
        notice(f"session {renamed.id} is called: {renamed.title}")
    return 0
