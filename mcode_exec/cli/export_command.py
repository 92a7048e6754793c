"""`mcode sessions export`: one session as a document for another place, program or reader."""

from __future__ import annotations

import os

import click

from mcode_exec.cli.flag_types import SESSION_ID
from mcode_exec.cli.list_options import await_result, data_dir

_FORMATS = ("mcode", "opencode", "claude", "markdown", "html")


@click.command(
    "export",
    short_help="Write a session as a document: mcode's own, OpenCode's, Claude Code's, Markdown, HTML.",
    epilog="""\b
Examples:
  mcode sessions export mvs_41b83f22 -o s.json      all of it; `mcode sessions import s.json` brings it back
  mcode sessions export mvs_41b83f22 --format opencode -o s.json && opencode import s.json
  mcode sessions export mvs_41b83f22 --format markdown | less
""",
)
@click.argument("session", type=SESSION_ID)
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="mcode",
    show_default=True,
    help="mcode: history, turns, usage and attachments, without loss.",
)
@click.option(
    "-o", "--output", metavar="FILE", default="-", help="A file of its own, 0600 [default: stdout]."
)
@data_dir
def export(session: str, form: str, output: str, data_dir: str | None) -> int:
    """Write a session with everything in it as one document, secrets masked.

    SESSION is an id or a unique prefix of one.
    """
    from mcode_exec.cli.documents import write_document
    from mcode_exec.executor import exporting

    pieces = exporting.export(data_dir, os.environ, session, exporting.known(form))
    await_result(write_document("--output", output, pieces, data_dir))
    return 0
