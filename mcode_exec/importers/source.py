"""What every kind of source offers: its sessions, and what each of them says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct

from mcode_exec.importers.building import Item, Transcript
from mcode_exec.records.imported import ForeignSession


class UnusableSourceError(Exception):
    """A file, directory or database that cannot be read as what it seems to be; the message says why."""


class UnusableSessionError(Exception):
    """One session that cannot be read; others can."""


class Unusable(Struct, frozen=True, kw_only=True):
    """A session of which not even its description can be read."""

    origin: str
    source_id: str
    source: str
    why: str


class Source(Protocol):
    """Sessions of one program at one place."""

    #: for people: `opencode.db`, `codex rollout`, …
    kind: str
    path: str

    def sessions(self) -> Iterator[ForeignSession | Unusable]:
        """Every session, those that delegate before those that were delegated.  Raises: UnusableSourceError."""

    def items(self, session: ForeignSession, transcript: Transcript) -> Iterator[Item]:
        """What a session says, made by `transcript`.  Raises: UnusableSessionError."""

    def close(self) -> None: ...


class UnreadableSource:
    """A file among others that cannot be read: one session that failed."""

    kind = "unreadable"

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self._why = why

    def sessions(self) -> Iterator[ForeignSession | Unusable]:
        name = os.path.basename(self.path)
        yield Unusable(origin="unknown", source_id=name, source=self.path, why=self._why)

    def items(self, session: ForeignSession, transcript: Transcript) -> Iterator[Item]:
        raise UnusableSessionError(self._why)

    def close(self) -> None:
        pass
