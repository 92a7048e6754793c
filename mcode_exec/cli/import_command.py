"""`mcode sessions import`: sessions of other programs, and an account of each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from mcode_exec.cli.list_options import await_result, data_dir, emit, list_format, notice
from mcode_exec.plurals import counted

if TYPE_CHECKING:
    from mcode_exec.records.imported import ImportedSession, Place

_COLUMNS = {
    "sessionId": "SESSION",
    "origin": "FROM",
    "outcome": "OUTCOME",
    "messages": "MESSAGES",
    "losses": "LOSSES",
    "title": "TITLE",
}
_PLACE_COLUMNS = {
    "program": "PROGRAM", "kind": "KIND", "sessions": "SESSIONS", "size": "SIZE", "path": "PATH", "detail": "NOTE",
}  # fmt: skip
#: what a table need not name one by one
_QUIET = ("unchanged", "deleted-here", "empty")


@click.command(
    "import",
    short_help="Take in sessions of other programs, and exported ones.",
    epilog="""\b
Examples:
  mcode sessions import --discover          what is there, with sizes and counts
  mcode sessions import --discover --yes    and all of it is imported
  mcode sessions import ~/.local/share/opencode/opencode.db
  mcode sessions import ~/.claude/projects/-home-u-app
  mcode sessions import rollout-2026-12-01T21-41-25-….jsonl
  mcode exec --session ses_… "go on"        by the id that its program gave it
  mcode sessions import session.json        what `sessions export` wrote, under its own id
  mcode sessions import session.json --new-id    or as a copy beside it""",
)
@click.argument("paths", metavar="FILE|DIR", nargs=-1)
@click.option("--discover", is_flag=True, help="Look at the usual places; import only with --yes.")
@click.option("--yes", is_flag=True, help="Import all that --discover finds.")
@click.option("--again", is_flag=True, help="Bring back sessions that were deleted here.")
@click.option("--new-id", is_flag=True, help="Of an export of mcode: as a copy under a new id.")
@list_format
@data_dir
def import_(
    paths: tuple[str, ...],
    discover: bool,
    yes: bool,
    again: bool,
    new_id: bool,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Take in sessions of OpenCode, Claude Code, Codex and of MiniMax's daemon; the source is only read.

    What `mcode sessions export` wrote comes back with history, usage, turns and attachments; a session that is here
    already stays as it is.

    Again: only what is new since. A session that was deleted here stays deleted, one that went on here stays as
    it is. Permissions and credentials are never imported. What cannot be taken along is counted for each session.

    Exit code 4 if a session cannot be read; the others are imported all the same.
    """
    if discover == bool(paths):
        raise click.UsageError("Name files or directories, or give --discover.")
    if yes and not discover:
        raise click.UsageError("--yes goes with --discover.")
    if new_id and discover:
        raise click.UsageError("--new-id goes with an export of mcode.")
    if discover:
        from mcode_exec.executor.importing import discover as look

        found = await_result(look(os.environ))
        if not yes:
            return _show_places(found, output_format)
        paths = tuple(place.path for place in found if place.detail is None)
        if not paths:
            notice("no sessions of other programs were found")
            return 0
    from mcode_exec.executor.importing import import_sessions

    told: list[ImportedSession] = []
    try:
        await_result(
            import_sessions(data_dir, os.environ, paths, again=again, as_new=new_id, told=told.append)
        )
    finally:
        if told:  # what was done is said, whatever ends this
            _show(told, output_format)
    return 4 if any(one.outcome == "failed" for one in told) else 0


def _show(told: list[ImportedSession], output_format: str) -> None:
    from msgspec import to_builtins

    from mcode_exec.output.tables import field_names, render
    from mcode_exec.records.imported import ImportedSession as Row

    is_table = output_format == "table"
    shown = [one for one in told if not (is_table and one.outcome in _QUIET)]
    rows = [_table_row(to_builtins(one)) if is_table else to_builtins(one) for one in shown]
    emit(render(rows, output_format, name="sessions", fields=field_names(Row), columns=_COLUMNS))
    counts: dict[str, int] = {}
    for one in told:
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    notice(
        f"{counted(len(told), 'session')}: " + ", ".join(f"{count} {what}" for what, count in counts.items())
    )
    for one in told:
        if one.outcome in ("failed", "changed-here"):
            notice(f"{one.source_id} in {one.source}: {one.detail}")


def _table_row(row: dict[str, Any]) -> dict[str, Any]:
    losses = ", ".join(f"{count} {what}" for what, count in row["losses"].items())
    return {**row, "losses": losses}


def _show_places(found: list[Place], output_format: str) -> int:
    from msgspec import to_builtins

    from mcode_exec.output.tables import field_names, render
    from mcode_exec.records.imported import Place as Row

    rows = [to_builtins(place) for place in found]
    if output_format == "table":
        rows = [{**row, "size": _size(row["sizeBytes"])} for row in rows]
    emit(render(rows, output_format, name="places", fields=field_names(Row), columns=_PLACE_COLUMNS))
    if not found:
        notice("no sessions of other programs were found")
    elif output_format == "table":
        notice(
            "`mcode sessions import --discover --yes` imports all of them, `mcode sessions import PATH` one"
        )
    return 0


def _size(count: int) -> str:
    if count < 1 << 20:
        return f"{(count + 1023) >> 10} KiB"
    return f"{count / (1 << 20):.1f} MiB"
