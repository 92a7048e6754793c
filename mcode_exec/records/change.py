"""Which files a turn changed, as it is kept: what stood under each path before and after.

Paths are bytes, relative to the workspace: a file name need not be text.  A
side that is None is a file that was not there.  What of a content is not known
(too large, unreadable, gone) is None, never empty.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class FileState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file or symbolic link at one moment."""

    is_link: bool = False
    #: permission bits, 0o644 or the like; of a link none
    permissions: int = 0
    #: of the file, or of the link's target
    size_bytes: int = 0
    #: SHA-256 of the content (of a link: its target); None: not known
    digest: bytes | None = None

    @property
    def is_executable(self) -> bool:
        return bool(self.permissions & 0o100)


class FileChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path that was made, changed or removed."""

    path: bytes
    before: FileState | None = None
    after: FileState | None = None
    #: lines; None: not known, or no lines (see `is_binary`)
    additions: int | None = None
    deletions: int | None = None
    is_binary: bool = False
    #: the turn's own write or edit named it: no other turn's doing
    is_by_tool: bool = False
    #: another turn worked in the workspace at the same time and may have made it
    is_shared: bool = False


#: what the changes of a turn may lack
Gap = Literal["none", "some", "all"]


class TurnChanges(Struct, frozen=True, kw_only=True):
    """What one turn changed in its workspace; there is none of a turn that ran nothing that changes files."""

    turn_id: str
    session_id: str
    #: canonical path
    workspace: str
    begun_ms: int
    #: None: the turn still runs, or its process died, and what it changed is not known
    ended_ms: int | None = None
    #: in the order of their paths
    changes: tuple[FileChange, ...] = ()
    #: `some`: files may have changed that are not among them; `all`: nothing is known
    gap: Gap = "all"
    #: what is not known, and why, in a sentence
    reason: str | None = None
    #: permissions do not count there (`core.fileMode=false`)
    ignores_mode: bool = False
    #: since when its changes are taken back
    reverted_ms: int | None = None

    @property
    def additions(self) -> int | None:
        """Lines; None where those of a file are not known (a binary one has none)."""
        return _sum([change.additions for change in self.changes if not change.is_binary])

    @property
    def deletions(self) -> int | None:
        return _sum([change.deletions for change in self.changes if not change.is_binary])


def _sum(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
