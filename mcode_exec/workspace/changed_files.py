"""From two tree snapshots to the changes that are kept: each with its contents, its lines counted, within bounds.

What lies beyond a bound is not dropped in silence: more files than are kept are
counted, a content that is not kept is one whose digest alone is known, lines that
were not counted are None.  Blocking; run on a thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Set

from msgspec import Struct

from mcode_exec.records.change import FileChange, FileState
from mcode_exec.workspace.comparing import Pair, Sides, differences
from mcode_exec.workspace.contents import Contents, digest_of
from mcode_exec.workspace.line_matching import count_changes, is_binary
from mcode_exec.workspace.snapshot import Seen, Snapshot, state_of

#: of more files a turn's changes are only counted
MAX_CHANGES = 5000
#: contents that are kept of one turn's changes
MAX_KEPT_BYTES = 64 * 1024 * 1024
#: lines are counted for so long
_COUNTING_S = 1.0


class Changed(Struct, frozen=True):
    """What differs, with what is known of it."""

    changes: list[FileChange]
    #: by digest
    contents: dict[bytes, bytes]
    #: how many more files differ
    left_out: int


def with_touched(before: Snapshot, touched: Iterable[tuple[bytes, Seen | None]]) -> Snapshot:
    """`before` with what was seen of some files earlier; None: it was not there."""
    files = {seen.path: seen for seen in before.files}
    for path, seen in touched:
        if seen is None:
            files.pop(path, None)
        else:
            files[path] = seen
    return Snapshot(
        before.version, before.taken_ns, list(files.values()), before.repositories, before.ignores_mode
    )


def changed_files(
    workspace: str, contents: Contents, before: Snapshot, after: Snapshot, *, by_tool: Set[bytes]
) -> Changed:
    """What became of the workspace.  `by_tool`: paths that the turn's own edits named."""
    pairs = differences(before, after, looked_at=by_tool)
    sides = Sides(workspace, contents, {*before.repositories, *after.repositories})
    sides.fetch(pairs, MAX_KEPT_BYTES)
    maker = _Maker(sides, by_tool, ignores_mode=after.ignores_mode)
    changes: list[FileChange] = []
    left_out = 0
    for pair in pairs:
        if len(changes) == MAX_CHANGES and (pair.before is None or pair.after is None):
            left_out += 1
        elif (change := maker.make(pair)) is not None:
            if len(changes) < MAX_CHANGES:
                changes.append(change)
            else:
                left_out += 1
    return Changed(changes, maker.contents, left_out)


class _Maker:
    """Makes changes of pairs and gathers their contents."""

    def __init__(self, sides: Sides, by_tool: Set[bytes], *, ignores_mode: bool) -> None:
        self._sides = sides
        self._by_tool = by_tool
        self._ignores_mode = ignores_mode
        self._left_bytes = MAX_KEPT_BYTES
        self._until_s = time.monotonic() + _COUNTING_S
        self.contents: dict[bytes, bytes] = {}

    def make(self, pair: Pair) -> FileChange | None:
        """None where the two are the same after all: written anew with what they held."""
        old = None if pair.before is None else self._sides.content(pair.before)
        new = None if pair.after is None else self._sides.content(pair.after)
        before, after = _state(pair.before, old), _state(pair.after, new)
        if before is not None and after is not None and self._is_same(before, after):
            return None
        binary = any(data is not None and is_binary(data) for data in (old, new))
        additions, deletions = None, None
        if not binary:
            additions, deletions = self._counted(pair, old, new)
        self._keep(before, old)
        self._keep(after, new)
        return FileChange(
            path=pair.path,
            before=before,
            after=after,
            additions=additions,
            deletions=deletions,
            is_binary=binary,
            is_by_tool=pair.path in self._by_tool,
        )

    def _is_same(self, before: FileState, after: FileState) -> bool:
        return (
            before.digest is not None
            and before.digest == after.digest
            and before.is_link == after.is_link
            and (self._ignores_mode or before.is_executable == after.is_executable)
        )

    def _counted(self, pair: Pair, old: bytes | None, new: bytes | None) -> tuple[int | None, int | None]:
        is_known = (old is not None or pair.before is None) and (new is not None or pair.after is None)
        if not is_known or time.monotonic() > self._until_s:
            return None, None
        return count_changes(old or b"", new or b"")

    def _keep(self, state: FileState | None, data: bytes | None) -> None:
        if state is None or data is None or state.digest is None or state.digest in self.contents:
            return
        if len(data) <= self._left_bytes:
            self._left_bytes -= len(data)
            self.contents[state.digest] = data


def _state(seen: Seen | None, data: bytes | None) -> FileState | None:
    if seen is None:
        return None
    state = state_of(seen)
    if data is None or state.digest is not None:
        return state
    return FileState(
        is_link=state.is_link,
        permissions=state.permissions,
        size_bytes=len(data),
        digest=digest_of(data),
    )
