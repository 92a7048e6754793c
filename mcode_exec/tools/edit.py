"""edit: replace a text that occurs exactly once, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mcode_exec.plurals import counted
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.tools import files
from mcode_exec.tools.context import ToolContext
from mcode_exec.tools.failure import ToolFailure
from mcode_exec.tools.line_changes import count_changes
from mcode_exec.tools.matching import replace_text
from mcode_exec.tools.paths import absolute, display
from mcode_exec.tools.save import replace_file
from mcode_exec.tools.threads import in_thread
from mcode_exec.tools.write import encode, losses


async def run(arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    path = absolute(arguments["file_path"], ctx.workspace)
    old: str = arguments["old_string"]
    new: str = arguments["new_string"]
    if old == new:
        raise ToolFailure("old_string and new_string are the same; there is nothing to change")
    replace_all = bool(arguments.get("replace_all", False))
    return await in_thread(lambda: _edit(path, old, new, ctx, replace_all=replace_all), finish=True)


def _edit(path: str, old: str, new: str, ctx: ToolContext, *, replace_all: bool) -> ToolOutcome:
    shown = display(path, ctx.workspace)
    real = os.path.realpath(path)
    if not old:
        return _create(path, real, new, ctx, shown)
    content, stat = files.read_whole(real, shown)
    if files.is_binary(content):
        raise ToolFailure(f"{shown} is a binary file")
    was_changed = ctx.reads.has_changed(path, real, stat, content)
    try:
        edited = replace_text(content, old, new, replace_all=replace_all, shown=shown)
    except ToolFailure as failure:
        if was_changed:
            raise ToolFailure(f"{failure} ({shown} has changed since it was read; read it again)") from None
        raise
    if was_changed and edited.count > 1:
        raise ToolFailure(f"{shown} has changed since it was read; read it again before replacing all")
    if edited.content == content:
        raise ToolFailure(f"the edit would not change {shown}")
    written = replace_file(real, edited.content, stat, shown)
    if not was_changed:
        # otherwise the model still does not know what others wrote
        ctx.reads.note(path, real, written, edited.content)
    additions, deletions = count_changes(content, edited.content)
    times = counted(edited.count, "replacement", "replacements, the first")
    changed = "\n[the file had changed since it was read; old_string was still unique]" if was_changed else ""
    return ToolOutcome(
        content=f"edited {shown}: {times} at line {edited.line} (+{additions} -{deletions} lines)"
        f"{changed}{losses(stat, written)}",
        title=shown,
        metadata={"path": real, "additions": additions, "deletions": deletions},
    )


def _create(path: str, real: str, new: str, ctx: ToolContext, shown: str) -> ToolOutcome:
    if os.path.lexists(real):
        raise ToolFailure(f"{shown} exists; an empty old_string only creates a new file")
    os.makedirs(os.path.dirname(real), exist_ok=True)
    data = encode(new)
    written = replace_file(real, data, None, shown)
    ctx.reads.note(path, real, written, data)
    additions, _ = count_changes(b"", data)
    return ToolOutcome(
        content=f"created {shown} ({counted(len(data), 'byte')}, +{additions} -0 lines)",
        title=shown,
        metadata={"path": real, "additions": additions, "deletions": 0},
    )
