"""OpenCode's exports: one JSON document with a session and all its messages.

The document is cut into its pieces by brackets and strings alone, on the mapped
file, so that one message is decoded at a time.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from typing import Any

from mcode_exec.importers import losses as lost
from mcode_exec.importers.building import Item, Transcript
from mcode_exec.importers.json_lines import open_lines, state_of
from mcode_exec.importers.losses import Losses
from mcode_exec.importers.opencode_messages import Cut, Parts, is_finished_summary, items_of, tail_start
from mcode_exec.importers.source import Unusable, UnusableSourceError
from mcode_exec.importers.values import (
    MAX_JSON_BYTES,
    UnreadableError,
    list_of,
    moment_of,
    object_of,
    read_object,
    text_of,
)
from mcode_exec.records.imported import ForeignSession

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


class OpenCodeExport:
    """One exported session."""

    kind = "opencode export"

    def __init__(self, path: str) -> None:
        """Raises: UnusableSourceError."""
        self.path = path
        self._state = state_of(path)
        with open_lines(path) as file:
            try:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (ValueError, OSError) as error:
                raise UnusableSourceError(f"{path} cannot be read: {error}") from error
        #: (start, end) of `info`, and of each message
        self._info: tuple[int, int] | None = None
        self._messages: list[tuple[int, int]] = []
        self._split()
        if self._info is None:
            self.close()
            raise UnusableSourceError(f"{path} is no export of OpenCode: `info` is not there")

    def close(self) -> None:
        self._data.close()

    def _split(self) -> None:
        """Find the pieces: values at depth 1 by their key, elements of `messages` at depth 2."""
        depth, start, key = 0, 0, b""
        for token in _TOKEN.finditer(self._data):
            mark = token[0]
            if mark[:1] == b'"':
                if depth == 1:
                    key = mark
                continue
            if mark in b"{[":
                depth += 1
                if (depth == 2 and key == b'"info"') or (depth == 3 and key == b'"messages"'):
                    start = token.start()
                continue
            if depth == 2 and key == b'"info"' and self._info is None:
                self._info = (start, token.end())
            elif depth == 3 and key == b'"messages"':
                self._messages.append((start, token.end()))
            depth -= 1

    def _object(self, place: tuple[int, int]) -> dict[str, Any]:
        start, end = place
        if end - start > MAX_JSON_BYTES:
            raise UnreadableError("it is too long")
        return read_object(self._data[start:end])

    def sessions(self) -> Iterator[ForeignSession | Unusable]:
        assert self._info is not None
        try:
            info = self._object(self._info)
        except UnreadableError as error:
            raise UnusableSourceError(f"{self.path} is no export of OpenCode: {error}") from error
        source_id = text_of(info.get("id"))
        if source_id is None:
            yield Unusable(
                origin="opencode", source_id="?", source=self.path, why="it does not say which session it is"
            )
            return
        time = object_of(info.get("time"))
        created_ms = moment_of(time.get("created")) or 0
        self._reverted = text_of(object_of(info.get("revert")).get("messageID"))
        yield ForeignSession(
            origin="opencode",
            source_id=source_id,
            source=self.path,
            workspace=text_of(info.get("directory")),
            created_ms=created_ms,
            updated_ms=max(moment_of(time.get("updated")) or created_ms, created_ms),
            fingerprint=f"export:{self._state}",
            title=text_of(info.get("title")),
            archived_ms=moment_of(time.get("archived")),
            parent_source_id=text_of(info.get("parentID")),
            repository=text_of(info.get("projectID")),
            version=text_of(info.get("version")),
        )

    def items(self, session: ForeignSession, transcript: Transcript) -> Iterator[Item]:
        starts_at: str | None = None
        for _, _, message, _ in self._read(Losses()):
            if message.get("role") == "assistant" and is_finished_summary(message):
                starts_at = text_of(message.get("parentID")) or starts_at
        if starts_at is not None:
            found = next((parts for one, _, _, parts in self._read(Losses()) if one == starts_at), ())
            starts_at = tail_start(found) or starts_at
        cut = Cut(starts_at=starts_at, reverted_from=self._reverted)
        yield from items_of(self._read(transcript.losses), cut, transcript)

    def _read(self, losses: Losses) -> Iterator[tuple[str, int, dict[str, Any], Parts]]:
        for number, place in enumerate(self._messages):
            try:
                whole = self._object(place)
            except UnreadableError:
                losses.count(lost.UNREADABLE)
                continue
            message = object_of(whole.get("info"))
            message_id = text_of(message.get("id")) or f"message {number}"
            at_ms = moment_of(object_of(message.get("time")).get("created")) or 0
            parts = [
                (text_of(part.get("id")) or f"{message_id}/{at}", part)
                for at, part in enumerate(map(object_of, list_of(whole.get("parts"))))
            ]
            yield message_id, at_ms, message, parts
