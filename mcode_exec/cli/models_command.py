"""`mcode models`: which models can be named, what they hold and what they cost."""

from __future__ import annotations

import os

import click

from mcode_exec.cli.list_options import await_result, data_dir, emit, list_format, notice

_COLUMNS = {
    "model": "MODEL",
    "context": "CONTEXT",
    "output": "OUTPUT",
    "input": "IN $/M",
    "outputPrice": "OUT $/M",
    "key": "KEY",
}


@click.command(
    "models",
    short_help="Models, their limits, prices and keys.",
    epilog="""\b
Examples:
  mcode models                                   of every provider that has a key here
  mcode models --provider anthropic              of one provider, key or not
  mcode models --refresh                         by the catalogue that is published now
  mcode models --all --output-format jsonl       every field of every model""",
)
@click.argument("provider", required=False)
@click.option("--provider", "flag", metavar="PROVIDER", help="The same as the argument.")
@click.option("--all", "all_providers", is_flag=True, help="Also of providers that have no key here.")
@click.option(
    "--refresh", is_flag=True,
    help="First fetch the published catalogue, and keep it; nothing else goes over the network.",
)  # fmt: skip
@click.option("--config", metavar="FILE", help="Configuration instead of the user's.")
@click.option("--cwd", metavar="DIR", help="Workspace [default: the current directory].")
@list_format
@data_dir
def command(
    provider: str | None,
    flag: str | None,
    all_providers: bool,
    refresh: bool,
    config: str | None,
    cwd: str | None,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Models that can be named with --model: limits, USD per million tokens, and whether the key is set.

    A price is that of a prompt of ordinary length; where longer ones cost more, json, jsonl and csv say how much
    (tiers).  A model that is not listed can be named all the same: it is tried with 128,000 tokens of context and
    8,192 of output, and no price.  Files of your own with limits and prices: [catalogue] file in the configuration.
    """
    from msgspec import to_builtins

    from mcode_exec.executor.listing import ModelRow, list_models
    from mcode_exec.output.tables import field_names, render

    if provider is not None and flag is not None and provider != flag:
        raise click.UsageError(f"PROVIDER ({provider!r}) and --provider ({flag!r}) name two providers.")
    listing = await_result(
        list_models(
            os.environ,
            cwd=cwd,
            config_file=config,
            data_dir=data_dir,
            provider=flag if provider is None else provider,
            all_providers=all_providers,
            refreshes=refresh,
        )
    )
    rows = [to_builtins(row) for row in listing.rows]
    emit(render(rows, output_format, name="models", fields=field_names(ModelRow), columns=_COLUMNS))
    is_table = output_format == "table"
    if not rows and is_table:
        named = flag if provider is None else provider
        why = "no provider has a key here (--all shows the rest)"
        if named is not None:
            why = f"nothing is known of those of {named}; name one all the same: --model {named}/MODEL"
        notice(f"no models: {why}")
    if listing.refreshed is not None:
        notice(listing.refreshed)
    if listing.state.trouble is not None:
        notice(f"fetched data are not used: {listing.state.trouble}")
    if is_table and listing.tells_of_data:
        notice(listing.state.sentence)
    return 0
