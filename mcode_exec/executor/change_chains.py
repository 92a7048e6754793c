"""Changes of several turns taken together: for each path what stood there before the first and after the last.

Pure: no store, no disk.  A chain whose links do not fit together was changed in
between by something else than these turns, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from mcode_exec.records.change import FileChange, FileState, TurnChanges


class Chain(Struct, frozen=True, kw_only=True):
    """One path of one workspace."""

    workspace: str
    path: bytes
    before: FileState | None
    after: FileState | None
    #: the turns that changed it, oldest first, each with its change
    links: tuple[tuple[str, FileChange], ...]
    #: something else changed it between two of them
    is_broken: bool
    ignores_mode: bool

    @property
    def is_shared(self) -> bool:
        return any(change.is_shared for _, change in self.links)

    @property
    def is_nothing(self) -> bool:
        """Whether it is, after all of them, what it was before."""
        return is_same(self.before, self.after, ignores_mode=self.ignores_mode)


def is_same(one: FileState | None, other: FileState | None, *, ignores_mode: bool) -> bool:
    """Whether two states are known to be the same."""
    if one is None or other is None:
        return one is other
    return (
        one.digest is not None
        and one.digest == other.digest
        and one.is_link == other.is_link
        and (ignores_mode or one.is_executable == other.is_executable)
    )


def chains(turns: Iterable[TurnChanges]) -> list[Chain]:
    """The chains of turns that are given oldest first, by workspace and path."""
    links: dict[tuple[str, bytes], list[tuple[TurnChanges, FileChange]]] = {}
    for turn in turns:
        for change in turn.changes:
            links.setdefault((turn.workspace, change.path), []).append((turn, change))
    return [
        _chain(workspace, path, found) for (workspace, path), found in sorted(links.items(), key=_by_place)
    ]


def _by_place(item: tuple[tuple[str, bytes], object]) -> tuple[str, bytes]:
    return item[0]


def _chain(workspace: str, path: bytes, found: Sequence[tuple[TurnChanges, FileChange]]) -> Chain:
    ignores_mode = any(turn.ignores_mode for turn, _ in found)
    changes = [change for _, change in found]
    fits = (is_same(one.after, other.before, ignores_mode=ignores_mode) for one, other in pairwise(changes))
    return Chain(
        workspace=workspace,
        path=path,
        before=changes[0].before,
        after=changes[-1].after,
        links=tuple((turn.turn_id, change) for turn, change in found),
        is_broken=not all(fits),
        ignores_mode=ignores_mode,
    )
