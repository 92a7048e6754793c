"""Taking back what turns did to files, and doing it again.

The caller holds the session (turns/maintenance.py), so that no turn of it runs.
All or nothing, as long as nobody writes in the same moment: what is not as the
turns left it is a conflict, and one that force does not lift refuses everything.
With force what can be put back is, and the rest is told.  A process that dies in
between has done a part of it: done again, it goes on, and finds no conflict in what
it has put back.  workspace/replacing.py has the rules of the disk.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec import paths
from mcode_exec.executor.change_chains import Chain, chains
from mcode_exec.executor.change_packs import TurnPacks
from mcode_exec.executor.change_recording import on_thread, shown_path
from mcode_exec.faults import fault
from mcode_exec.records.change import TurnChanges
from mcode_exec.records.session import Session
from mcode_exec.store import change_rows

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.workspace.replacing import Conflict, Wanted

_NOT_KEPT = "what this turn changed is not known"
_BETWEEN = "something else changed it between these turns"
_SHARED = "another turn worked there at the same time, and may have made this change"


class FileConflict(Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a file cannot be put back, or a turn's files cannot."""

    #: relative to the workspace; None: it is about the whole of a turn or workspace
    path: str | None
    reason: str
    turn_ids: tuple[str, ...]
    #: whether force does it all the same
    can_force: bool


