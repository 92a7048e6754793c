"""`mcode sessions btw`: a question beside a session, answered with what it knows; the session does not notice."""

from __future__ import annotations

from typing import Any

import click

from mcode_exec.cli.exec_command import run_turn
from mcode_exec.cli.exec_flags import options_without, values_of_absent
from mcode_exec.cli.flag_types import SESSION_ID
from mcode_exec.cli.grouped_command import GroupedCommand

#: what being a side conversation decides
_DECIDED = (
    "session", "continue_latest", "resume", "session_key", "fork", "worktree", "worktree_branch", "ephemeral",
    "when_busy", "drains", "paused_queue",
)  # fmt: skip

_EPILOG = """\b
Examples:
  mcode sessions btw mvs_1a2b3c4d "which file holds the retry logic?"
  mcode sessions btw mvs_1a2b3c4d "how far is it?" --permission read-only --output-format json | jq -r .output

\b
A side conversation is a hidden session of its own: `mcode sessions list --all` and `mcode sessions show` find it,
and it is deleted with the session that it belongs to.

\b
Exit codes: those of `mcode exec`; 75 while the first round of SESSION is still running."""


@click.command(
    "btw",
    cls=GroupedCommand,
    params=options_without(*_DECIDED),
    epilog=_EPILOG,
    short_help="Ask something beside a session, without touching it.",
)
@click.argument("session", type=SESSION_ID)
@click.argument("prompt", required=False)
@click.pass_context
def btw(ctx: click.Context, /, session: str, **flags: Any) -> int:
    """Run one turn on PROMPT in a side conversation, which begins with the history of SESSION.

    SESSION goes on undisturbed, also while it runs: then what it has finished so far is known. The side
    conversation works in the workspace of SESSION (--cwd DIR: elsewhere), with its model, agent and at most its
    permissions; the model is told that what came before is for reference only.

    SESSION is an id or a unique prefix of one.
    """
    cwd = "@recorded" if flags["cwd"] is None else flags["cwd"]
    return run_turn(ctx, {**values_of_absent(), **flags, "cwd": cwd}, side_of=session)
