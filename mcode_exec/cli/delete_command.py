"""`mcode sessions delete`: each session for itself, and an account of each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mcode_exec.cli.flag_types import SESSION_ID
from mcode_exec.cli.list_options import await_result, data_dir, emit_document, notice

if TYPE_CHECKING:
    from mcode_exec.executor.deletion import Deletion


@click.command("delete", short_help="Delete sessions for good.")
@click.argument("sessions", type=SESSION_ID, nargs=-1, required=True)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@data_dir
def delete(sessions: tuple[str, ...], output_format: str, data_dir: str | None) -> int:
    """Delete SESSIONS with their sub-agents and side conversations: messages, files, queues.

    A turn that runs is stopped first (exit 75 if it does not end within 5 s; its session is kept then). Forks
    stay, and so do the totals of `mcode usage`. There is no way back: `mcode sessions export` keeps a copy.
    Each is tried; the exit code is that of the first that is not deleted.
    """
    from mcode_exec.executor.deletion import delete_sessions

    deletions: list[Deletion] = []
    code: int | None = None

    def told(one: Deletion) -> None:
        deletions.append(one)
        if output_format != "json" or one.outcome != "deleted":
            notice(_sentence(one))

    try:
        code = await_result(delete_sessions(data_dir, os.environ, sessions, told))
    finally:
        # what is gone is said, whatever ends this
        if output_format == "json" and (deletions or code is not None):
            _emit(deletions)
    return code


def _sentence(one: Deletion) -> str:
    if one.outcome != "deleted":
        named = "" if one.message and one.session_id in one.message else f"session {one.session_id}: "
        return f"error: {named}{one.message} ({one.code})"
    return f"session {one.session_id} is deleted" + (f"; {one.notice}" if one.notice else "")


def _emit(deletions: list[Deletion]) -> None:
    from msgspec import to_builtins

    gone = [one.session_id for one in deletions if one.outcome == "deleted"]
    emit_document("sessions.delete", {"deleted": gone, "sessions": to_builtins(deletions)})
