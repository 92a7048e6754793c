"""`mcode completion`: the script with which a shell completes mcode's commands and flags."""

from __future__ import annotations

import click

from mcode_exec.cli.list_options import emit


@click.command(
    "completion",
    short_help="Shell completion for bash, zsh or fish.",
    epilog="""\b
Examples:
  mcode completion bash > ~/.local/share/bash-completion/completions/mcode
  mcode completion zsh > "${fpath[1]}/_mcode"
  mcode completion fish > ~/.config/fish/completions/mcode.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, /, shell: str) -> int:
    """Print the completion script of SHELL."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells of the choice above"
    root = ctx.find_root().command
    script = kind(root, {}, "mcode", "_MCODE_COMPLETE").source_vars()
    emit((kind.source_template % script).encode())
    return 0
