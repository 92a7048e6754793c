"""A command whose help shows its many flags in groups, and which keeps the order of two flags.

click keeps the values of each repeatable flag in order, but not the order of
two flags among each other; `--allow` and `--deny` need it, because the last
matching rule wins.
"""

from __future__ import annotations

from typing import Any

import click


class GroupedOption(click.Option):
    """An option that belongs to a group of the help text."""

    def __init__(self, *args: Any, group: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class GroupedCommand(click.Command):
    """Shows options under their groups; `ctx.meta` gets the order of all options as they stood."""

    ORDER = "mcode_exec.option_order"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--allow" in " ".join(args) and "--deny" in " ".join(args):
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            ctx.meta[self.ORDER] = [param.name for param in order]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                groups.setdefault(getattr(param, "group", "Other"), []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def in_order(ctx: click.Context, **values: tuple[str, ...]) -> list[tuple[str, str]]:
    """The values of several repeatable options as (option, value), in the order they stood."""
    queues = {name: list(given) for name, given in values.items()}
    order = ctx.meta.get(GroupedCommand.ORDER) or [name for name, given in values.items() for _ in given]
    return [(name, queues[name].pop(0)) for name in order if queues.get(name)]
