"""write: the whole content of a file, as given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mcode_exec.records.tool import ToolOutcome
from mcode_exec.tools import files
from mcode_exec.tools.context import ToolContext
from mcode_exec.tools.failure import ToolFailure
from mcode_exec.tools.line_changes import count_changes
from mcode_exec.tools.paths import absolute, display
from mcode_exec.tools.save import replace_file
from mcode_exec.tools.threads import in_thread


async def run(arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    path = absolute(arguments["file_path"], ctx.workspace)
    data = encode(arguments["content"])
    return await in_thread(lambda: _write(path, data, ctx), finish=True)


def encode(text: str) -> bytes:
    """UTF-8; what no file can hold becomes U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        from mcode_exec.tools.paths import printable

        return printable(text).encode("utf-8")


def _write(path: str, data: bytes, ctx: ToolContext) -> ToolOutcome:
    shown = display(path, ctx.workspace)
    real = os.path.realpath(path)
    content: bytes | None = None
    old: os.stat_result | None = None
    if os.path.lexists(real):
        content, old = files.read_whole(real, shown)
        if ctx.reads.has_changed(real, old, content):
            raise ToolFailure(f"{shown} has changed since it was read; read it again before replacing it")
        if "\ufffd".encode() in data and not files.is_utf8(content):
            raise ToolFailure(
                f"{shown} is not UTF-8, and the new content holds \ufffd where its bytes were:"
                " writing it would destroy them. Use edit"
            )
    else:
        os.makedirs(os.path.dirname(real), exist_ok=True)
    written = replace_file(real, data, old, shown)
    ctx.reads.note(real, written, data)
    additions, deletions = count_changes(content or b"", data)
    verb = "created" if old is None else "wrote"
    return ToolOutcome(
        content=f"{verb} {shown} ({len(data)} bytes, +{additions} -{deletions} lines){hard_link_note(old)}",
        title=shown,
        metadata={"path": real, "additions": additions, "deletions": deletions},
    )


def hard_link_note(old: os.stat_result | None) -> str:
    if old is None or old.st_nlink < 2:
        return ""
    return f"\n[the file had {old.st_nlink} hard links; the other names keep the old content]"
