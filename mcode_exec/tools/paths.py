"""From the path a model wrote to an absolute one.  Does not resolve symlinks: permissions judge the real path."""

from __future__ import annotations

import os
import re

from mcode_exec.tools.failure import ToolFailure


def absolute(path: str, workspace: str) -> str:
    """`path` from the workspace, `~` expanded, `.` and doubled slashes removed.

    `..` stays where the part before it may be a symlink: only the kernel knows
    where that leads.
    Raises: ToolFailure for a path that no file can have.
    """
    if "\0" in path:
        raise ToolFailure("a path cannot contain a NUL byte")
    if path == "":
        raise ToolFailure("the path is empty")
    if path == "~" or path.startswith("~/"):
        home = os.path.expanduser("~")
        path = home + path[1:]
    joined = os.path.join(workspace, path)
    try:
        os.fsencode(joined)
    except UnicodeEncodeError:
        raise ToolFailure("the path contains a lone surrogate, which no file name can hold") from None
    parts = [part for part in joined.split("/") if part not in ("", ".")]
    return "/" + "/".join(parts)


def display(path: str, workspace: str) -> str:
    """Relative where it lies in the workspace; bytes that are no text are shown as U+FFFD."""
    if path == workspace:
        return "."
    prefix = workspace.rstrip("/") + "/"
    shown = path[len(prefix) :] if path.startswith(prefix) else path
    return printable(shown)


def printable(text: str) -> str:
    """Valid text without NUL: lone surrogates (bytes of a file name that are no UTF-8) become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "�")
    if text.isascii():
        return text
    return re.sub("[\ud800-\udfff]", "�", text)
