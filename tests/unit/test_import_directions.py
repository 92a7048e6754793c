"""The rooms and their arrows, as docs/design.md draws them: a room imports only what its arrow reaches."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "mcode_exec"

#: what everybody may import
COMMON = {
    "records",
    "ids",
    "errors",
    "abort",
    "clock",
    "config",
    "paths",
    "redaction",
    "durations",
    "plurals",
    "version",
    "faults",
}

ARROWS: dict[str, set[str]] = {
    "cli": {"batch", "executor", "output"},
    "batch": {"executor", "turns", "store", "output"},
    "executor": {
        "turns",
        "sessions",
        "store",
        "agent",
        "providers",
        "permissions",
        "tools",
        "sandbox",
        "workspace",
        "output",
        "recordings",
        "exporters",
        "importers",
    },
    "exporters": set(),
    "importers": set(),
    "output": set(),
    "turns": {"sessions", "store"},
    "sessions": {"store"},
    "agent": {"providers", "tools", "permissions"},
    "providers": set(),
    "recordings": {"providers"},
    "tools": {"sandbox", "workspace"},
    "permissions": set(),
    "sandbox": set(),
    "workspace": set(),
    "store": set(),
    "records": {"records", "ids", "errors", "abort"},
    "config": {"errors", "paths", "durations", "records"},
}
#: modules beside the rooms import no room but records
SINGLE = {"records"}


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("mcode_exec"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {
                alias.name.split(".")[1] for alias in node.names if alias.name.startswith("mcode_exec.")
            }
    return found


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_a_room_imports_only_what_its_arrow_reaches(path: Path) -> None:
    room = _room(path)
    if room == "__main__":
        allowed = {"cli"}
    elif room in ("records", "config"):
        allowed = ARROWS[room] | {room}
    elif room in ARROWS:
        allowed = ARROWS[room] | COMMON | {room}
    else:
        allowed = COMMON | SINGLE
    assert _imports(path) <= allowed


def test_only_the_store_imports_peewee() -> None:
    for path in PACKAGE.rglob("*.py"):
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        } | {
            node.module or ""
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
        }
        if any(name == "peewee" or name.startswith("peewee.") for name in names):
            assert _room(path) == "store", path
