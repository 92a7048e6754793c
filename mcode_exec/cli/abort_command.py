"""`mcode abort`: stop the turn that runs in a session, from another process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mcode_exec.cli.flag_types import DURATION, SESSION_ID, TURN_ID
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, notice
from mcode_exec.durations import format_duration

if TYPE_CHECKING:
    from mcode_exec.executor.aborting import Stopped

_EXIT_CODES = {"aborted": 0, "released": 0, "not-running": 0, "turn-mismatch": 4, "abort-timeout": 75}

_EPILOG = """\b
Examples:
  mcode abort mvs_1a2b3c4d
  mcode abort mvs_1a2b3c4d --wait --wait-timeout 1m
  mcode abort mvs_1a2b3c4d --turn "$(jq -r .turnId queued.json)"    # also one that still waits

\b
Outcomes: aborted; released, it ended by itself meanwhile; not-running; turn-mismatch, another turn runs than
--turn names; abort-timeout, it has been told but has not ended yet.

\b
Exit codes: 0 no such turn runs any more; 4 turn-mismatch, or no such session; 75 abort-timeout."""


@click.command("abort", epilog=_EPILOG, short_help="Stop a running turn.")
@click.argument("session", type=SESSION_ID)
@click.option("--turn", "turn_id", type=TURN_ID, metavar="ID", help="Only this turn, running or waiting.")
@click.option(
    "--wait", "waits", is_flag=True, help="Wait until it has ended, beyond the 5 s that a turn has for that."
)
@click.option(
    "--wait-timeout", type=DURATION, default="10m", show_default=True, help="How long --wait waits at most."
)
@click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text",
    help="text (default): the outcome; json: one object.",
)  # fmt: skip
@data_dir
def command(
    session: str,
    turn_id: str | None,
    waits: bool,
    wait_timeout: float,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Stop the turn that runs in SESSION: it ends as `cancelled`, its commands with it, and its queue is held.

    What a person has said to it by `mcode steer` stays in the conversation.
    """
    from mcode_exec.executor.aborting import abort_turn

    stopped = await_result(
        abort_turn(data_dir, os.environ, session, turn_id=turn_id, wait_s=wait_timeout if waits else None)
    )
    code = _EXIT_CODES[stopped.outcome]
    if output_format == "json":
        row = {"sessionId": stopped.session_id, "turnId": stopped.turn_id, "outcome": stopped.outcome}
        emit_document(None, {**row, "exitCode": code})
    else:
        emit(f"{stopped.outcome}\n".encode())
        notice(_sentence(stopped, turn_id))
    return code


def _sentence(stopped: Stopped, asked: str | None) -> str:
    session, turn = stopped.session_id, stopped.turn_id
    if stopped.outcome == "aborted":
        return f"turn {turn} of session {session} was stopped"
    if stopped.outcome == "released":
        return f"turn {turn} of session {session} had ended by itself"
    if stopped.outcome == "turn-mismatch":
        return f"turn {asked} does not run in session {session}; {turn} does, and goes on"
    if stopped.outcome == "not-running":
        if asked is None:
            return f"no turn runs in session {session}; what is not submitted yet hears nothing of this"
        later = "" if turn is None else "; if it is submitted yet, it is stopped before it starts"
        return f"turn {asked} does not run in session {session}{later}"
    waited = format_duration(round(stopped.waited_s, 1))
    return (
        f"turn {turn} of session {session} was told to stop and has not ended within {waited}: its process may "
        "be stopped or stuck; --wait waits longer"
    )
