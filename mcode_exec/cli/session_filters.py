"""The flags that say which sessions: the same for lists, searches and trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mcode_exec.cli.flag_types import LABEL, TEXT, Count

if TYPE_CHECKING:
    from mcode_exec.executor.session_lists import SessionFlags

_Command = TypeVar("_Command", bound=Callable[..., Any])

_KINDS = ("conversation", "task", "peek", "channel", "cron", "unknown")
_STATUSES = ("idle", "started", "error", "aborted", "interrupted", "deleting")


def session_filters(command: _Command) -> _Command:
    """Adds the filters; `flags_of` makes one record of their values."""
    options = (
        click.option(
            "--all", "all_workspaces", is_flag=True,
            help="Of every workspace; archived, hidden and scheduled ones too.",
        ),
        click.option("--cwd", metavar="DIR", type=TEXT, help="Workspace [default: the current directory]."),
        click.option(
            "--kind", "kinds", type=click.Choice(_KINDS), multiple=True, metavar="KIND",
            help=f"Repeatable: {', '.join(_KINDS)} (task: sub-agents, peek: side conversations).",
        ),
        click.option(
            "--status", "statuses", type=click.Choice(_STATUSES), multiple=True, metavar="STATUS",
            help=f"Repeatable: {', '.join(_STATUSES)}.",
        ),
        click.option("--archived", is_flag=True, help="Only archived ones."),
        click.option("--hidden", is_flag=True, help="Only hidden ones."),
        click.option(
            "--since", metavar="WHEN", help="Not older: 7d, 2026-01-31 or 2026-01-31T12:00 (UTC)."
        ),
        click.option(
            "--label", "labels", type=LABEL, multiple=True, metavar="K=V",
            help="Repeatable: sessions that have them all.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def page_limit(what: str) -> Callable[[_Command], _Command]:
    """Adds `--limit`."""
    return click.option("--limit", type=Count(1, 200), default=50, show_default=True, help=what)


def flags_of(filters: dict[str, Any], *, text: str | None = None) -> SessionFlags:
    """The values of `session_filters`.  Raises: UsageError for flags that exclude each other."""
    from mcode_exec.executor.session_lists import SessionFlags

    if filters["cwd"] is not None and filters["all_workspaces"]:
        raise click.UsageError("--all and --cwd cannot be combined.")
    return SessionFlags(**filters, text=text)
