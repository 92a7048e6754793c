"""`mcode sessions fork`: a new session that begins with the history of another; no turn is run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mcode_exec.cli.flag_types import KEY, LABEL, SESSION_ID, TEXT
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, notice
from mcode_exec.errors import InvocationError

if TYPE_CHECKING:
    from mcode_exec.executor.fork_session import Forked


@click.command(
    "fork",
    short_help="Begin a new session with the history of another.",
    epilog="""\b
Examples:
  mcode sessions fork mvs_1a2b3c4d
  mcode sessions fork mvs_1a2b3c4d --at msg-0c1d2e3f --title "the other way"
  id=$(mcode sessions fork mvs_1a2b3c4d --worktree) && mcode exec --session "$id" "try it with sqlite"
  mcode exec --fork mvs_1a2b3c4d "try it with sqlite"       forks and runs a turn at once""",
)
@click.argument("session", type=SESSION_ID)
@click.option("--at", type=KEY, metavar="MSG", help="Up to and including this message [default: all of it].")
@click.option("--title", type=TEXT, help="What it is called [default: its source's title and (fork #N)].")
@click.option("--label", "labels", type=LABEL, multiple=True, help="Label of the fork (repeatable).")
@click.option(
    "--cwd", metavar="DIR", help="Its workspace [default: the current directory]; @recorded: its source's."
)
@click.option("--worktree", is_flag=True, help="Let it work in a new git worktree, made from HEAD.")
@click.option("--worktree-branch", type=KEY, metavar="NAME", help="Likewise, on a new branch of that name.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@data_dir
def fork(
    session: str,
    at: str | None,
    title: str | None,
    labels: tuple[tuple[str, str], ...],
    cwd: str | None,
    worktree: bool,
    worktree_branch: str | None,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Make a new session that begins with the history of SESSION, and print its id.

    The fork has the messages of SESSION up to and including MSG, which is one of a person or of the model; the
    results of its calls belong to it. A prompt that nobody has answered yet is left out, and so is what a running
    turn has not finished: SESSION is neither waited for nor changed. Model, effort, agent, permissions and labels
    come along; queue, session key and usage do not.

    SESSION is an id or a unique prefix of one.
    """
    from mcode_exec.executor.fork_session import fork_session
    from mcode_exec.records.invocation import Invocation

    for flag, value in (("--cwd", cwd), ("--data-dir", data_dir)):
        if value == "":
            raise InvocationError(f"{flag} is empty.")
    invocation = Invocation(
        run_id="",
        fork=session,
        fork_at=at,
        title=title,
        labels=labels,
        cwd=cwd,
        worktree=worktree or worktree_branch is not None,
        worktree_branch=worktree_branch,
        data_dir=data_dir,
    )
    forked = await_result(fork_session(invocation, os.environ))
    for _, message in forked.notices:
        notice(message)
    if output_format == "json":
        emit_document("sessions.fork", _fields(forked))
    else:
        if forked.worktree is not None:
            notice(f"it works in {forked.worktree.path}, on the branch {forked.worktree.branch}")
        emit(f"{forked.session.id}\n".encode())
    return 0


def _fields(forked: Forked) -> dict[str, object]:
    from msgspec import to_builtins

    session = forked.session
    return {
        "sessionId": session.id,
        "forkedFrom": session.forked_from,
        "forkedAt": session.forked_at,
        "title": session.title,
        "workspace": session.workspace,
        "worktree": to_builtins(forked.worktree),
    }
