"""`mcode retry`: the last turn of a session once more, or on from where it stopped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from mcode_exec.cli.exec_command import run_turn, to_invocation
from mcode_exec.cli.exec_flags import options_without, values_of_absent
from mcode_exec.cli.flag_types import SESSION_ID
from mcode_exec.cli.grouped_command import GroupedCommand, GroupedOption
from mcode_exec.cli.list_options import await_result, emit, emit_document, notice

if TYPE_CHECKING:
    from mcode_exec.records.invocation import Invocation

#: what the turn that is retried has decided
_DECIDED = (
    "input_source", "input_format", "files", "session", "continue_latest", "resume", "session_key", "fork",
    "worktree", "worktree_branch", "ephemeral",
    "request_id", "when_busy", "wait_timeout", "paused_queue", "dry_run",
)  # fmt: skip

_EPILOG = """\b
Examples:
  mcode retry mvs_1a2b3c4d
  mcode retry mvs_1a2b3c4d --inspect                what it would do; nothing is run or changed
  mcode retry mvs_1a2b3c4d --model acme/big-2 --timeout 30m

\b
A turn that the model has not answered by anything is said again: the same words and attachments, which stand in the
conversation once. One that has done something goes on from there: what it completed stays and is not done again.

\b
Exit codes: those of `mcode exec`; 4 also where the last turn was answered (`nothing_to_retry`), 75 while it runs."""


@click.command(
    "retry",
    cls=GroupedCommand,
    params=[
        GroupedOption(
            ["--inspect"],
            group="Retry",
            is_flag=True,
            help="Say what it would do, with the exit code of a refusal; nothing is run or changed.",
        ),
        *options_without(*_DECIDED),
    ],
    epilog=_EPILOG,
    short_help="Bring a session's last turn to its end.",
)
@click.argument("session", type=SESSION_ID)
@click.pass_context
def command(ctx: click.Context, /, session: str, inspect: bool, **flags: Any) -> int:
    """Run the last turn of SESSION again, if it was not answered: after a failure, a signal, a limit, a kill.

    It runs in the session's workspace (--cwd DIR moves the session) and passes what waits in its queue.
    SESSION is an id or a unique prefix of one.
    """
    cwd = "@recorded" if flags["cwd"] is None else flags["cwd"]
    filled = {**values_of_absent(), **flags, "prompt": None, "session": session, "cwd": cwd}
    fixed: dict[str, Any] = {"retries": True, "source": "retry", "priority": "retry-continuation"}
    if not inspect:
        return run_turn(ctx, filled, **fixed)
    started_s, _, signals = ctx.obj
    signals.release()
    return _show(to_invocation(ctx, filled, started_s, **fixed))


def _show(invocation: Invocation) -> int:
    from mcode_exec.executor.retry_inspection import inspect_retry
    from mcode_exec.redaction import Redactor, secret_values

    redact = Redactor(secret_values(os.environ)).text
    described, refusal = await_result(inspect_retry(invocation, os.environ))
    if invocation.output_format == "text":
        from mcode_exec.output.outline import outline

        emit(redact(outline(described)).encode("utf-8", "replace"))
    else:
        emit_document("retry.inspect", described, redact)
    if refusal is None:
        return 0
    notice(redact(f"error: {refusal.message} ({refusal.code})"))
    return refusal.exit_code
