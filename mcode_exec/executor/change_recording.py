"""Recording which files a turn changes, from before its first call that may change any to its end.

A turn without such calls costs nothing and has no row.  The row comes first, and
says that nothing is known; only a turn that comes to its end fills it.  Looking
takes place on a thread of its own, within limits; nothing of it fails a turn.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from mcode_exec import paths
from mcode_exec.errors import LeaseLostError, McodeError
from mcode_exec.faults import fault
from mcode_exec.output.escape import valid
from mcode_exec.records.change import FileChange, TurnChanges
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.result import FileChanges
from mcode_exec.records.session import Session
from mcode_exec.sessions import changed_contents
from mcode_exec.store import change_rows, turn_rows
from mcode_exec.store.database import Patience

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.workspace.programs import Stop
    from mcode_exec.workspace.watching import Found, Watched

T = TypeVar("T")

#: how long a look may hold up the first command, and how long the end of a turn; of one that was stopped less
BEFORE_S = 10.0
AFTER_S = 10.0
AFTER_STOPPED_S = 1.5
#: what is allowed beyond the limits that the looks keep themselves
_GRACE_S = 5.0
#: tools that change no file; of any other everything is expected
_HARMLESS = frozenset({"read", "glob", "grep", "list", "todo_write"})
_FILE_TOOLS = frozenset({"write", "edit"})
#: paths that a result names
_MAX_PATHS = 1000
_NOTHING = FileChanges(files=0, additions=0, deletions=0)


class ChangeRecorder:
    """One turn's."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        session: Session,
        workspace: str,
        turn_id: str,
        lease_token: str,
        patience: Patience,
        own_paths: tuple[str, ...],
    ) -> None:
        """`own_paths`: files and directories that mcode writes, and whose changes are not the turn's."""
        self._runtime = runtime
        self._session = session
        self._workspace = workspace
        self._turn_id = turn_id
        self._token = lease_token
        self._patience = patience
        self._own_paths = own_paths
        self._watched: Watched | None = None
        #: a look has not come back: a file system that does not answer
        self._is_hung = False
        self._row: TurnChanges | None = None

    async def before(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Look at what a call may change, before it runs.

        Raises: StoreBusyError, StoreFailedError when it cannot be noted that changes are to come.
        """
        if tool in _HARMLESS:
            return
        if self._watched is None:
            self._watched = await self._begin()
        if not self._is_hung:
            try:
                async with asyncio.timeout(BEFORE_S + _GRACE_S):
                    await self._look(self._watched, tool, arguments)
            except TimeoutError:
                self._is_hung = True
        fault("after-snapshot")

    async def _look(self, watched: Watched, tool: str, arguments: Mapping[str, Any]) -> None:
        if tool not in _FILE_TOOLS:
            await on_thread(lambda stop: watched.before_command(BEFORE_S, stop))
            return
        path = _absolute(arguments.get("file_path"), self._workspace)
        if path is not None:
            await on_thread(lambda stop: watched.before_edit(path, stop))

    async def _begin(self) -> Watched:
        from mcode_exec.workspace.watching import Watched

        row = TurnChanges(
            turn_id=self._turn_id,
            session_id=self._session.id,
            workspace=self._workspace,
            begun_ms=self._runtime.clock.now_ms(),
        )

        def transaction() -> None:
            if turn_rows.holds_lock(self._session.id, self._token):
                change_rows.put_changes(row)

        await self._runtime.store.write(transaction, self._patience)
        self._row = row
        fault("after-changes-begun")
        return Watched(self._workspace, paths.changes_dir(self._runtime.data), self._own_paths)

    async def finish(self, *, is_stopped: bool) -> FileChanges:
        """What the turn has changed, written down.  May be asked again, when the turn has gone on."""
        watched, row = self._watched, self._row
        if watched is None or row is None:
            return _NOTHING
        limit_s = AFTER_STOPPED_S if is_stopped else AFTER_S
        if self._is_hung:
            return _unknown("the workspace does not answer")
        try:
            async with asyncio.timeout(limit_s + (0.5 if is_stopped else _GRACE_S)):
                found = await on_thread(lambda stop: watched.compare(limit_s, stop))
        except TimeoutError:
            return _unknown(f"looking at the workspace takes longer than {limit_s:g} s")
        except OSError as error:
            return _unknown(f"the workspace cannot be looked at: {error.strerror or error}")
        fault("after-second-snapshot")
        ended = structs.replace(
            row,
            ended_ms=self._runtime.clock.now_ms(),
            changes=found.changes,
            gap=found.gap,
            reason=found.reason,
            ignores_mode=found.ignores_mode,
        )
        try:
            ended = await self._attributed(ended)
            await self._keep(ended, found)
        except McodeError:
            pass  # the result tells it all the same; what is kept says that nothing is known
        return file_changes(ended)

    async def _attributed(self, ended: TurnChanges) -> TurnChanges:
        """With what other turns did meanwhile taken out, or marked where it is not known whose it is."""
        if not any(not change.is_by_tool for change in ended.changes):
            return ended
        theirs: set[bytes] = set()
        is_shared = False

        def look() -> None:
            nonlocal is_shared
            for other in change_rows.beside(ended.turn_id, ended.begun_ms):
                if not _overlap(other.workspace, ended.workspace):
                    continue
                is_shared = True
                told = change_rows.find_changes(other.turn_id) if other.is_told else None
                if told is not None and told.workspace == ended.workspace:
                    theirs.update(_edits_of(told, ended))

        await self._runtime.store.read(look)
        if not is_shared:
            return ended
        changes = tuple(
            change if change.is_by_tool else structs.replace(change, is_shared=True)
            for change in ended.changes
            if change.is_by_tool or change.path not in theirs
        )
        return structs.replace(ended, changes=changes)

    async def _keep(self, ended: TurnChanges, found: Found) -> None:
        runtime, session = self._runtime, self._session
        data = await on_thread(lambda _: changed_contents.packed(found.contents))

        def check() -> None:
            if not turn_rows.holds_lock(session.id, self._token):
                raise LeaseLostError

        def write_files() -> None:
            try:
                changed_contents.write_pack(
                    runtime.sessions_dir, session.history_relative_dir, ended.turn_id, data
                )
            except OSError:
                pass  # a full disk: which files changed is known, and what they held is not

        await runtime.store.guarded(check, write_files, self._patience)
        fault("after-pack")

        def write_rows() -> None:
            check()
            change_rows.put_changes(ended)

        await runtime.store.write(write_rows, self._patience)
        fault("after-changes")


def file_changes(ended: TurnChanges) -> FileChanges:
    """What a result says of a turn's changes."""
    if ended.gap == "all":
        return _unknown(ended.reason)
    return FileChanges(
        files=len(ended.changes),
        additions=ended.additions,
        deletions=ended.deletions,
        paths=tuple(shown_path(change.path) for change in ended.changes[:_MAX_PATHS]),
        shared=any(change.is_shared for change in ended.changes),
        gap=ended.gap,
        reason=ended.reason,
    )


def shown_path(path: bytes) -> str:
    """A path as text; bytes that are none become U+FFFD."""
    return valid(path.decode("utf-8", "replace"))


def own_paths(invocation: Invocation, workspace: str, data: str, temp_dir: str) -> tuple[str, ...]:
    """Absolute paths that mcode itself writes in a run: its own, and the outputs that the command line names."""
    outputs = (
        invocation.events_file,
        invocation.output_file,
        invocation.result_file,
        invocation.session_id_file,
        invocation.record,
        invocation.diagnostics_dir,
    )
    named = (os.path.realpath(path) for path in outputs if path and path != "-")
    return (*paths.own_files(data, but=workspace), temp_dir, *named)


def _unknown(reason: str | None) -> FileChanges:
    return FileChanges(files=None, additions=None, deletions=None, gap="all", reason=reason)


def _edits_of(told: TurnChanges, ours: TurnChanges) -> set[bytes]:
    """Paths that another turn's edits made what they are."""
    mine: dict[bytes, FileChange] = {change.path: change for change in ours.changes}
    return {
        change.path
        for change in told.changes
        if change.is_by_tool and change.path in mine and change.after == mine[change.path].after
    }


def _overlap(one: str, other: str) -> bool:
    """Whether two workspaces have files in common."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _absolute(path: Any, workspace: str) -> str | None:
    from mcode_exec.tools.failure import ToolFailure
    from mcode_exec.tools.paths import absolute

    try:
        return absolute(path, workspace) if isinstance(path, str) else None
    except ToolFailure:
        return None  # the tool says so itself


async def on_thread(work: Callable[[Stop], T]) -> T:
    """Run blocking work on a thread of its own.

    Cancellation: the work is told to stop, and left alone.
    """
    from mcode_exec.tools.threads import in_thread
    from mcode_exec.workspace.programs import Stop

    stop = Stop()
    try:
        return await in_thread(lambda: work(stop))
    except BaseException:
        stop.set()
        raise
