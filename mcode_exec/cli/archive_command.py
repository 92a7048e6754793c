"""`mcode sessions archive|unarchive`: each session for itself, and an account of each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mcode_exec.cli.flag_types import SESSION_ID
from mcode_exec.cli.list_options import await_result, data_dir, emit_document, notice

if TYPE_CHECKING:
    from mcode_exec.executor.keeping import Archiving


@click.command(
    "archive",
    short_help="Put sessions away, out of lists.",
    epilog="""\b
Examples:
  mcode sessions archive mvs_1a2b3c4d mvs_5e6f7a8b
  mcode sessions list --all                       shows archived ones too
  mcode sessions prune --archived --older-than 30d""",
)
@click.argument("sessions", type=SESSION_ID, nargs=-1, required=True)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@data_dir
def archive(sessions: tuple[str, ...], output_format: str, data_dir: str | None) -> int:
    """Put SESSIONS away: out of lists and of `--continue`, with all that they have.

    The next turn (`exec --session`, `--session-key`) takes a session out again; showing it does not. While
    something runs in a session, or waits in its queue, it stays (exit 75). Each is tried; the exit code is that
    of the first that stays.
    """
    return _run(sessions, output_format, data_dir, archives=True)


@click.command(
    "unarchive",
    short_help="Take archived sessions out again.",
    epilog="""\b
Examples:
  mcode sessions unarchive mvs_1a2b3c4d""",
)
@click.argument("sessions", type=SESSION_ID, nargs=-1, required=True)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@data_dir
def unarchive(sessions: tuple[str, ...], output_format: str, data_dir: str | None) -> int:
    """Take archived SESSIONS out again, into lists and `--continue`, at the place where they were."""
    return _run(sessions, output_format, data_dir, archives=False)


def _run(sessions: tuple[str, ...], output_format: str, data_dir: str | None, *, archives: bool) -> int:
    from mcode_exec.executor.keeping import archive_sessions

    done: list[Archiving] = []

    def told(one: Archiving) -> None:
        done.append(one)
        if output_format != "json" or one.exit_code:
            notice(_sentence(one, archives=archives))

    code = await_result(archive_sessions(data_dir, os.environ, sessions, told, archives=archives))
    if output_format == "json":
        from msgspec import to_builtins

        emit_document(
            "sessions.archive" if archives else "sessions.unarchive", {"sessions": to_builtins(done)}
        )
    return code


def _sentence(one: Archiving, *, archives: bool) -> str:
    if one.exit_code:
        named = "" if one.message and one.session_id in one.message else f"session {one.session_id}: "
        return f"error: {named}{one.message} ({one.code})"
    was = "was archived already" if archives else "was not archived"
    now = "is archived" if archives else "is not archived any more"
    return f"session {one.session_id} {was if one.outcome == 'unchanged' else now}"
