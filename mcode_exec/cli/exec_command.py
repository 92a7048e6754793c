"""`mcode exec`: its flags, what cannot be combined, and the Invocation they become.

Owns the command line of a run and nothing that happens after it.  What can be
told wrong from the arguments alone is refused here (exit 2); what needs the
store, the configuration or a file is the executor's.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from mcode_exec.cli.exec_flags import FORMATS, OPTIONS
from mcode_exec.cli.grouped_command import GroupedCommand, in_order
from mcode_exec.errors import InvocationError

if TYPE_CHECKING:
    from mcode_exec.records.invocation import Invocation

_EPILOG = """\b
Examples:
  mcode exec "fix the failing test"
  git diff | mcode exec "review this" --input -
  mcode exec --session-key nightly --input prompts/nightly.md --timeout 30m
  mcode exec --output-format json "list the TODOs" | jq -r .output
  mcode exec --fork latest "the other way: keep the old interface"
  mcode exec --worktree --output-format json "try the upgrade" | jq -r .worktree.path
  mcode exec --allow 'bash:make *' --deny 'edit:*.lock' "make the build pass"
  mcode exec --check 'make test' --check-attempts 5 "make the tests pass"

\b
A prompt longer than about 100 KiB does not fit on a command line: use --input.
Stdin is read only with --input -.

