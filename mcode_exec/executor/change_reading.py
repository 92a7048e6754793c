"""What `mcode sessions diff` shows: files that turns of a session changed, as rows, and as a patch.

Several turns are taken together: a file that one made and another changed is one
new file.  Turns whose changes are taken back do not count unless they are named.
Secrets are masked, in a patch too, which such a line makes one that does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from mcode_exec.errors import InvocationError, SessionError
from mcode_exec.executor.change_chains import Chain, chains
from mcode_exec.executor.change_packs import TurnPacks
from mcode_exec.executor.change_recording import on_thread, shown_path
from mcode_exec.executor.inspect import opened
from mcode_exec.records.change import FileState, Gap, TurnChanges
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import finding
from mcode_exec.store import change_rows, turn_rows
from mcode_exec.workspace.comparing import renames
from mcode_exec.workspace.line_matching import count_changes, is_binary
from mcode_exec.workspace.patches import Side, file_patch

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

#: turns of one session that are taken together, the newest
MAX_TURNS = 1000
#: of all patches of one answer; what goes beyond is left out, and said
MAX_PATCH_BYTES = 64 * 1024 * 1024

Status = Literal["added", "deleted", "modified", "renamed", "mode", "type"]


class FileRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One file."""

    path: str
    status: Status
    #: what it was called, if it is `renamed`
    old_path: str | None
    #: lines; null: not known, or a binary file
    additions: int | None
    deletions: int | None
    binary: bool
    #: another turn worked in the workspace at the same time, and may have made it
    shared: bool
    #: something else changed it between two of the turns
    changed_between: bool
    #: permission bits in octal; null: no file, or a link
    old_mode: str | None
    new_mode: str | None
    turn_ids: tuple[str, ...]
    workspace: str
    #: in git's form; null where it was not asked for, or what the file held is not known
    patch: str | None


class TurnRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known of one turn."""

    turn_id: str
    workspace: str
    began_ms: int
    ended_ms: int | None
    #: null: not known
    files: int | None
    additions: int | None
    deletions: int | None
    gap: Gap
    reason: str | None
    reverted_ms: int | None


class Diff(Struct, frozen=True, kw_only=True):
    """The answer."""

    session_id: str
    files: list[FileRow]
    turns: list[TurnRow]
    #: all patches, as bytes
    patch: bytes
    #: what is to be said of it, in sentences
    notices: list[str]


async def diff_session(
    data_dir: str | None, env: Mapping[str, str], name: str, *, turn: str | None, with_patch: bool
) -> Diff:
    """What the turns of a session changed, or one of them (by id or unique prefix).

    Raises: SessionError for a turn that is none of the session's, or whose changes are not kept any more.
    """
    redactor = Redactor(secret_values(env))
    async with opened(data_dir, env, reads_only=True) as runtime:
        session = await finding.find_exact(runtime.store, name)
        notices: list[str] = []
        if turn is None:
            turns = await runtime.store.read(lambda: change_rows.changes_of_session(session.id, MAX_TURNS))
            notices += _of_session(session, turns, await _horizon_ms(runtime))
        else:
            turns = [found] if (found := await _named(runtime, session, turn, notices)) is not None else []
        running = await _running(runtime, turns)
        shown = [one for one in turns if turn is not None or one.reverted_ms is None]
        packs = TurnPacks(runtime.sessions_dir, session.history_relative_dir, [one.turn_id for one in shown])
        writer = _Writer(packs, redactor, with_patch=with_patch)
        files = await on_thread(lambda _: writer.rows(chains(shown)))
    rows = [_turn_row(one, one.turn_id in running, redactor) for one in turns]
    notices += (f"turn {row.turn_id}: {row.reason}" for row in rows if row.reason is not None)
    return Diff(
        session_id=session.id,
        files=files,
        turns=rows,
        patch=b"".join(writer.patches),
        notices=notices + writer.notices,
    )


async def turn_patch(runtime: Runtime, session: Session, turn_id: str, redactor: Redactor) -> bytes:
    """What a turn changed as a patch, secrets masked; empty where nothing is, or nothing of it is kept."""
    turn = await runtime.store.read(lambda: change_rows.find_changes(turn_id))
    if turn is None or turn.session_id != session.id:
        return b""
    packs = TurnPacks(runtime.sessions_dir, session.history_relative_dir, [turn_id])
    writer = _Writer(packs, redactor, with_patch=True)
    await on_thread(lambda _: writer.rows(chains([turn])))
    return b"".join(writer.patches)


async def _horizon_ms(runtime: Runtime) -> int:
    return await runtime.store.read(lambda: change_rows.horizon_ms(runtime.clock.now_ms()))


def _of_session(session: Session, turns: Sequence[TurnChanges], horizon_ms: int) -> list[str]:
    found = []
    if session.created_ms < horizon_ms:
        found.append("what turns changed is kept for 7 days; older ones are not among these")
    if len(turns) == MAX_TURNS:
        found.append(f"only the newest {MAX_TURNS:,} turns are shown")
    taken_back = sum(turn.reverted_ms is not None for turn in turns)
    if taken_back:
        found.append(f"{taken_back} turns whose changes are taken back are left out; --turn shows one")
    return found


async def _named(runtime: Runtime, session: Session, name: str, notices: list[str]) -> TurnChanges | None:
    """The changes of a turn that was named; None: it changed nothing."""
    found = await runtime.store.read(lambda: change_rows.turns_named(session.id, name))
    if not found:
        raise SessionError(
            f"session {session.id} has no turn {name!r}; `mcode sessions diff {session.id}` names its turns",
            code="turn_not_found",
        )
    if len(found) > 1 and name not in found:
        raise InvocationError(f"{name!r} begins more than one turn of session {session.id}; give more of it")
    turn_id = name if name in found else found[0]
    turn = await runtime.store.read(lambda: change_rows.find_changes(turn_id))
    if turn is None:
        horizon_ms = await _horizon_ms(runtime)
        if await runtime.store.read(lambda: change_rows.without_row([turn_id], horizon_ms)):
            raise SessionError(
                f"what turn {turn_id} changed is not kept any more; it is kept for 7 days",
                code="changes_not_kept",
            )
        notices.append(f"turn {turn_id} has changed no files")
    return turn


async def _running(runtime: Runtime, turns: Sequence[TurnChanges]) -> set[str]:
    """Those that are still at work."""
    open_turns = [turn.turn_id for turn in turns if turn.ended_ms is None]

    def read() -> set[str]:
        found = (turn_rows.turn_named(turn_id) for turn_id in open_turns)
        return {turn.turn_id for turn in found if turn is not None and not turn.is_settled}

    return await runtime.store.read(read) if open_turns else set()


def _turn_row(turn: TurnChanges, is_running: bool, redactor: Redactor) -> TurnRow:
    reason = turn.reason
    if turn.ended_ms is None:
        reason = "it still runs; what it changed is told at its end"
        if not is_running:
            reason = "its process ended before it did: what it changed is not known"
    is_known = turn.gap != "all"
    return TurnRow(
        turn_id=turn.turn_id,
        workspace=turn.workspace,
        began_ms=turn.begun_ms,
        ended_ms=turn.ended_ms,
        files=len(turn.changes) if is_known else None,
        additions=turn.additions if is_known else None,
        deletions=turn.deletions if is_known else None,
        gap=turn.gap,
        reason=None if reason is None else redactor.text(reason),
        reverted_ms=turn.reverted_ms,
    )


class _Writer:
    """Makes rows of chains, and patches.  Blocking."""

    def __init__(self, packs: TurnPacks, redactor: Redactor, *, with_patch: bool) -> None:
        self._packs = packs
        self._redactor = redactor
        self._with_patch = with_patch
        self._left_bytes = MAX_PATCH_BYTES
        self.patches: list[bytes] = []
        self.notices: list[str] = []

    def rows(self, found: list[Chain]) -> list[FileRow]:
        there = [chain for chain in found if not chain.is_nothing]
        sources = _renamed(there)
        moved = {id(source) for source in sources.values()}
        return [self._row(chain, sources.get(id(chain))) for chain in there if id(chain) not in moved]

    def _row(self, chain: Chain, source: Chain | None) -> FileRow:
        before = chain.before if source is None else source.before
        both = (*(() if source is None else source.links), *chain.links)
        old = self._content(before)
        new = self._content(chain.after)
        additions, deletions, binary = self._lines(chain, source, old, new)
        return FileRow(
            path=self._redactor.text(shown_path(chain.path)),
            status=_status(chain, source),
            old_path=None if source is None else self._redactor.text(shown_path(source.path)),
            additions=additions,
            deletions=deletions,
            binary=binary,
            shared=chain.is_shared,
            changed_between=chain.is_broken,
            old_mode=_mode(before),
            new_mode=_mode(chain.after),
            turn_ids=tuple(dict.fromkeys(turn_id for turn_id, _ in both)),
            workspace=chain.workspace,
            patch=self._patch(chain, source, old, new) if self._with_patch else None,
        )

    def _content(self, state: FileState | None) -> bytes | None:
        return None if state is None or state.digest is None else self._packs.get(state.digest)

    def _lines(
        self, chain: Chain, source: Chain | None, old: bytes | None, new: bytes | None
    ) -> tuple[int | None, int | None, bool]:
        if source is not None:
            binary = new is not None and is_binary(new)
            return (None, None, True) if binary else (0, 0, False)
        if len(chain.links) == 1:
            change = chain.links[0][1]
            return change.additions, change.deletions, change.is_binary
        if any(data is not None and is_binary(data) for data in (old, new)):
            return None, None, True
        if (chain.before is not None and old is None) or (chain.after is not None and new is None):
            return None, None, False
        return *count_changes(old or b"", new or b""), False

    def _patch(self, chain: Chain, source: Chain | None, old: bytes | None, new: bytes | None) -> str | None:
        path = shown_path(chain.path)
        before = chain.before if source is None else source.before
        if (before is not None and old is None) or (chain.after is not None and new is None):
            self.notices.append(f"no patch of {path}: what it held is not kept")
            return None
        old_path = chain.path if source is None else source.path
        left = None if before is None or old is None else Side(old_path, before, old)
        right = None if chain.after is None or new is None else Side(chain.path, chain.after, new)
        data = self._redactor.bytes(file_patch(left, right, ignores_mode=chain.ignores_mode))
        if len(data) > self._left_bytes:
            self.notices.append(f"no patch of {path}: all patches together have at most 64 MiB")
            return None
        self._left_bytes -= len(data)
        self.patches.append(data)
        return data.decode("utf-8", "replace")


def _renamed(there: list[Chain]) -> dict[int, Chain]:
    """For each new file that is an old one under another name, the old one."""
    gone = {chain.path: chain for chain in there if chain.after is None and chain.before is not None}
    made = {chain.path: chain for chain in there if chain.before is None and chain.after is not None}
    pairs = renames(
        {path: _digest(chain.before) for path, chain in gone.items()},
        {path: _digest(chain.after) for path, chain in made.items()},
    )
    return {
        id(made[new]): gone[old] for new, old in pairs.items() if made[new].workspace == gone[old].workspace
    }


def _digest(state: FileState | None) -> bytes | None:
    """What tells a file by its content; a link and a file are two things."""
    return None if state is None or state.is_link else state.digest


def _status(chain: Chain, source: Chain | None) -> Status:
    if source is not None:
        return "renamed"
    before, after = chain.before, chain.after
    if before is None:
        return "added"
    if after is None:
        return "deleted"
    if before.is_link != after.is_link:
        return "type"
    is_same = before.digest is not None and before.digest == after.digest
    return "mode" if is_same else "modified"


def _mode(state: FileState | None) -> str | None:
    return None if state is None or state.is_link else f"{state.permissions:o}"
