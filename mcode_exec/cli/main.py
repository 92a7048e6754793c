"""`mcode`: the entry, the group of commands, the way out.

Invariant: nothing heavier than click is imported before a command runs, and
every way out passes `_leave`: what was printed is flushed, threads that hang
in a read do not hold the process, and the interpreter's own exit noise stays
unsaid.  Each command is a module of its own, imported when it is named.
"""

from __future__ import annotations

import gc

# A tenth of the start-up is the collector looking at modules that stay anyway; `collect_again` turns it on.
gc.disable()

import importlib  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from typing import NoReturn  # noqa: E402

import click  # noqa: E402

from mcode_exec.cli import descriptors  # noqa: E402
from mcode_exec.cli.argv_scan import scan  # noqa: E402
from mcode_exec.cli.signals import SignalDoor, default_interrupt  # noqa: E402
from mcode_exec.version import VERSION  # noqa: E402

#: command -> module of this room that defines `command`
_COMMANDS = {
    "exec": "exec_command",
    "sessions": "sessions_command",
    "models": "models_command",
    "doctor": "doctor_command",
    "schema": "schema_command",
    "completion": "completion_command",
}


class LazyGroup(click.Group):
    """Imports a command's module when the command is named, or when help lists it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = importlib.import_module(f"mcode_exec.cli.{module}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = f" To run a prompt: mcode exec {args[0][:40]!r}."
            raise click.UsageError(error.format_message() + hint, ctx) from error


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"mcode {VERSION}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  mcode exec "fix the failing test"            run one turn here and print the answer
  git diff | mcode exec "review this" --input -
  mcode exec --continue "now update the docs"  go on where you were
  mcode doctor                                 what would stop a run, and why""",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Show the version and exit.",
)  # fmt: skip
def group() -> None:
    """A headless coding agent: one command, one turn, one truthful result."""


def main() -> NoReturn:
    """Run `mcode` with the process's arguments and end the process."""
    started_s = time.monotonic()
    if sys.getfilesystemencoding() != "utf-8":
        from mcode_exec.cli import utf8_mode

        utf8_mode.start_again()
    argv = sys.argv[1:]
    closed = descriptors.ensure_open()
    descriptors.wait_for_readers()
    signals = SignalDoor()
    if argv[:1] == ["exec"]:
        signals.begin()
    else:
        default_interrupt()
    try:
        code = _run(argv, (started_s, closed, signals))
    except BaseException as error:  # the last door: whatever it is, it gets its sentence and its code
        from mcode_exec.cli.errors_door import answer

        code = answer(error, scan(argv))
    _leave(code)


def _run(argv: list[str], start: tuple[float, frozenset[int], SignalDoor]) -> int:
    if "_MCODE_COMPLETE" in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(group, {}, "mcode", "_MCODE_COMPLETE", os.environ["_MCODE_COMPLETE"])
    with group.make_context("mcode", argv, obj=start) as ctx:
        code = group.invoke(ctx)
    return code if isinstance(code, int) else 0


def _leave(code: int) -> NoReturn:
    failed = descriptors.flush_standard()
    if failed is not None and code == 0:
        code = 141 if isinstance(failed, BrokenPipeError) else 74
    os._exit(code)
