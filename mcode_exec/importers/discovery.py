"""The usual places of other programs, as their own variables move them, and what lies there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from mcode_exec.importers.recognising import files_below
from mcode_exec.importers.source import UnusableSourceError
from mcode_exec.importers.sqlite_source import Scratch
from mcode_exec.paths import home
from mcode_exec.records.imported import Place


def places(env: Mapping[str, str], scratch: Scratch) -> Iterator[Place]:
    """What is at the usual places; no file is written, no credential opened."""
    base = home(env)
    data = _xdg(env, "XDG_DATA_HOME", base, ".local", "share")
    if data is not None:
        yield from _opencode(env, os.path.join(data, "opencode"), scratch)
    codex = _moved(env, "CODEX_HOME", base, ".codex")
    if codex is not None:
        for name in ("sessions", "archived_sessions"):
            yield from _files("codex", "codex rollouts", os.path.join(codex, name), "rollout-")
    claude = _moved(env, "CLAUDE_CONFIG_DIR", base, ".claude")
    if claude is not None:
        yield from _files("claude-code", "claude transcripts", os.path.join(claude, "projects"), "")
    for directory in _daemons(env, base, data):
        yield from _database("minimax", "sqlite.db", os.path.join(directory, "sqlite.db"), scratch)


def native_stores(env: Mapping[str, str]) -> tuple[str, ...]:
    """Where a daemon may keep its native OpenCode store that has none beside its own database."""
    base = home(env)
    found = (
        _xdg(env, "XDG_DATA_HOME", base, ".local", "share"),
        _xdg(env, "XDG_STATE_HOME", base, ".local", "state"),
    )
    return tuple(os.path.join(path, "opencode", "opencode.db") for path in found if path is not None)


def _xdg(env: Mapping[str, str], name: str, base: str | None, *below: str) -> str | None:
    value = env.get(name, "")
    if value.startswith("/"):
        return os.path.normpath(value)
    return None if base is None else os.path.join(base, *below)


def _moved(env: Mapping[str, str], name: str, base: str | None, below: str) -> str | None:
    value = env.get(name, "")
    if value:
        return os.path.abspath(value)
    return None if base is None else os.path.join(base, below)


def _opencode(env: Mapping[str, str], directory: str, scratch: Scratch) -> Iterator[Place]:
    from mcode_exec.importers.opencode_trees import OpenCodeTree, tree_in

    named = env.get("OPENCODE_DB", "")
    found = [os.path.join(directory, named)] if named else []
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        names = []
    found += [
        os.path.join(directory, name)
        for name in names
        if name.startswith("opencode") and name.endswith(".db")
    ]
    for path in dict.fromkeys(found):
        yield from _database("opencode", "opencode.db", path, scratch)
    tree = tree_in(directory)
    if tree is not None:
        count = OpenCodeTree(tree).count()
        if count:
            size = sum(_size(path) for path in files_below(tree))
            yield Place(
                program="opencode", kind="opencode storage", path=tree, sessions=count, size_bytes=size
            )


def _daemons(env: Mapping[str, str], base: str | None, data: str | None) -> Iterator[str]:
    found = [env[name] for name in ("MINIMAX_DATA_DIR", "MAVIS_DATA_DIR") if env.get(name)]
    if base is not None:
        found += [os.path.join(base, name) for name in (".minimax", ".mavis")]
    if data is not None:
        found.append(os.path.join(data, "minimax"))
    yield from dict.fromkeys(os.path.abspath(path) for path in found)


def _database(program: str, kind: str, path: str, scratch: Scratch) -> Iterator[Place]:
    if not os.path.isfile(path):
        return
    from mcode_exec.importers.sqlite_source import ForeignDatabase

    size = sum(_size(path + end) for end in ("", "-wal"))
    try:
        database = ForeignDatabase(path, scratch)
    except UnusableSourceError as error:
        yield Place(program=program, kind=kind, path=path, sessions=None, size_bytes=size, detail=str(error))
        return
    try:
        count = max(database.count(table) for table in ("session", "session_v2", "sessions"))
    finally:
        database.close()
    yield Place(program=program, kind=kind, path=path, sessions=count, size_bytes=size)


def _files(program: str, kind: str, directory: str, prefix: str) -> Iterator[Place]:
    count = size = 0
    for path in files_below(directory):
        name = os.path.basename(path)
        if name.startswith(prefix) and name.endswith(".jsonl"):
            count += 1
            size += _size(path)
    if count:
        yield Place(program=program, kind=kind, path=directory, sessions=count, size_bytes=size)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
