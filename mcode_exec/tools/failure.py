"""The one exception of this room: a sentence that the model can act on."""

from __future__ import annotations

import errno


class ToolFailure(Exception):  # noqa: N818 - a result, not a defect
    """The call cannot be done; `str()` of it is what the model reads."""


def explain(error: OSError, path: str) -> str:
    """An operating system's refusal in the words of the task."""
    if error.errno == errno.ENOENT:
        return f"{path}: no such file or directory"
    if error.errno == errno.ENOSPC:
        return f"{path}: no space left on the device; nothing was changed"
    return f"{path}: {(error.strerror or str(error)).lower()}"
