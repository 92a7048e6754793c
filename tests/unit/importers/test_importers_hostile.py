"""Any value of a source may be of any type: what comes of it is a record or a loss, never an error of ours."""

from __future__ import annotations

import copy
import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcode_exec.importers.building import Boundary, Transcript
from mcode_exec.importers.losses import Losses
from mcode_exec.importers.recognising import source_of
from mcode_exec.importers.source import Unusable, UnusableSourceError
from mcode_exec.sessions.lines import read_record
from tests.support.stores import STORES, database, tree

#: what a value is replaced with
_STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1e308, 2**70, "", "x", "\ud83d", "\0"),
    *([], {}, [[]], [{}], [None], {"a": {}}, ["x", 1], "data:image/png;base64,aGk="),
)
_ROUNDS = 40


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in ((*path, key), *_places(inner, (*path, key)))]


def _mutated(text: str, chance: random.Random) -> str:
    """A JSON text with one of its values, or a few, replaced."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    for _ in range(chance.randint(1, 3)):
        places = _places(value)
        if not places:
            break
        *way, key = chance.choice(places)
        at = value
        for step in way:
            at = at[step]
        at[key] = copy.deepcopy(chance.choice(_STRANGE))
    return json.dumps(value)


def _read(path: Path, scratch: Path) -> int:
    """Read everything at a path as an import does; how many records that made."""
    try:
        source = source_of(str(path), lambda: str(scratch))
    except UnusableSourceError:
        return 0
    if source is None:
        return 0
    count = 0
    try:
        for session in source.sessions():
            if isinstance(session, Unusable):
                continue
            transcript = Transcript("mvs_" + "0" * 32, lambda data, name: None, Losses())
            for item in source.items(session, transcript):
                if not isinstance(item, Boundary):
                    read_record(msgspec.json.encode(item))
                    count += 1
    except UnusableSourceError:
        pass
    finally:
        source.close()
    return count


def _mutate_lines(path: Path, chance: random.Random) -> None:
    lines = path.read_text(encoding="utf-8").split("\n")
    at = chance.randrange(len(lines))
    lines[at] = _mutated(lines[at], chance)
    path.write_text("\n".join(lines), encoding="utf-8")


def _mutate_rows(path: Path, chance: random.Random) -> None:
    with sqlite3.connect(path) as store:
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = chance.choice([name for name in tables if name != "credential"])
        columns = [row[1] for row in store.execute(f"PRAGMA table_info({table})")]
        rows = store.execute(f"SELECT rowid, * FROM {table}").fetchall()
        if not rows:
            return
        row = chance.choice(rows)
        column = chance.choice(columns)
        old = row[1 + columns.index(column)]
        strange = chance.choice((None, "", -1, 2**62, 1.5, "x", b"\xff\xfe", "[]", "{}"))
        new = _mutated(old, chance) if isinstance(old, str) and old[:1] == "{" else strange
        try:
            store.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row[0]))
        except sqlite3.IntegrityError:
            pass
    store.close()


def _lines(name: str) -> Callable[[Path], Path]:
    return lambda at: next(iter(tree(name, at).rglob("*.jsonl")))


def _database(name: str) -> Callable[[Path], Path]:
    return lambda at: database(name, at / ("sqlite.db" if name.startswith("daemon") else "opencode.db"))


_KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path, random.Random], None]]] = {
    **{
        name: (_lines(name), _mutate_lines)
        for name in ("claude-composed", "codex-composed", "codex-0.171", "claude-2.1.197")
    },
    **{
        name: (_database(name), _mutate_rows)
        for name in ("opencode-v1-composed", "opencode-v2-composed", "daemon-composed", "opencode-1.18.33")
    },
}


@pytest.mark.parametrize("kind", _KINDS)
def test_no_value_of_a_source_makes_an_error_of_ours(tmp_path: Path, kind: str) -> None:
    put, mutate = _KINDS[kind]
    chance = random.Random(kind)
    whole = _read(put(tmp_path / "whole"), tmp_path / "scratch")
    total = 0
    for number in range(_ROUNDS):
        path = put(tmp_path / str(number))
        mutate(path, chance)
        total += _read(path, tmp_path / "scratch")
    assert whole > 0
    assert total > whole * _ROUNDS // 3  # most of what was said is still told


@pytest.mark.parametrize("kind", [name for name in _KINDS if (STORES / name).is_dir()])
def test_a_file_that_was_cut_off_anywhere_is_read_up_to_there(tmp_path: Path, kind: str) -> None:
    path = _KINDS[kind][0](tmp_path / "whole")
    data = path.read_bytes()
    for end in range(0, len(data), max(len(data) // 40, 1)):
        path.write_bytes(data[:end])
        _read(path, tmp_path / "scratch")
