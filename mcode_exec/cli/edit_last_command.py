"""`mcode sessions edit-last`: the last prompt of a session is taken back, and another one run in its place."""

from __future__ import annotations

from typing import Any

import click

from mcode_exec.cli.exec_command import run_turn
from mcode_exec.cli.exec_flags import options_without, values_of_absent
from mcode_exec.cli.flag_types import SESSION_ID
from mcode_exec.cli.grouped_command import GroupedCommand

#: what going on in that session, in the place of its last prompt, decides
_DECIDED = (
    "session", "continue_latest", "resume", "session_key", "fork", "worktree", "worktree_branch", "ephemeral",
    "request_id", "when_busy", "wait_timeout", "drains", "paused_queue",
)  # fmt: skip

_EPILOG = """\b
Examples:
  mcode sessions edit-last mvs_1a2b3c4d "fix it, but leave the tests alone"
  mcode sessions edit-last mvs_1a2b3c4d --input prompt.md --output-format json

\b
Exit codes: those of `mcode exec`; 75 while a turn runs, 4 where there is no prompt to take back."""


@click.command(
    "edit-last",
    cls=GroupedCommand,
    params=options_without(*_DECIDED),
    epilog=_EPILOG,
    short_help="Run another prompt in the place of the last one.",
)
@click.argument("session", type=SESSION_ID)
@click.argument("prompt", required=False)
@click.pass_context
def edit_last(ctx: click.Context, /, session: str, **flags: Any) -> int:
    """Take the last prompt of SESSION back with all after it, and run one turn on PROMPT in its place.

    The same as `mcode sessions rewind SESSION --to last` and `mcode exec --session SESSION PROMPT`, but that nothing
    is taken back where the turn cannot begin. It runs where the session works (--cwd DIR: elsewhere). Files that
    the turns before have changed stay as they are.

    SESSION is an id or a unique prefix of one.
    """
    cwd = "@recorded" if flags["cwd"] is None else flags["cwd"]
    values = {**values_of_absent(), **flags, "cwd": cwd, "session": session}
    return run_turn(ctx, values, edits_last=True)
