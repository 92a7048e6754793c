"""glob: files by the pattern of their path, ignored ones left out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mcode_exec.records.tool import ToolOutcome
from mcode_exec.tools.capping import cap
from mcode_exec.tools.context import ToolContext
from mcode_exec.tools.failure import ToolFailure
from mcode_exec.tools.glob_patterns import has_magic, matcher
from mcode_exec.tools.paths import absolute, display
from mcode_exec.tools.threads import in_thread
from mcode_exec.workspace.programs import Stop
from mcode_exec.workspace.walk import list_files

MAX_FILES = 500
LIMIT_S = 30.0


async def run(arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    pattern: str = arguments["pattern"]
    base = absolute(arguments.get("path") or ".", ctx.workspace)
    directory, rest = split_pattern(pattern, base)
    stop = Stop()
    try:
        return await in_thread(lambda: _glob(directory, rest, pattern, ctx, stop))
    finally:
        stop.set()


def split_pattern(pattern: str, base: str) -> tuple[str, str]:
    """(directory to walk, pattern below it): leading parts without wildcards go to the directory.

    Raises: ToolFailure for an empty pattern or one that climbs after a wildcard.
    """
    if not pattern:
        raise ToolFailure("the pattern is empty")
    if "/" not in pattern:
        return base, pattern if pattern == "**" else "**/" + pattern
    parts = pattern.split("/")
    count = 0
    while count < len(parts) - 1 and not has_magic(parts[count]):
        count += 1
    if ".." in parts[count:]:
        raise ToolFailure("`..` cannot follow a wildcard in a pattern; give the directory as path")
    prefix = "/".join(parts[:count])
    if pattern.startswith("/"):
        prefix = prefix or "/"
    return (absolute(prefix, base) if prefix else base), "/".join(parts[count:])


def _glob(directory: str, rest: str, pattern: str, ctx: ToolContext, stop: Stop) -> ToolOutcome:
    shown_directory = display(directory, ctx.workspace)
    if not os.path.isdir(directory):
        raise ToolFailure(f"{shown_directory}: no such directory")
    matches = matcher(rest)
    try:
        names = [name for name in list_files(directory, limit_s=LIMIT_S, stop=stop) if matches(name)]
    except TimeoutError:
        raise ToolFailure(
            f"{shown_directory} is too large to search within {LIMIT_S:g} s; give a narrower path"
        ) from None
    lines = [display(f"{directory.rstrip('/')}/{name}", ctx.workspace) for name in names[:MAX_FILES]]
    if len(names) > MAX_FILES:
        lines.append(f"[{len(names) - MAX_FILES} of {len(names)} files left out; use a narrower pattern]")
    capped = cap("\n".join(lines) or f"no file matches {pattern}", ctx.output_path)
    return ToolOutcome(
        content=capped.text,
        title=pattern,
        metadata={"count": len(names), "truncated": capped.is_cut or len(names) > MAX_FILES},
    )
