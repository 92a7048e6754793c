"""`mcode sessions tree`: what came from what."""

from __future__ import annotations

import os
from typing import Any

import click

from mcode_exec.cli.flag_types import SESSION_ID
from mcode_exec.cli.list_options import await_result, data_dir, emit, list_format, notice
from mcode_exec.cli.session_filters import flags_of, page_limit, session_filters
from mcode_exec.cli.session_rows import FIELDS, row_of, tell_deletions

_NODE_FIELDS = ("depth", "relation", *FIELDS)


@click.command(
    "tree",
    short_help="Sessions with their forks, sub-agents and side conversations.",
    epilog="""\b
Examples:
  mcode sessions tree                          trees of this workspace, the newest first
  mcode sessions tree mvs_0123abcd             the whole tree in which that session stands
  mcode sessions tree --all --output-format json""",
)
@click.argument("session", type=SESSION_ID, required=False)
@session_filters
@page_limit("Sessions.")
@click.option("--after", metavar="CURSOR", help="Continue an earlier tree.")
@list_format
@data_dir
def tree(
    session: str | None,
    limit: int,
    after: str | None,
    output_format: str,
    data_dir: str | None,
    **filters: Any,
) -> int:
    """Sessions as the trees they form: what was forked from what, with sub-agents and side conversations.

    SESSION is an id or a unique prefix of one; its whole tree is shown, from the top. Without it the filters
    say at which sessions trees begin. At most 32 levels.
    """
    from mcode_exec.executor.session_lists import session_tree
    from mcode_exec.output.tables import render

    flags = flags_of(filters)
    if session is not None and any(
        filters[name] for name in ("cwd", "kinds", "statuses", "archived", "since", "labels")
    ):
        raise click.UsageError("SESSION and filters cannot be combined (but for --all and --hidden).")
    page = await_result(
        session_tree(
            data_dir,
            os.environ,
            flags,
            name=session,
            limit=limit,
            after_cursor=after,
            told=notice,
        )
    )
    if output_format == "table":
        from mcode_exec.output.tree import tree_lines

        emit(tree_lines(page.nodes).encode("utf-8", "replace"))
        if not page.nodes:
            notice("no sessions" if flags.all_workspaces else "no sessions here")
        tell_deletions(page.seals)
    else:
        rows = [
            {
                "depth": node.depth,
                "relation": node.relation,
                **row_of(node.session, page.seals.get(node.session.id)),
            }
            for node in page.nodes
        ]
        emit(
            render(rows, output_format, name="sessions", fields=_NODE_FIELDS, columns={}, cursor=page.cursor)
        )
    if page.cursor is not None and output_format != "json":
        notice(f"more: --after {page.cursor}")
    return 0
