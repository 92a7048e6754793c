"""Stores of other programs, put where a test wants them, from `fixtures/databases/`."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from pathlib import Path

STORES = Path(__file__).resolve().parents[2] / "fixtures" / "databases"


def database(name: str, path: Path) -> Path:
    """The database that `fixtures/databases/NAME.sql` describes, at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    connection.executescript(f"BEGIN;\n{(STORES / f'{name}.sql').read_text(encoding='utf-8')}\nCOMMIT;")
    connection.close()
    return path


def tree(name: str, path: Path) -> Path:
    """A copy of a directory of `fixtures/databases/`, writable, at `path`."""
    shutil.copytree(STORES / name, path)
    return path


def footprint(path: Path) -> dict[str, tuple[int, str]]:
    """Every file below `path` with its time of change and content: what a reader must leave as it was."""
    return {
        str(file.relative_to(path)): (file.stat().st_mtime_ns, hashlib.sha256(file.read_bytes()).hexdigest())
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
