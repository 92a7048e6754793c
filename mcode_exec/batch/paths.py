"""Names of values in templates and conditions: `area`, `item.path`, `needs.plan.output`, `needs["a.b"].status`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

#: a step: a name, or any text as a JSON string or in single quotes within brackets
_STEP = re.compile(
    r"""\s*(?:(?P<dot>\.)\s*)?(?:(?P<name>[A-Za-z0-9_-]+)|\[\s*(?P<quoted>"(?:[^"\\]|\\.)*"|'[^']*')\s*\])"""
)

Path = tuple[str, ...]


class PathError(Exception):
    """A name that leads to nothing, or is none: a sentence without its place."""


def unquoted(text: str) -> str:
    """The text of a string literal.  Raises: PathError."""
    if text.startswith("'"):
        return text[1:-1]
    try:
        return str(json.loads(text))
    except ValueError:
        raise PathError(f"{text} is no string") from None


def parse_path(text: str) -> Path:
    """The steps of a name.  Raises: PathError."""
    steps: list[str] = []
    at = 0
    stripped = text.strip()
    while at < len(stripped):
        match = _STEP.match(stripped, at)
        has_dot = match is not None and match["dot"] is not None
        needs_dot = match is not None and match["name"] is not None and bool(steps)
        if match is None or has_dot != needs_dot:
            raise PathError(f'"{stripped}" is no name such as item.path or needs.plan.output')
        steps.append(match["name"] if match["name"] is not None else unquoted(match["quoted"]))
        at = match.end()
    if not steps:
        raise PathError("there is no name between {{ and }}")
    return tuple(steps)


def find_value(path: Path, values: Mapping[str, Any]) -> Any:
    """What a name stands for.  Raises: PathError, with what is known where it ends."""
    value: Any = values
    for count, step in enumerate(path):
        if not isinstance(value, Mapping):
            raise PathError(f'"{shown(path[:count])}" has no parts, so there is no "{shown(path)}"')
        if step not in value:
            known = ", ".join(sorted(map(str, value))) or "nothing"
            where = f'in "{shown(path[:count])}"' if count else "here"
            raise PathError(f'unknown name "{shown(path)}"; known {where}: {known}')
        value = value[step]
    return value


def shown(path: Path) -> str:
    """A path as it is written."""
    text = ""
    for step in path:
        if re.fullmatch(r"[A-Za-z0-9_-]+", step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step, ensure_ascii=False)}]"
    return text
