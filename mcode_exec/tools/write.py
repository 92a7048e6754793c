"""write: the whole content of a file, as given."""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Mapping
from typing import Any

from mcode_exec.plurals import counted
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.tools import files
from mcode_exec.tools.context import ToolContext
from mcode_exec.tools.failure import ToolFailure
from mcode_exec.tools.line_changes import count_changes
from mcode_exec.tools.paths import absolute, display
from mcode_exec.tools.save import replace_file
from mcode_exec.tools.threads import in_thread

_BOM = b"\xef\xbb\xbf"


async def run(arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    if arguments["file_path"].endswith("/"):
        raise ToolFailure(f"{arguments['file_path']} names a directory; give the path of a file in it")
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
        if ctx.reads.has_changed(path, real, old, content):
            raise ToolFailure(f"{shown} has changed since it was read; read it again before replacing it")
        if "\ufffd".encode() in data and not files.is_utf8(content):
            raise ToolFailure(
                f"{shown} is not UTF-8, and the new content holds \ufffd where its bytes were:"
                " writing it would destroy them. Use edit"
            )
    else:
        os.makedirs(os.path.dirname(real), exist_ok=True)
    written = replace_file(real, data, old, shown)
    ctx.reads.note(path, real, written, data)
    additions, deletions = count_changes(content or b"", data)
    verb = "created" if old is None else "wrote"
    return ToolOutcome(
        content=f"{verb} {shown} ({counted(len(data), 'byte')}, +{additions} -{deletions} lines)"
        f"{losses(old, written)}{_other_form(content, data)}",
        title=shown,
        metadata={"path": real, "additions": additions, "deletions": deletions},
    )


def losses(old: os.stat_result | None, written: os.stat_result) -> str:
    """What replacing a file could not keep."""
    if old is None:
        return ""
    lost = ""
    if old.st_nlink > 1:
        lost += f"\n[the file had {old.st_nlink} hard links; the other names keep the old content]"
    if (written.st_uid, written.st_gid) != (old.st_uid, old.st_gid):
        lost += (
            f"\n[the file belonged to {old.st_uid}:{old.st_gid}, which could not be kept;"
            f" now {written.st_uid}:{written.st_gid}, mode {stat_module.S_IMODE(written.st_mode):o}]"
        )
    return lost


def _other_form(before: bytes | None, after: bytes) -> str:
    """What `read` does not show and the new content therefore lacks."""
    if not before or not after:
        return ""
    changes = []
    if files.utf16_of(before) and not files.utf16_of(after):
        changes.append("was UTF-16 and is UTF-8 now")
    elif not files.is_utf8(before) and not files.is_binary(before):
        changes.append("was not UTF-8 and is now")
    elif before.startswith(_BOM) and not after.startswith(_BOM):
        changes.append("began with a byte order mark and does not now")
    if b"\r\n" in before and b"\n" in after and b"\r\n" not in after:
        changes.append("had CRLF line ends and has LF now")
    return f"\n[the file {'; it '.join(changes)}; edit would have kept that]" if changes else ""
