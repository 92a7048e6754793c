"""`mcode steer`: words for the turn that runs in a session; where none runs, a turn as `exec` runs it."""

from __future__ import annotations

from typing import Any

import click

from mcode_exec.cli.exec_command import run_turn
from mcode_exec.cli.exec_flags import options_without, values_of_absent
from mcode_exec.cli.flag_types import KEY, PRODUCER, SESSION_ID
from mcode_exec.cli.grouped_command import GroupedCommand, GroupedOption

#: what the session, or the words under their key, decide
_DECIDED = (
    "session", "continue_latest", "resume", "session_key", "fork", "worktree", "worktree_branch", "ephemeral",
    "request_id", "when_busy", "wait_timeout", "cwd", "dry_run",
)  # fmt: skip
_GROUP = "Steer"

_EPILOG = """\b
Examples:
  mcode steer mvs_1a2b3c4d "use the other endpoint"
  git diff | mcode steer mvs_1a2b3c4d "this is what I have changed" --input -
  mcode steer mvs_1a2b3c4d "the deployment is done" --machine --producer ci --idempotency-key "$JOB"

\b
A running turn takes the words between two steps. It keeps its model, its permissions and its limits; --model and the
like are for the turn that begins where none runs. What a person says too late for a turn's last step waits in the
session's queue (`mcode queue list`); what a machine says keeps the turn going until it has answered that too.

\b
Exit codes: 0 accepted by the running turn (status `steered`), else those of `mcode exec`."""


@click.command(
    "steer",
    cls=GroupedCommand,
    params=[
        GroupedOption(
            ["--idempotency-key"], group=_GROUP, type=KEY, metavar="KEY",
            help="The same words again under this KEY change nothing.",
        ),
        GroupedOption(
            ["--producer"], group=_GROUP, type=PRODUCER, default="mcode", show_default=True, metavar="NAME",
            help="Who says it; keys of two producers are two.",
        ),
        GroupedOption(
            ["--machine", "is_machine"], group=_GROUP, is_flag=True,
            help="No person's words: the turn does not end before it has taken them, and they are never queued.",
        ),
        *options_without(*_DECIDED),
    ],
    epilog=_EPILOG,
    short_help="Say something to a running turn.",
)  # fmt: skip
@click.argument("session", type=SESSION_ID)
@click.argument("text", required=False)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    session: str,
    text: str | None,
    idempotency_key: str | None,
    producer: str,
    is_machine: bool,
    **flags: Any,
) -> int:
    """Say TEXT to the turn that runs in SESSION, from wherever you are.

    It is accepted when this command ends with 0: one durable row, that survives both processes. Where no turn runs,
    TEXT begins one in the session's workspace, and this command waits for its answer as `mcode exec` does.
    """
    from mcode_exec.records.invocation import DEFAULT_PRODUCER, SteerFlags

    request_id = idempotency_key
    if idempotency_key is not None and producer != DEFAULT_PRODUCER:
        request_id = f"{producer}:{idempotency_key}"
    decided = {
        "prompt": text,
        "session": session,
        "cwd": "@recorded",
        "request_id": request_id,
        "when_busy": "steer",
    }
    steering = SteerFlags(producer=producer, idempotency_key=idempotency_key, is_machine=is_machine)
    return run_turn(ctx, {**values_of_absent(), **flags, **decided}, source="steer", steering=steering)
