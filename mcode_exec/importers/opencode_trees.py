"""OpenCode's JSON trees: B, `storage/session|message|part/…` up to 1.1, and the older A, one tree a project.

Ids are those of paths, not those in files: earlier moves left stale ones there.
Sessions whose project file is missing are there all the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from mcode_exec.importers import losses as lost
from mcode_exec.importers.building import Item, Transcript
from mcode_exec.importers.losses import Losses
from mcode_exec.importers.opencode_messages import Cut, Parts, is_finished_summary, items_of, tail_start
from mcode_exec.importers.source import Unusable
from mcode_exec.importers.values import (
    MAX_JSON_BYTES,
    UnreadableError,
    moment_of,
    object_of,
    read_object,
    text_of,
)
from mcode_exec.paths import open_regular
from mcode_exec.records.imported import ForeignSession


class _Tree:
    """Where one tree has its sessions, messages and parts."""

    def __init__(
        self, sessions: str, messages: str, parts: str, *, is_old: bool, project: str | None
    ) -> None:
        self.sessions, self.messages, self._parts = sessions, messages, parts
        self._is_old = is_old
        self.project = project

    def parts(self, session_id: str, message_id: str) -> str:
        inner = (session_id, message_id) if self._is_old else (message_id,)
        return os.path.join(self._parts, *inner)


def tree_in(path: str) -> str | None:
    """The directory that the trees of OpenCode lie in, if `path` is it or the one above it."""
    for directory in (path, os.path.join(path, "storage")):
        if os.path.isdir(os.path.join(directory, "session")) and os.path.isdir(
            os.path.join(directory, "message")
        ):
            return directory
    return path if next(_old_trees(path), None) is not None else None


def _old_trees(path: str) -> Iterator[tuple[str, str]]:
    """(project, its `storage/session`) of each project of the older form."""
    base = os.path.join(path, "project")
    for project in _names(base):
        directory = os.path.join(base, project, "storage", "session")
        if os.path.isdir(os.path.join(directory, "info")):
            yield project, directory


class OpenCodeTree:
    """The trees of one data directory."""

    kind = "opencode storage"

    def __init__(self, path: str) -> None:
        self.path = path
        #: of each session, where it lies
        self._places: dict[str, _Tree] = {}

    def close(self) -> None:
        pass

    def count(self) -> int:
        return sum(1 for _ in self._files())

    def sessions(self) -> Iterator[ForeignSession | Unusable]:
        """Those that delegate first; a tree is read once for its descriptions."""
        children: list[ForeignSession] = []
        for session_id, file, tree in self._files():
            try:
                info = _read(file)
            except (OSError, UnreadableError) as error:
                yield Unusable(origin="opencode", source_id=session_id, source=file, why=str(error))
                continue
            self._places[session_id] = tree
            session = self._session(session_id, file, info, tree)
            if session.parent_source_id is None:
                yield session
            else:
                children.append(session)
        yield from sorted(children, key=lambda session: session.created_ms)

    def _files(self) -> Iterator[tuple[str, str, _Tree]]:
        for project in _names(os.path.join(self.path, "session")):
            sessions = os.path.join(self.path, "session", project)
            tree = _Tree(
                sessions,
                os.path.join(self.path, "message"),
                os.path.join(self.path, "part"),
                is_old=False,
                project=project,
            )
            yield from ((name, file, tree) for name, file in _json_files(sessions))
        for base in dict.fromkeys((self.path, os.path.dirname(self.path))):
            for _, directory in _old_trees(base):
                tree = _Tree(
                    os.path.join(directory, "info"),
                    os.path.join(directory, "message"),
                    os.path.join(directory, "part"),
                    is_old=True,
                    project=None,
                )
                yield from ((name, file, tree) for name, file in _json_files(tree.sessions))

    def _session(self, session_id: str, file: str, info: dict[str, Any], tree: _Tree) -> ForeignSession:
        time = object_of(info.get("time"))
        created_ms = moment_of(time.get("created")) or 0
        directory = os.path.join(tree.messages, session_id)
        revert = object_of(info.get("revert"))
        return ForeignSession(
            origin="opencode",
            source_id=session_id,
            source=file,
            workspace=text_of(info.get("directory")) or self._worktree(tree.project),
            created_ms=created_ms,
            updated_ms=max(moment_of(time.get("updated")) or created_ms, created_ms),
            fingerprint=f"tree:{_state(file)}:{_state_below(directory)}:{text_of(revert.get('messageID')) or ''}",
            title=text_of(info.get("title")),
            archived_ms=moment_of(time.get("archived")),
            parent_source_id=text_of(info.get("parentID")),
            repository=tree.project,
            version=text_of(info.get("version")),
        )

    def _worktree(self, project: str | None) -> str | None:
        if project is None:
            return None
        try:
            return text_of(_read(os.path.join(self.path, "project", f"{project}.json")).get("worktree"))
        except (OSError, UnreadableError):
            return None

    def items(self, session: ForeignSession, transcript: Transcript) -> Iterator[Item]:
        tree = self._places[session.source_id]
        messages = self._ordered(tree, session.source_id, transcript.losses)
        cut = self._cut(tree, session, messages)
        yield from items_of(
            self._messages(tree, session.source_id, messages, transcript.losses), cut, transcript
        )

    def _ordered(
        self, tree: _Tree, session_id: str, losses: Losses
    ) -> list[tuple[int, str, str, str | None]]:
        """(creation time, message id, file, message that it is the summary for) of every message, in their order."""
        found: list[tuple[int, str, str, str | None]] = []
        for message_id, file in _json_files(os.path.join(tree.messages, session_id)):
            try:
                message = _read(file)
            except (OSError, UnreadableError):
                losses.count(lost.UNREADABLE)
                continue
            at_ms = moment_of(object_of(message.get("time")).get("created")) or 0
            is_summary = message.get("role") == "assistant" and is_finished_summary(message)
            found.append((at_ms, message_id, file, text_of(message.get("parentID")) if is_summary else None))
        return sorted(found)

    def _cut(
        self, tree: _Tree, session: ForeignSession, messages: list[tuple[int, str, str, str | None]]
    ) -> Cut:
        reverted = session.fingerprint.rpartition(":")[2] or None
        starts_at = next((parent for *_, parent in reversed(messages) if parent is not None), None)
        if starts_at is not None:
            parts = _parts(tree.parts(session.source_id, starts_at), Losses())
            starts_at = tail_start(parts) or starts_at
        return Cut(starts_at=starts_at, reverted_from=reverted)

    def _messages(
        self,
        tree: _Tree,
        session_id: str,
        messages: list[tuple[int, str, str, str | None]],
        losses: Losses,
    ) -> Iterator[tuple[str, int, dict[str, Any], Parts]]:
        for at_ms, message_id, file, _ in messages:
            try:
                message = _read(file)
            except (OSError, UnreadableError):
                losses.count(lost.UNREADABLE)
                continue
            yield message_id, at_ms, message, _parts(tree.parts(session_id, message_id), losses)


def _parts(directory: str, losses: Losses) -> Parts:
    for part_id, file in _json_files(directory):
        try:
            yield part_id, _read(file)
        except (OSError, UnreadableError):
            losses.count(lost.UNREADABLE)


def _read(path: str) -> dict[str, Any]:
    """The object that a file holds.  Raises: OSError, UnreadableError."""
    with open(open_regular(path), "rb") as file:
        return read_object(file.read(MAX_JSON_BYTES + 1))


def _names(directory: str) -> list[str]:
    """The directories in a directory, by name; links are none."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _json_files(directory: str) -> list[tuple[str, str]]:
    """(name without its ending, path) of the JSON files in a directory, by name."""
    try:
        with os.scandir(directory) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if entry.name.endswith(".json") and entry.is_file(follow_symlinks=False)
            )
    except OSError:
        return []
    return [(name.removesuffix(".json"), os.path.join(directory, name)) for name in names]


def _state(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "-"
    return f"{status.st_size}/{status.st_mtime_ns}"


def _state_below(directory: str) -> str:
    """What changes when a message comes or changes: how many there are, and the newest of them."""
    count = newest = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                count += 1
                newest = max(newest, entry.stat(follow_symlinks=False).st_mtime_ns)
    except OSError:
        pass
    return f"{count}/{newest}"
