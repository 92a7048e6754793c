"""`mcode projects`: what sessions are grouped by, and workspaces that were moved."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from mcode_exec.cli.flag_types import Count
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, list_format, notice
from mcode_exec.plurals import counted

if TYPE_CHECKING:
    from mcode_exec.executor.projects import Relocated

_COLUMNS = {
    "id": "PROJECT", "kind": "KIND", "sessions": "SESSIONS", "lastTurn": "LAST TURN", "workspace": "WORKSPACE",
}  # fmt: skip
_PLACE_COLUMNS = {
    "workspace": "WORKSPACE",
    "exists": "IS THERE",
    "sessions": "SESSIONS",
    "lastTurn": "LAST TURN",
}


@click.group("projects", short_help="List projects, and follow workspaces that were moved.")
def command() -> None:
    """List projects, and follow workspaces that were moved.

    A project is what `--session-key` and `--request-id` are unique in: a git repository wherever it is checked out
    (by its root commit; a shallow clone by its origin), else a directory.
    """


@command.command(
    "list",
    short_help="Projects with sessions.",
    epilog="""\b
Examples:
  mcode projects list
  mcode projects list --output-format jsonl | jq -r .workspace""",
)
@click.option("--all", "everything", is_flag=True, help="Also those without a session.")
@click.option("--limit", type=Count(1, 200), default=50, show_default=True)
@click.option("--after", metavar="CURSOR", help="Continue an earlier list.")
@list_format
@data_dir
def list_(everything: bool, limit: int, after: str | None, output_format: str, data_dir: str | None) -> int:
    """Projects with sessions, by kind and identity; the workspace shown is that of the newest turn."""
    from msgspec import to_builtins

    from mcode_exec.executor.projects import ProjectRow, list_projects
    from mcode_exec.output.tables import field_names, render

    page = await_result(
        list_projects(data_dir, os.environ, everything=everything, limit=limit, after_cursor=after)
    )
    rows = [_with_time(to_builtins(row), output_format) for row in page.rows]
    fields = field_names(ProjectRow)
    emit(render(rows, output_format, name="projects", fields=fields, columns=_COLUMNS, cursor=page.cursor))
    if not rows and output_format == "table":
        notice("no projects")
    if page.cursor is not None and output_format != "json":
        notice(f"more: --after {page.cursor}")
    return 0


@command.command(
    "show",
    short_help="One project, and where its sessions are.",
    epilog="""\b
Examples:
  mcode projects show                 the project of the current directory
  mcode projects show prj_1a2b3c4d
  mcode projects show ~/src/app --output-format json""",
)
@click.argument("project", metavar="[ID|DIR]", required=False)
@list_format
@data_dir
def show(project: str | None, output_format: str, data_dir: str | None) -> int:
    """One project, by its id, a unique prefix of it or a directory, and the workspaces of its sessions."""
    from msgspec import to_builtins

    from mcode_exec.executor.projects import PlaceRow, show_project
    from mcode_exec.output.tables import field_names, render

    row, places = await_result(show_project(data_dir, os.environ, project))
    rows = [_with_time(to_builtins(place), output_format) for place in places]
    if output_format == "json":
        emit_document(None, {"project": to_builtins(row), "workspaces": rows})
        return 0
    if output_format == "table":
        notice(f"project {row.id} ({row.kind} {row.identity}): {counted(row.sessions, 'session')}")
    fields = field_names(PlaceRow)
    emit(render(rows, output_format, name="workspaces", fields=fields, columns=_PLACE_COLUMNS))
    return 0


def _with_time(row: dict[str, Any], output_format: str) -> dict[str, Any]:
    if output_format != "table":
        return row
    from mcode_exec.output.transcript import local_time

    at_ms = row["activityMs"]
    return {**row, "lastTurn": None if at_ms is None else local_time(at_ms)}


@command.command(
    "relocate",
    short_help="Tell where a moved workspace is now.",
    epilog="""\b
Examples:
  mv ~/src/app ~/work/app && mcode projects relocate ~/src/app ~/work/app
  mcode projects relocate /old/home /new/home --dry-run""",
)
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option(
    "--keys",
    type=click.Choice(["moved", "there"]),
    help="Who keeps a --session-key that two sessions would have: the one that is moved, or the one in NEW."
    " [default: neither; nothing is moved then, exit 4]",
)
@click.option("--dry-run", is_flag=True, help="Say what would be moved, and change nothing.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@data_dir
def relocate(old: str, new: str, keys: Any, dry_run: bool, output_format: str, data_dir: str | None) -> int:
    """The sessions of OLD and of the directories in it belong to NEW from now on.

    Lists, `--continue`, `--session-key` and `--request-id` find them there; the model is told with the next prompt.
    NEW is there already: this moves no file. OLD is gone as a rule; a link may stand in its place. Killed, the same
    command goes on.
    """
    from mcode_exec.executor.projects import relocate as relocate_sessions

    if not old or not new:
        raise click.UsageError(f"{'OLD' if not old else 'NEW'} is empty.")
    moved = await_result(relocate_sessions(data_dir, os.environ, old, new, keeper=keys, dry_run=dry_run))
    if output_format == "json":
        from msgspec import to_builtins

        emit_document("projects.relocate", to_builtins(moved))
    else:
        _tell(moved)
    if not dry_run and os.path.isdir(moved.old) and not os.path.islink(moved.old):
        notice(f"{moved.old} is still there; what runs in it begins anew")
    return 0


def _tell(moved: Relocated) -> None:
    would = "would belong" if moved.is_dry_run else "belong"
    for place in moved.workspaces:
        notice(f"{counted(place.sessions, 'session')} of {place.workspace} {would} to {place.new_workspace}")
    if moved.worktrees:
        from shlex import join

        repair = join(["git", "-C", moved.new, "worktree", "repair", *moved.worktrees])
        notice(f"sessions work in git worktrees, which git looks for in {moved.old}: {repair}")
    for one in moved.keys:
        notice(
            f"the key {one.session_key!r} is that of one session only now: {one.session_id} or {one.other_id}"
        )
