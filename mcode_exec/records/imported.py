"""Sessions of other programs as records: what they say of themselves, and what became of them here."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mcode_exec.records.session import SessionStatus

#: the program that made a session
Origin = Literal["opencode", "codex", "claude-code", "minimax"]

#: `imported`: it is new here; `updated`: what was new in it was added; `unchanged`; `changed-here`: it went on
#: here and elsewhere, and stays as it is here; `deleted-here`: it has a tombstone; `empty`: nothing was said in it;
#: `failed`: it cannot be read
ImportOutcome = Literal["imported", "updated", "unchanged", "changed-here", "deleted-here", "empty", "failed"]


class ForeignSession(Struct, frozen=True, kw_only=True):
    """One session as its source describes it; nothing in it is believed that could be derived."""

    origin: Origin
    #: what its program calls it
    source_id: str
    #: the file, directory or database that it is in
    source: str
    #: as said, whether it is there or not; None: nothing is said
    workspace: str | None
    created_ms: int
    updated_ms: int
    #: changes when the session does
    fingerprint: str
    title: str | None = None
    archived_ms: int | None = None
    #: session that this one was delegated by
    parent_source_id: str | None = None
    #: root commit of the git repository, where the source knows it
    repository: str | None = None
    version: str | None = None
    status: SessionStatus = "idle"


class ImportRow(Struct, frozen=True, kw_only=True):
    """Where an imported session came from, and how much of it was taken."""

    session_id: str
    origin: str
    source_id: str
    source: str
    source_version: str | None
    fingerprint: str
    state: Literal["writing", "done"]
    records: int
    settled: int
    digest: str
    history_bytes: int
    losses: dict[str, int]
    at_ms: int


class ImportedSession(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one session of another program."""

    origin: str
    source_id: str
    source: str
    outcome: ImportOutcome
    #: the session here; None where there is none
    session_id: str | None = None
    title: str | None = None
    workspace: str | None = None
    #: messages of people and models that it has here now
    messages: int = 0
    #: {what: how often} of what could not be taken along
    losses: dict[str, int] = {}
    #: why it failed, or what is to be known
    detail: str | None = None


class Place(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that can be imported, at a usual place of another program."""

    program: str
    #: for people: `opencode.db`, `codex rollouts`, …
    kind: str
    path: str
    #: None: it cannot be counted
    sessions: int | None
    size_bytes: int
    #: why it cannot be imported
    detail: str | None = None
