"""`mcode sessions watch`: what is committed in other processes, as text or as event lines."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from mcode_exec.cli.flag_types import SESSION_ID, TEXT
from mcode_exec.cli.list_options import await_result, check_reader, data_dir, emit, emit_document, notice

if TYPE_CHECKING:
    from mcode_exec.executor.watching_changes import Change
    from mcode_exec.records.event import AnyEvent
    from mcode_exec.records.message import DisplayMessage


@click.command(
    "watch",
    short_help="Follow a turn that runs elsewhere.",
    epilog="""\b
Examples:
  mcode sessions watch mvs_1a2b3c4d                        until its turn has ended
  mcode sessions watch mvs_1a2b3c4d --follow --output-format jsonl
  mcode sessions watch mvs_1a2b3c4d --after w1.7e.21.0     goes on behind a line
  mcode sessions watch --all --output-format jsonl         what sessions come, change and go""",
)
@click.argument("session", type=SESSION_ID, required=False)
@click.option(
    "--after",
    type=TEXT,
    metavar="CURSOR|MSG",
    help="Begin behind this line (its `cursor`) or message, not with the running turn.",
)
@click.option("--follow", is_flag=True, help="Go on when the turn has ended.")
@click.option(
    "--all", "every", is_flag=True, help="Changes of every session instead: made, changed, deleted."
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "jsonl", "stream-json"]),
    default="text",
    help="text for people, or one event a line as `exec` writes them.",
)
@data_dir
def watch(
    session: str | None,
    after: str | None,
    follow: bool,
    every: bool,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Show what is committed in SESSION, as it is committed, until its turn has ended.

    Nothing of a model's answer is shown before it is complete; `mcode exec` itself streams its own.
    """
    if (session is None) != every:
        raise click.UsageError("give a SESSION or --all.")
    if every and (after is not None or follow):
        raise click.UsageError("--all takes neither --after nor --follow.")
    if after == "":
        raise click.UsageError("--after is empty.")
    is_text = output_format == "text"
    if every:
        from mcode_exec.executor.watching_changes import watch_all

        tell = _tell_change_text if is_text else _tell_change
        await_result(watch_all(data_dir, os.environ, tell, check_reader))
        return 0
    from mcode_exec.executor.watching import watch_session

    assert session is not None
    told = _Text() if is_text else _Lines()
    has_run = await_result(
        watch_session(
            data_dir, os.environ, session, after=after, follows=follow, told=told, rest=check_reader
        )
    )
    if not has_run and not told.count:
        notice("nothing runs there; --follow waits, --after CURSOR or MSG shows what was")
    return 0


class _Lines:
    """Events as `exec` writes them, numbered from 1."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, session_id: str, turn_id: str, told: AnyEvent | DisplayMessage, cursor: str) -> None:
        from msgspec import structs

        from mcode_exec.output.encoding import to_json_line
        from mcode_exec.records.message import DisplayMessage

        if isinstance(told, DisplayMessage):
            return  # a prompt is no item of an answer
        self.count += 1
        stamped = structs.replace(
            told,
            sequence=self.count,
            timestamp_ms=time.time_ns() // 1_000_000,
            session_id=session_id,
            turn_id=turn_id,
            cursor=cursor,
        )
        emit(to_json_line(stamped))


class _Text:
    """What people read."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, session_id: str, turn_id: str, told: AnyEvent | DisplayMessage, cursor: str) -> None:
        from mcode_exec.output.transcript import of_watched

        text = of_watched(told)
        if text:
            self.count += 1
            emit(text.encode("utf-8", "replace"))


def _tell_change(change: Change | None) -> None:
    emit_document(None, _row(change))


def _row(change: Change | None) -> dict[str, Any]:
    if change is None:
        return {"type": "resync", "message": "changes came faster than they were read; some are left out"}
    session = change.session
    row: dict[str, Any] = {
        "type": f"session.{change.kind}",
        "sessionId": change.session_id,
        "timestampMs": change.at_ms,
    }
    if session is not None:
        row |= {
            "status": session.shown_status,
            "title": session.title,
            "workspace": session.workspace,
            "errorCode": session.error_code,
            "errorMessage": session.error_message,
        }
    return row


def _tell_change_text(change: Change | None) -> None:
    from mcode_exec.output.escape import escape
    from mcode_exec.output.transcript import local_time

    if change is None:
        notice("changes came faster than they were read; some are left out")
        return
    session = change.session
    what = "" if session is None else f" · {session.shown_status} · {session.title}"
    line = f"{local_time(change.at_ms)} {change.session_id} {change.kind}{what}"
    emit((escape(line) + "\n").encode("utf-8", "replace"))
