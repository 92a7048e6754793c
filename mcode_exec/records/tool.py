"""What a tool gives back.  A failure is an outcome the model can act on, never an exception."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ToolOutcome(Struct, frozen=True, kw_only=True):
    """`content` is what the model reads: valid text, capped, never empty."""

    content: str
    is_error: bool = False
    #: one line for people
    title: str = ""
    #: facts for display and results: exit_code, truncated, output_path, additions, …
    metadata: dict[str, Any] = {}
    #: images read, as (mime, raw bytes)
    images: tuple[tuple[str, bytes], ...] = ()


class LeftoverProcess(Struct, frozen=True, kw_only=True, rename="camel"):
    """A process that a command left in the background and that was ended with the turn."""

    pid: int
    command: str
