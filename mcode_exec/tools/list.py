"""list: one directory, every entry, hidden ones included."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mcode_exec.records.tool import ToolOutcome
from mcode_exec.tools.capping import cap
from mcode_exec.tools.context import ToolContext
from mcode_exec.tools.failure import ToolFailure, explain
from mcode_exec.tools.paths import absolute, display, printable
from mcode_exec.tools.threads import in_thread

MAX_ENTRIES = 1000


async def run(arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    path = absolute(arguments.get("path") or ".", ctx.workspace)
    return await in_thread(lambda: _list(path, ctx))


def _list(path: str, ctx: ToolContext) -> ToolOutcome:
    shown = display(path, ctx.workspace)
    try:
        with os.scandir(path) as entries:
            names = sorted(
                (_describe(entry) for entry in entries), key=lambda name: (not name.endswith("/"), name)
            )
    except NotADirectoryError:
        raise ToolFailure(f"{shown} is not a directory; use read") from None
    except OSError as error:
        raise ToolFailure(explain(error, shown)) from error
    lines = names[:MAX_ENTRIES]
    if len(names) > MAX_ENTRIES:
        lines.append(f"[{len(names) - MAX_ENTRIES} of {len(names)} entries left out; use glob]")
    capped = cap("\n".join(lines) or "(empty)", ctx.output_path)
    return ToolOutcome(
        content=capped.text,
        title=shown,
        metadata={"count": len(names), "truncated": capped.is_cut or len(names) > MAX_ENTRIES},
    )


def _describe(entry: os.DirEntry[str]) -> str:
    name = printable(entry.name)
    if entry.is_symlink():
        try:
            return f"{name} -> {printable(os.readlink(entry.path))}"
        except OSError:
            return name
    return name + "/" if entry.is_dir(follow_symlinks=False) else name
