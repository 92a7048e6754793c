"""Sessions as an indented tree for people."""

from __future__ import annotations

from collections.abc import Iterable

from mcode_exec.output.escape import escape
from mcode_exec.output.narration import cut
from mcode_exec.output.transcript import local_time
from mcode_exec.records.finding import TreeNode

_TITLE_CHARS = 72


def tree_lines(nodes: Iterable[TreeNode]) -> str:
    """One line for each, under what it hangs on: id, when its newest turn was, status, branch, relation, title."""
    return "".join(f"{_line(node)}\n" for node in nodes)


def _line(node: TreeNode) -> str:
    session = node.session
    branch = ""
    if node.depth:
        *above, has_next = node.has_next
        branch = "".join("│  " if goes_on else "   " for goes_on in above)
        branch += "├─ " if has_next else "└─ "
    relation = "" if node.relation == "root" else f"{node.relation}: "
    archived = " (archived)" if session.archived_ms is not None else ""
    title = escape(cut(session.title, _TITLE_CHARS))
    return (
        f"{session.id}  {local_time(session.activity_ms)}  {session.shown_status:<11}  "
        f"{branch}{relation}{title}{archived}"
    )
