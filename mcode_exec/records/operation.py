"""Work on a session that takes several steps, and the manifest that says how far that has come.

A session that begins with another one's history, or in a worktree of its own,
is more than one row: files, rows and a checkout must all be there before anybody
sees it.  A rewind changes a file and the rows that are made of it.  The manifest
stands in the store from the first step to the last, so that whoever comes after
a death knows what there is, and what to do about it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mcode_exec.records.session import Visibility

#: the newest step that is done.  `begun`: row, manifest and lock are there · `placed`: the worktree · `published`:
#: the canonical history · `copied`: attachments and display messages; nobody holds it any more · `held`: a rewind
#: that is done, and given back unless the turn it was done for is admitted
Phase = Literal["begun", "placed", "published", "copied", "held"]


class Inheritance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of another session's history is taken along."""

    source_id: str
    #: id of the last record that is taken
    until: str
    #: calls of that record's message which had no result, and never will, get one that says so
    completes: bool = False
    #: what mcode says behind it, for the model
    notes: tuple[str, ...] = ()


class WorktreePlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worktree that is to be made."""

    #: root of the repository, or of another worktree of it
    repository: str
    path: str
    branch: str
    #: what HEAD stood at
    commit: str
    below: str | None = None


class RewindPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session's history that goes back to what it was before a message, or forward again."""

    #: first message that is taken back, or that comes back
    message_id: str
    #: of the file that is made
    generation: int
    #: name of the archived generation below `snapshots/`
    snapshot: str
    is_undo: bool = False
    #: name of the generation that holds the message, where that is one from before a compaction
    behind: str | None = None
    #: how many records of that one stand before the message
    kept: int | None = None


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is being made or changed; everything that the steps need is in it."""

    at_ms: int
    #: what the session is once it is whole
    visibility: Visibility = "visible"
    inheritance: Inheritance | None = None
    worktree: WorktreePlan | None = None
    #: the session is there already, and only this is done to it
    rewind: RewindPlan | None = None
    #: id of the turn that the rewind is done for, whose admission makes it final; without that it is given back
    held_for: str | None = None
    #: a session that was asked for itself is brought to its end after a death; one that was made for a turn
    #: goes again, unless the turn was admitted
    is_for_itself: bool = False


class Operation(Struct, frozen=True, kw_only=True):
    """One session that is being made, or changed in steps."""

    session_id: str
    #: token of the process that is at it
    owner: str
    phase: Phase
    manifest: Manifest
