"""Nested facts as indented text for people: `name: value`, lists as `- item`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcode_exec.output.escape import escape


def outline(facts: dict[str, Any]) -> str:
    """`facts` as lines; empty values are shown as `-`."""
    return "".join(f"{line}\n" for line in _lines(facts, ""))


def _lines(facts: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{escape(str(name))}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list | tuple) and value:
            yield f"{indent}{escape(str(name))}:"
            yield from _items(value, indent + "  ")
        else:
            yield f"{indent}{escape(str(name))}: {_scalar(value)}"


def _items(values: list[Any] | tuple[Any, ...], indent: str) -> Iterator[str]:
    for value in values:
        if isinstance(value, dict) and not any(
            isinstance(inner, dict | list | tuple) for inner in value.values()
        ):
            yield f"{indent}- {', '.join(_lines(value, ''))}"
        elif isinstance(value, dict):
            first, *rest = list(_lines(value, "")) or ["-"]
            yield f"{indent}- {first}"
            yield from (f"{indent}  {line}" for line in rest)
        else:
            yield f"{indent}- {_scalar(value)}"


def _scalar(value: Any) -> str:
    if value is None or value in ("", [], {}, ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(str(value))
