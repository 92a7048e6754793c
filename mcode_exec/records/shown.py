"""Records as programs read them: camelCase names, as results and events have them.

The store and the history keep the names of the code.  What a model or a tool
has named itself (a call's input, a result's metadata) and labels stay as they are.
"""

from __future__ import annotations

from typing import Any

import msgspec

_NOT_OURS = frozenset({"input", "metadata", "labels", "permission"})


def shown(record: msgspec.Struct) -> dict[str, Any]:
    """`record` as plain data for JSON."""
    named: dict[str, Any] = _renamed(msgspec.to_builtins(record))
    return named


def names_of(record: type[msgspec.Struct]) -> tuple[str, ...]:
    """The names that `shown` gives the fields of a record."""
    return tuple(map(_camel, record.__struct_fields__))


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            _camel(name): inner if name in _NOT_OURS else _renamed(inner) for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_renamed(inner) for inner in value]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