\b
Exit codes: 0 done, 2 bad invocation, 3 configuration, 4 failed, 5 a decision was asked for,
6 timeout, 7 limit, 69 provider unavailable, 70 bug, 74 storage or output, 75 busy,
77 authentication or credit, 128+n ended by signal n, 141 stdout closed."""


@click.command(
    "exec",
    cls=GroupedCommand,
    params=list(OPTIONS),
    epilog=_EPILOG,
    short_help="Run one turn of the agent and print the answer.",
)
@click.argument("prompt", required=False)
@click.pass_context
def command(ctx: click.Context, /, **flags: Any) -> int:
    """Run one turn of the agent on PROMPT in the current directory, and print its answer.

    PROMPT - is the same as --input -. The answer goes to stdout and nothing else does.
    """
    return run_turn(ctx, flags)


def run_turn(ctx: click.Context, flags: dict[str, Any], **fixed: Any) -> int:
    """Run one turn as the flags say; `fixed`: fields of the invocation that the command decides."""
    started_s, closed, signals = ctx.obj
    invocation = to_invocation(ctx, flags, started_s, **fixed)
    if invocation.dry_run:
        from mcode_exec.cli.dry_run import show

        signals.release()
        return show(invocation)
    from mcode_exec.cli.exec_run import run

    return run(invocation, signals=signals, is_stdout_closed=1 in closed)


def to_invocation(ctx: click.Context, flags: dict[str, Any], started_s: float, **fixed: Any) -> Invocation:
    """The flags as a record.  Raises: InvocationError for what cannot be meant."""
    prompt, input_source = _prompt_sources(flags, is_needed=not fixed.get("retries"))
    _check_combinations(flags, has_input=input_source is not None)
    # only a command line that can be meant pays for records
    from mcode_exec.ids import new_run_id
    from mcode_exec.records.invocation import CHECK_ATTEMPTS, Check, FlagRule, Invocation

    rules = in_order(ctx, allow=flags.pop("allow"), deny=flags.pop("deny"))
    max_cost: Decimal | None = flags.pop("max_cost")
    attempts = flags.pop("check_attempts")
    if flags["check"] is not None:
        flags["check"] = Check(
            command=flags["check"], attempts=CHECK_ATTEMPTS if attempts is None else attempts
        )
    flags["session"] = flags["session"] or flags.pop("resume")
    flags.pop("resume", None)
    if flags["fork"] is not None:
        flags["fork"], flags["fork_at"] = flags["fork"]
    flags["worktree"] = flags["worktree"] or flags["worktree_branch"] is not None
    flags["input_format"] = flags["input_format"] or "text"
    flags["output_format"] = FORMATS[flags["output_format"]]
    return Invocation(
        run_id=new_run_id(),
        prompt=prompt,
        input_source=input_source,
        rules=tuple(
            FlagRule(verdict="allow" if name == "allow" else "deny", text=text) for name, text in rules
        ),
        timeout_s=flags.pop("timeout"),
        wait_timeout_s=flags.pop("wait_timeout"),
        max_cost_usd=max_cost,
        started_monotonic_s=started_s,
        **flags,
        **fixed,
    )


def _prompt_sources(flags: dict[str, Any], *, is_needed: bool) -> tuple[str | None, str | None]:
    """PROMPT and --input, with `-` where it belongs."""
    prompt: str | None = flags.pop("prompt")
    input_source: str | None = flags.pop("input_source")
    if prompt == "-":
        if input_source not in (None, "-"):
            raise InvocationError("PROMPT - and --input FILE cannot be combined.")
        return None, "-"
    if prompt is not None:
        from mcode_exec.cli.flag_types import text_of_argument

        prompt = text_of_argument(prompt, "PROMPT")
    if input_source == "":
        raise InvocationError("--input is empty.")
    if is_needed and input_source is None and not (prompt or "").strip() and not flags["files"]:
        raise InvocationError(
            "nothing to run: give a PROMPT, --input FILE, or --input - to read it from stdin."
        )
    return prompt, input_source


#: each picks a session; any two of them contradict each other
_SELECTORS = {
    "session": "--session",
    "continue_latest": "--continue",
    "resume": "--resume",
    "session_key": "--session-key",
    "fork": "--fork",
}
_FILES = ("events_file", "result_file", "output_file", "session_id_file")

#: what somebody else's process cannot do for this one
_NOT_QUEUED = {
    "timeout": "--timeout",
    "output_file": "-o",
    "ephemeral": "--ephemeral",
    "system_prompt_file": "--system-prompt-file",
    "env": "--env",
    "record": "--record",
    "check": "--check",
}

#: further flags that name something, and cannot name nothing (an unset variable in a script)
_NAMES = {
    "cwd": "--cwd",
    "model": "--model",
    "effort": "--effort",
    "agent": "--agent",
    "system_prompt_file": "--system-prompt-file",
    "config_file": "--config",
    "data_dir": "--data-dir",
    "diagnostics_dir": "--diagnostics-dir",
    "record": "--record",
}


def _worktree_flag(flags: dict[str, Any]) -> str | None:
    if flags["worktree_branch"] is not None:
        return "--worktree-branch"
    return "--worktree" if flags["worktree"] else None


def _check_combinations(flags: dict[str, Any], *, has_input: bool) -> None:
    given = [flag for name, flag in _SELECTORS.items() if flags[name]]
    worktree = _worktree_flag(flags)
    if flags["ephemeral"]:
        # a fork is copied into the private store; nothing else of the data directory is there
        given = [flag for flag in given if flag != "--fork"] + ["--ephemeral"]
        if flags["request_id"]:
            given.append("--request-id")
        if worktree:
            given.append(worktree)
    elif worktree and (flags["session"] or flags["continue_latest"] or flags["resume"]):
        given.append(worktree)
    if len(given) > 1:
        raise InvocationError(f"{' and '.join(given)} cannot be combined.")
    if flags["when_busy"] == "queue":
        for name, flag in _NOT_QUEUED.items():
            if flags[name]:
                raise InvocationError(f"--when-busy queue and {flag} cannot be combined.")
    if flags["quiet"] and flags["verbose"]:
        raise InvocationError("-q and -v cannot be combined.")
    if flags["check"] is not None and not flags["check"].strip():
        raise InvocationError("--check is empty.")
    if flags["check_attempts"] is not None and flags["check"] is None:
        raise InvocationError("--check-attempts needs --check.")
    if flags["input_format"] is not None and not has_input:
        raise InvocationError("--input-format needs --input.")
    for name, flag in {**_SELECTORS, **_NAMES}.items():
        if flags[name] == "":
            raise InvocationError(f"{flag} is empty.")
    if any(flags[name] is not None for name in (*_FILES, "record")):
        from mcode_exec.cli.output_targets import check_targets

        check_targets(flags, FORMATS[flags["output_format"]])
