"""`mcode sessions prune`: old sessions go; what went, or would, is the list on stdout."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from mcode_exec.cli.flag_types import DURATION, LABEL, TEXT, Count
from mcode_exec.cli.list_options import await_result, data_dir, emit, list_format, notice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcode_exec.executor.pruning import Pruned

_COLUMNS = {
    "sessionId": "SESSION", "lastTurn": "LAST TURN", "outcome": "OUTCOME", "size": "FILES", "title": "TITLE",
}  # fmt: skip


@click.command(
    "prune",
    short_help="Delete old sessions.",
    epilog="""\b
Examples:
  mcode sessions prune --older-than 90d --dry-run      what would go, and what that frees
  mcode sessions prune --older-than 90d                in a crontab
  mcode sessions prune --older-than 7d --archived --label ci=nightly --limit 1000""",
)
@click.option(
    "--older-than", type=DURATION, required=True, metavar="D", help="Without a turn for so long, such as 90d."
)
@click.option("--archived", is_flag=True, help="Only archived ones.")
@click.option("--cwd", type=TEXT, metavar="DIR", help="Only of this workspace [default: of every one].")
@click.option(
    "--label",
    "labels",
    type=LABEL,
    multiple=True,
    metavar="K=V",
    help="Only with this label (repeatable: all).",
)
@click.option("--limit", type=Count(min=1), metavar="N", help="At most so many, the oldest.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@list_format
@data_dir
def prune(
    older_than: float,
    archived: bool,
    cwd: str | None,
    labels: tuple[tuple[str, str], ...],
    limit: int | None,
    dry_run: bool,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Delete sessions without a turn for so long, of every workspace, for good.

    As old as the newest turn of a session are its sub-agents and side conversations: they go with it. A session
    in which something runs, for which items wait, or whose queue is drained, is kept, and told. Forks stay, and so
    do the totals of `mcode usage`. Killed at any instant it leaves whole sessions; the same command goes on. The exit
    code is that of the first that could not be deleted.
    """
    if cwd == "":
        raise click.UsageError("--cwd is empty.")
    from mcode_exec.executor.pruning import Asked, prune_sessions

    asked = Asked(
        older_than_s=older_than, cwd=cwd, archived=archived, labels=labels, limit=limit, dry_run=dry_run
    )
    found: list[Pruned] = []
    is_told = False
    try:
        has_more = await_result(prune_sessions(data_dir, os.environ, asked, found.append))
        is_told = True
    finally:
        # what is gone is said, whatever ends this
        if is_told or found:
            _emit(found, output_format)
            notice(_summary(found, is_dry=dry_run))
    if has_more:
        notice(f"more are that old: --limit {limit} stops here")
    for one in found:
        if one.notice is not None:
            notice(f"session {one.session_id}: {one.notice}")
        if one.outcome == "failed":
            notice(f"error: {one.message} ({one.code})")
    return next((one.exit_code for one in found if one.exit_code), 0)


def _emit(found: Sequence[Pruned], output_format: str) -> None:
    from msgspec import to_builtins

    from mcode_exec.executor.pruning import Pruned
    from mcode_exec.output.tables import field_names, render

    rows: list[dict[str, Any]] = [to_builtins(one) for one in found]
    if output_format == "table":
        from mcode_exec.output.transcript import local_time

        rows = [
            {
                **row,
                "lastTurn": local_time(one.activity_ms),
                "size": _size(one.bytes),
                "outcome": one.outcome if one.reason is None else f"{one.outcome} ({one.reason})",
            }
            for row, one in zip(rows, found, strict=True)
        ]
    emit(render(rows, output_format, name="sessions", fields=field_names(Pruned), columns=_COLUMNS))


def _summary(found: Sequence[Pruned], *, is_dry: bool) -> str:
    from mcode_exec.plurals import counted

    gone = [one for one in found if one.outcome in ("deleted", "would-delete")]
    kept = sum(one.outcome == "kept" for one in found)
    failed = sum(one.outcome == "failed" for one in found)
    sizes = f"{counted(sum(one.messages for one in gone), 'message')}, {_size(sum(one.bytes for one in gone))} of files"
    told = f"{counted(len(gone), 'session')} {'would be deleted' if is_dry else 'deleted'}"
    told += f" ({sizes} {'would be ' if is_dry else ''}freed)" if gone else ""
    if kept:
        told += f"; {kept} kept, in use"
    if failed:
        told += f"; {failed} could not be deleted"
    return told


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
