"""`mcode models`: which models can be named, what they hold and what they cost."""

from __future__ import annotations

import os

import click

from mcode_exec.cli.list_options import await_result, emit, list_format, notice

_COLUMNS = {
    "model": "MODEL",
    "context": "CONTEXT",
    "output": "OUTPUT",
    "input": "IN $/M",
    "outputPrice": "OUT $/M",
    "key": "KEY",
}


@click.command("models", short_help="Models, their limits, prices and keys.")
@click.argument("provider", required=False)
@click.option("--all", "all_providers", is_flag=True, help="Also of providers that have no key here.")
@click.option("--config", metavar="FILE", help="Configuration instead of the user's.")
@click.option("--cwd", metavar="DIR", help="Workspace [default: the current directory].")
@list_format
def command(
    provider: str | None, all_providers: bool, config: str | None, cwd: str | None, output_format: str
) -> int:
    """Models that can be named with --model: limits, USD per million tokens, and whether the key is set."""
    from msgspec import to_builtins

    from mcode_exec.executor.listing import list_models
    from mcode_exec.output.tables import render

    models = await_result(
        list_models(os.environ, cwd=cwd, config_file=config, provider=provider, all_providers=all_providers)
    )
    rows = [to_builtins(model) for model in models]
    emit(render(rows, output_format, name="models", columns=_COLUMNS))
    if not rows and output_format == "table":
        notice("no models: no provider has a key here (--all shows the rest)")
    return 0
