"""The group of commands: each is a module of its own, imported when it is named."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from mcode_exec.version import VERSION

#: command -> module of this room that defines `command`
_COMMANDS = {
    "exec": "exec_command",
    "retry": "retry_command",
    "steer": "steer_command",
    "abort": "abort_command",
    "queue": "queue_command",
    "jobs": "jobs_command",
    "schedule": "schedule_command",
    "sessions": "sessions_command",
    "projects": "projects_command",
    "models": "models_command",
    "usage": "usage_command",
    "doctor": "doctor_command",
    "recover": "recover_command",
    "schema": "schema_command",
    "completion": "completion_command",
}


#: what other programs have as commands
_FLAGS = ("help", "version")


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
        word = args[0]
        if word in _COMMANDS or word.startswith("-"):
            return super().resolve_command(ctx, args)
        if word in _FLAGS:
            raise click.UsageError(f"No such command {word!r}: it is mcode --{word}.", ctx)
        from mcode_exec.cli.near_names import suggestion

        meant = suggestion(word, _COMMANDS) or f" To run a prompt: mcode exec {word[:40]!r}."
        raise click.UsageError(f"No such command {word[:40]!r}.{meant}", ctx)


def context_of(argv: Sequence[str]) -> click.Context:
    """The command that `argv` names, for errors that come before click knows it."""
    ctx = click.Context(group, info_name="mcode")
    for word in argv:
        command = ctx.command
        found = command.get_command(ctx, word) if isinstance(command, click.Group) else None
        if found is not None:
            ctx = click.Context(found, info_name=word, parent=ctx)
    return ctx


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
