"""What a path holds: which program's sessions, in which of its forms.

Decided by content, not by name alone; a directory is looked into as far as the
programs' own layouts go, links that lead out of it are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from mcode_exec.importers.source import Source, UnreadableSource, UnusableSourceError
from mcode_exec.importers.sqlite_source import Scratch, is_sqlite
from mcode_exec.importers.values import BOM, UnreadableError, read_object
from mcode_exec.paths import open_regular

_MOST_FILES = 1_000_000  # looked at below one directory
_HEAD_BYTES = 64 * 1024
_FIRST_LINE_BYTES = 16 * 1024 * 1024


def sources_in(path: str, scratch: Scratch, natives: Sequence[str] = ()) -> Iterator[Source]:
    """Every source at `path`, a file or a directory, opened one after the other; the caller closes each.

    `natives`: where a daemon may keep its native store, behind the places beside its database.

    Raises: UnusableSourceError.
    """
    if os.path.isdir(path):
        yield from _in_directory(path, scratch, natives)
        return
    if not os.path.exists(path):
        raise UnusableSourceError(f"{path} does not exist")
    source = source_of(path, scratch, natives)
    if source is None:
        raise UnusableSourceError(
            f"{path} is no session that mcode knows: it imports OpenCode's opencode.db, storage directory and "
            "exports, Claude Code's and Codex's .jsonl files, a daemon's sqlite.db, and what `sessions export` wrote"
        )
    yield source


def source_of(path: str, scratch: Scratch, natives: Sequence[str] = ()) -> Source | None:
    """What a file holds; None for anything else.  Raises: UnusableSourceError."""
    if is_sqlite(path):
        return _database(path, scratch, natives)
    head = _head(path)
    if head is None:
        return None
    if head.removeprefix(BOM).lstrip()[:1] != b"{":
        return None
    first = _first_object(path, head)
    if first is None:
        if b'"info"' in head:
            from mcode_exec.importers.opencode_export import OpenCodeExport

            return OpenCodeExport(path)
        return None
    if _is_codex(first):
        from mcode_exec.importers.codex import CodexRollout

        return CodexRollout(path)
    if "sessionId" in first or "leafUuid" in first or "parentUuid" in first:
        from mcode_exec.importers.claude import ClaudeTranscript

        return ClaudeTranscript(path)
    if "info" in first and "messages" in first:
        from mcode_exec.importers.opencode_export import OpenCodeExport

        return OpenCodeExport(path)
    return None


def _is_codex(first: dict[str, object]) -> bool:
    is_line = isinstance(first.get("payload"), dict) and isinstance(first.get("type"), str)
    # rollouts of old versions begin with the description itself
    return is_line or ({"id", "timestamp"} <= first.keys() and "instructions" in first)


def _database(path: str, scratch: Scratch, natives: Sequence[str]) -> Source | None:
    from mcode_exec.importers.daemon import DaemonDatabase, is_daemon
    from mcode_exec.importers.sqlite_source import ForeignDatabase

    database = ForeignDatabase(path, scratch)
    try:
        belongs_to_daemon = is_daemon(database)
    finally:
        database.close()
    if belongs_to_daemon:
        return DaemonDatabase(path, scratch, natives)
    from mcode_exec.importers.opencode_database import OpenCodeDatabase

    return OpenCodeDatabase(path, scratch)


def _head(path: str) -> bytes | None:
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        raise UnusableSourceError(f"{path} cannot be read: {error.strerror}") from error


def _first_object(path: str, head: bytes) -> dict[str, object] | None:
    """The object of the first line, if it is one."""
    line = head.split(b"\n", 1)[0]
    if b"\n" not in head and len(head) == _HEAD_BYTES:
        with open(open_regular(path), "rb") as file:
            line = file.readline(_FIRST_LINE_BYTES)
    try:
        return read_object(line)
    except UnreadableError:
        return None


def _in_directory(path: str, scratch: Scratch, natives: Sequence[str]) -> Iterator[Source]:
    from mcode_exec.importers.opencode_trees import OpenCodeTree, tree_in

    tree = tree_in(path)
    if tree is not None:
        yield OpenCodeTree(tree)
    is_empty = tree is None
    for file in files_below(path, skips=tree):
        if not _may_be_session(file):
            continue
        source: Source | None
        try:
            source = source_of(file, scratch, natives)
        except UnusableSourceError as error:
            source = UnreadableSource(file, str(error))
        if source is not None:
            is_empty = False
            yield source
    if is_empty:
        raise UnusableSourceError(f"{path} holds no session of a program that mcode knows")


def _may_be_session(path: str) -> bool:
    """Whether a file in a directory is looked at; what holds credentials never is, whatever is in it."""
    name = os.path.basename(path)
    if name in ("auth.json", ".credentials.json", "credentials.json", "config.json", "history.jsonl"):
        return False
    is_database = name == "sqlite.db" or (name.startswith("opencode") and name.endswith(".db"))
    return name.endswith(".jsonl") or is_database


def files_below(path: str, *, skips: str | None = None) -> Iterator[str]:
    """Regular files below a directory, in the order of their names; links are not followed."""
    count = 0
    for directory, names, files in os.walk(path):
        names[:] = sorted(
            name
            for name in names
            if os.path.join(directory, name) != skips and name not in ("subagents", "snapshot")
        )
        for name in sorted(files):
            count += 1
            if count > _MOST_FILES:
                return
            file = os.path.join(directory, name)
            if not os.path.islink(file):
                yield file
