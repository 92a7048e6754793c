"""`mcode sessions share` and `unshare`: a page of a session that is kept up to date."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mcode_exec.cli.flag_types import SESSION_ID
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, notice

if TYPE_CHECKING:
    from mcode_exec.executor.sharing import Shared

_output_format = click.option(
    "--output-format", type=click.Choice(("text", "json")), default="text", help="text: the page's path."
)


@click.command(
    "share",
    short_help="Keep a page of a session up to date for other readers.",
    epilog="""\b
Examples:
  mcode sessions share mvs_41b83f22 --dir /var/www/sessions
  mcode sessions unshare mvs_41b83f22
""",
)
@click.argument("session", type=SESSION_ID)
@click.option(
    "--dir", "directory", metavar="DIR", help="Where [default: auto_dir of [share] in your config]."
)
@click.option("--config", "config_file", metavar="FILE", help="Config file instead of the usual one.")
@_output_format
@data_dir
def share(
    session: str, directory: str | None, config_file: str | None, output_format: str, data_dir: str | None
) -> int:
    """Write the page of a session into a directory, now and after each of its turns.

    The page is SESSION's id with .html, readable as the umask has it. Secrets are masked in it; everything else that
    was said and done in the session is there for whoever can read the directory.
    """
    from mcode_exec import config as configuration
    from mcode_exec import paths
    from mcode_exec.executor import sharing
    from mcode_exec.executor.workspaces import find_workspace

    auto_dir = None
    if directory is None:
        config = configuration.load(
            flag_file=config_file,
            env=os.environ,
            workspace=find_workspace(None, os.environ),
            trust_flag=False,
        )
        auto_dir = config.share.auto_dir
    else:
        directory = paths.user_path(directory, os.environ, name="--dir")
    _tell(await_result(sharing.share(data_dir, os.environ, session, directory, auto_dir)), output_format)
    return 0


@click.command("unshare", short_help="Remove a session's page, and write none any more.")
@click.argument("session", type=SESSION_ID)
@_output_format
@data_dir
def unshare(session: str, output_format: str, data_dir: str | None) -> int:
    """Remove the page of a session, and write none any more, not even where all sessions have one."""
    from mcode_exec.executor import sharing

    told = await_result(sharing.unshare(data_dir, os.environ, session))
    _tell(told, output_format)
    if told.path is None and output_format == "text":
        notice(f"session {told.session_id} had no page")
    return 0


def _tell(told: Shared, output_format: str) -> None:
    if output_format == "json":
        from msgspec import to_builtins

        emit_document(None, to_builtins(told))
    elif told.path is not None:
        from mcode_exec.output.escape import escape

        emit((escape(told.path) + "\n").encode("utf-8", "replace"))