class Replaced(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of it."""

    #: False: it was refused, and no file was touched
    is_done: bool
    #: files that are now as they are to be, relative to their workspace
    paths: tuple[str, ...] = ()
    #: why it was refused; where it was done, what was left as it was
    conflicts: tuple[FileConflict, ...] = ()


async def check_revert(
    runtime: Runtime, session: Session, turn_ids: Sequence[str]
) -> tuple[FileConflict, ...]:
    """What stands in the way of taking back what these turns changed; nothing is touched."""
    plan = await _planned(runtime, session, turn_ids, reverts=True)
    return await on_thread(lambda _: plan.conflicts())


async def revert_turns(
    runtime: Runtime, session: Session, turn_ids: Sequence[str], *, force: bool = False
) -> Replaced:
    """Put the files that these turns changed into the state from before them.

    Turns whose changes are taken back already, or that changed nothing, do not count.
    Raises: StoreBusyError, StoreFailedError.
    """
    return await _replace(runtime, session, turn_ids, reverts=True, force=force)


async def reapply_turns(
    runtime: Runtime, session: Session, turn_ids: Sequence[str], *, force: bool = False
) -> Replaced:
    """Put the files that these turns changed into the state that they left, where that was taken back.

    Raises: StoreBusyError, StoreFailedError.
    """
    return await _replace(runtime, session, turn_ids, reverts=False, force=force)


async def _replace(
    runtime: Runtime, session: Session, turn_ids: Sequence[str], *, reverts: bool, force: bool
) -> Replaced:
    plan = await _planned(runtime, session, turn_ids, reverts=reverts)
    conflicts = await on_thread(lambda _: plan.conflicts())
    if conflicts and not force:
        return Replaced(is_done=False, conflicts=conflicts)
    done, kept = await on_thread(lambda _: plan.replace(force=force))
    fault("after-replace")
    known = [turn.turn_id for turn in plan.turns]
    at_ms = runtime.clock.now_ms() if reverts else None
    await runtime.store.write(lambda: change_rows.set_reverted(known, at_ms))
    return Replaced(is_done=True, paths=done, conflicts=(*plan.unknown, *kept))


async def _planned(runtime: Runtime, session: Session, turn_ids: Sequence[str], *, reverts: bool) -> _Plan:
    def read() -> list[TurnChanges]:
        found = (change_rows.find_changes(turn_id) for turn_id in turn_ids)
        return [turn for turn in found if turn is not None and turn.session_id == session.id]

    def read_missing() -> list[str]:
        """Turns whose row is not kept any more: no row at all is a turn that changed nothing."""
        return change_rows.without_row(turn_ids, change_rows.horizon_ms(runtime.clock.now_ms()))

    turns = await runtime.store.read(read)
    turns.sort(key=lambda turn: (turn.begun_ms, turn.turn_id))
    missing = await runtime.store.read(read_missing)
    packs = TurnPacks(runtime.sessions_dir, session.history_relative_dir, [turn.turn_id for turn in turns])
    worktrees = paths.worktrees_dir(runtime.data)
    return _Plan(session, turns, missing, packs, worktrees=worktrees, reverts=reverts)


class _Plan:
    """What is to be put where.  Blocking."""

    def __init__(
        self,
        session: Session,
        turns: list[TurnChanges],
        missing: Sequence[str],
        packs: TurnPacks,
        *,
        worktrees: str,
        reverts: bool,
    ) -> None:
        self.turns = [turn for turn in turns if (turn.reverted_ms is None) == reverts]
        self._reverts = reverts
        self._packs = packs
        self.unknown = tuple(
            FileConflict(path=None, reason=reason, turn_ids=(turn_id,), can_force=True)
            for turn_id, reason in (
                *((turn_id, f"{_NOT_KEPT}: it is kept for 7 days") for turn_id in missing),
                *(
                    (turn.turn_id, turn.reason or f"{_NOT_KEPT}: its process ended before it did")
                    for turn in self.turns
                    if turn.gap != "none"
                ),
            )
        )
        self._by_workspace: dict[str, list[Chain]] = {}
        for chain in chains(self.turns):
            # a workspace may have been moved; a worktree that is gone is nowhere else
            is_moved = not os.path.isdir(chain.workspace) and not paths.is_inside(chain.workspace, worktrees)
            place = session.workspace if is_moved else chain.workspace
            self._by_workspace.setdefault(place, []).append(chain)

    def conflicts(self) -> tuple[FileConflict, ...]:
        from mcode_exec.workspace import replacing

        found: list[FileConflict] = list(self.unknown)
        for workspace, group in self._by_workspace.items():
            odd = {chain.path: _BETWEEN if chain.is_broken else _SHARED for chain in group if _is_odd(chain)}
            try:
                known = replacing.check(
                    workspace, self._wanted(group), self._packs.has, ignores_mode=_ignores_mode(group)
                )
            except OSError as error:
                found.append(_no_workspace(workspace, group, error))
                continue
            found += _told(known, group)
            named = {one.path for one in known}
            found += (
                FileConflict(path=shown_path(path), reason=why, turn_ids=_turns(group, path), can_force=True)
                for path, why in odd.items()
                if path not in named
            )
        return tuple(found)

    def replace(self, *, force: bool) -> tuple[tuple[str, ...], tuple[FileConflict, ...]]:
        """The paths that are put into their state, and what was not."""
        from mcode_exec.workspace import replacing

        done: list[str] = []
        kept: list[FileConflict] = []
        for workspace, group in self._by_workspace.items():
            try:
                outcome = replacing.replace(
                    workspace,
                    self._wanted(group),
                    self._packs.get,
                    ignores_mode=_ignores_mode(group),
                    force=force,
                )
            except OSError as error:
                kept.append(_no_workspace(workspace, group, error))
                continue
            done += map(shown_path, outcome.done)
            kept += _told(outcome.kept, group)
        return tuple(done), tuple(kept)

    def _wanted(self, group: list[Chain]) -> list[Wanted]:
        from mcode_exec.workspace.replacing import Wanted

        return [
            Wanted(chain.path, chain.after, chain.before)
            if self._reverts
            else Wanted(chain.path, chain.before, chain.after)
            for chain in group
        ]


def _is_odd(chain: Chain) -> bool:
    return chain.is_broken or chain.is_shared


def _ignores_mode(group: list[Chain]) -> bool:
    return any(chain.ignores_mode for chain in group)


def _turns(group: list[Chain], path: bytes) -> tuple[str, ...]:
    return tuple(turn_id for chain in group if chain.path == path for turn_id, _ in chain.links)


def _told(conflicts: Sequence[Conflict], group: list[Chain]) -> list[FileConflict]:
    return [
        FileConflict(
            path=shown_path(one.path),
            reason=one.reason,
            turn_ids=_turns(group, one.path),
            can_force=one.can_force,
        )
        for one in conflicts
    ]


def _no_workspace(workspace: str, group: list[Chain], error: OSError) -> FileConflict:
    turn_ids = dict.fromkeys(turn_id for chain in group for turn_id, _ in chain.links)
    return FileConflict(
        path=None,
        reason=f"the workspace {workspace} cannot be opened: {error.strerror or error}",
        turn_ids=tuple(turn_ids),
        can_force=False,
    )
