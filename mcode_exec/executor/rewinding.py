"""`mcode sessions rewind` and what a killed one leaves: a session goes back to before a prompt, or forward again.

The file decides: once the new generation stands in the place of the old one the
rewind has happened, and rows are made to agree with it, by this process or by
the next; before that nothing has changed.  What it cost stays in `mcode usage`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from mcode_exec.errors import McodeError, SessionDeletingError, SessionError
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.reverting import FileConflict, Replaced, reapply_turns, revert_turns
from mcode_exec.executor.sharing import refresh_page
from mcode_exec.faults import fault
from mcode_exec.ids import is_message_prefix, is_user_message_id, new_rewind_id
from mcode_exec.records.history import HistoryRecord
from mcode_exec.records.operation import Manifest, Operation, RewindPlan
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import finding, rewinding
from mcode_exec.sessions.generations import GenerationMissingError
from mcode_exec.sessions.layout import HistoryPaths, history_paths
from mcode_exec.sessions.record_rows import RecordRows, finish_rows
from mcode_exec.sessions.rewinding import Rewound
from mcode_exec.store import change_rows, message_rows, session_rows, turn_rows
from mcode_exec.turns import operations
from mcode_exec.turns.maintenance import maintenance

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_BATCH = 1000  # display messages per transaction
_SHOWN = 10  # conflicts that an error names


class RewoundSession(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a rewind, or the undoing of one, has changed."""

    session_id: str
    #: first message that was taken back, or brought back
    message_id: str
    #: its words
    prompt: str
    #: messages of people and the model that went or came
    messages: int
    turns: int
    is_undo: bool
    #: files that were put back, relative to their workspace
    files: tuple[str, ...] = ()
    #: what was left of them as it was, and why
    left_files: tuple[FileConflict, ...] = ()


async def rewind_session(
    data_dir: str | None,
    env: Mapping[str, str],
    name: str,
    to: str | None,
    *,
    say: Callable[[str], None],
    with_files: bool = False,
    force: bool = False,
) -> RewoundSession:
    """Take a prompt and all after it back (`to`: a message's id, a prefix of it or `last`); None: undo the last rewind.

    `with_files`: also what the turns did to files; undoing does so where that was taken back.  `force`: over what
    has changed since.  `say`: what goes wrong with the session's page.
    Raises: SessionError, BusyError where a turn runs, HistoryCorruptError, StoreFailedError, StoreBusyError.
    """
    async with opened(data_dir, env) as runtime:
        session = (await finding.find_named(runtime.store, name)).session
        redactor = Redactor(secret_values(env))
        rewound = await rewind(runtime, session, to, redactor, with_files=with_files, force=force)
        await refresh_page(runtime, session.id, redactor, say)
        return rewound


async def rewind(
    runtime: Runtime,
    session: Session,
    to: str | None,
    redactor: Redactor,
    *,
    with_files: bool = False,
    force: bool = False,
    held_for: str | None = None,
) -> RewoundSession:
    """As `rewind_session`, in an open runtime.

    `held_for`: id of a turn whose admission makes it final; until then nobody else is let in, and if this process
    dies the session is as it was.
    """
    if session.deleting_by is not None:
        raise SessionDeletingError(session.id)
    if session.runtime != "pi-agent":
        raise SessionError(f"session {session.id} has no history of its own yet; run it once before")
    paths = history_paths(runtime.sessions_dir, session.history_relative_dir)
    async with maintenance(runtime.store, runtime.owner, session.id, runtime.clock):
        now_ms = runtime.clock.now_ms()

        def look() -> tuple[bytes, Rewound]:
            data, loaded = rewinding.load(paths, session.id)
            if to is None:
                return data, rewinding.forward(paths, loaded, session.id, now_ms)
            return data, rewinding.back(paths, loaded, session.id, to, new_rewind_id(), now_ms)

        await _catch_up(runtime, session, paths, redactor)
        try:
            data, rewound = await runtime.store.on_thread(look)
        except SessionError as error:
            if error.code == "message_not_found" and to is not None:
                await _check_shown(runtime, session, to)
            raise
        replaced = None
        if with_files or to is None:
            # Before the history: a death in between leaves a rewind that is done again, and goes on.
            replaced = await _put_files(runtime, session, rewound, force=force)
        if to is not None:
            rewound = await _with_files(runtime, rewound, with_files=with_files)
        manifest = Manifest(at_ms=now_ms, rewind=rewound.plan, held_for=held_for)
        operation = await operations.note(runtime.store, runtime.owner, session.id, manifest)
        fault("after-rewind-begun")
        try:
            if not rewound.plan.is_undo:
                await runtime.store.on_thread(lambda: rewinding.archive(paths, rewound.plan, data))
                fault("after-rewind-archive")
            await runtime.store.on_thread(lambda: rewinding.put(paths, rewound, session.created_ms))
        except McodeError:
            await _undo(runtime, operation, paths)
            raise
        fault("after-rewind-put")
        await _agree(runtime, operation, rewound.plan, session, paths, redactor)
    said = [record for record in rewound.moved if record.message.role != "tool"]
    return RewoundSession(
        session_id=session.id,
        message_id=rewound.plan.message_id,
        prompt=rewound.prompt,
        messages=len({record.id for record in said}),
        turns=len({record.turn_id for record in said}),
        is_undo=rewound.plan.is_undo,
        files=() if replaced is None else replaced.paths,
        left_files=() if replaced is None else replaced.conflicts,
    )


async def _put_files(runtime: Runtime, session: Session, rewound: Rewound, *, force: bool) -> Replaced:
    """Take back what the turns did to files, or do it again.

    Raises: SessionError `files_changed` with what stands in the way, and nothing was touched.
    """
    is_undo = rewound.plan.is_undo
    turn_ids = _turns_of(rewound) if rewound.files is None else rewound.files
    if not turn_ids:
        return Replaced(is_done=True)
    if rewound.is_amid_a_turn and not is_undo:
        raise SessionError(
            f"message {rewound.plan.message_id} was said while its turn ran, and files are taken back by whole turns; "
            "name the prompt of that turn, or leave --files out",
            code="files_changed",
        )
    work = reapply_turns if is_undo else revert_turns
    replaced = await work(runtime, session, turn_ids, force=force)
    if not replaced.is_done:
        shown = [f"{one.path or 'a turn'} ({one.reason})" for one in replaced.conflicts[:_SHOWN]]
        more = len(replaced.conflicts) - len(shown)
        raise SessionError(
            f"nothing was changed, because files are not as the turns left them: {', '.join(shown)}"
            + (f" and {more} more" if more else "")
            + "; --force puts back what can be put back all the same",
            code="files_changed",
        )
    return replaced


def _turns_of(rewound: Rewound) -> list[str]:
    """The turns of this session that go, or come back."""
    return list(dict.fromkeys(record.turn_id for record in rewound.moved if record.copied_from is None))


async def _with_files(runtime: Runtime, rewound: Rewound, *, with_files: bool) -> Rewound:
    """The rewind, with the turns whose changes of files it took back: its undo does those again, and no others."""
    turn_ids = _turns_of(rewound) if with_files else []
    files = await runtime.store.read(lambda: change_rows.reverted_of(turn_ids))
    return structs.replace(rewound, header=structs.replace(rewound.header, files=files))


async def _catch_up(runtime: Runtime, session: Session, paths: HistoryPaths, redactor: Redactor) -> None:
    """Write the rows that a turn which died has left to be written: what stays must have its own."""
    data, loaded = await runtime.store.on_thread(lambda: rewinding.load(paths, session.id))
    beyond = [line for line in loaded.lines if line.end > session.history_bytes]
    if beyond:
        size = len(data) - len(loaded.torn_tail)
        await runtime.store.write(lambda: finish_rows(beyond, session.id, size, redactor))


async def finish(runtime: Runtime, operation: Operation) -> bool:
    """Bring to an end what a dead process had begun; whether the rewind has happened.  Raises: McodeError."""
    plan = operation.manifest.rewind
    assert plan is not None
    session = await runtime.store.read(lambda: session_rows.find_session(operation.session_id))
    if session is None or session.deleting_by is not None:
        await operations.end(runtime.store, operation)
        return False
    paths = history_paths(runtime.sessions_dir, session.history_relative_dir)
    redactor = Redactor(secret_values(runtime.env))
    if operation.manifest.held_for is not None:
        return await _give_back(runtime, operation, session, paths, redactor)
    _, loaded = await runtime.store.on_thread(lambda: rewinding.load(paths, session.id))
    if not rewinding.is_put(loaded, plan):
        await _undo(runtime, operation, paths)
        return False
    await runtime.store.on_thread(lambda: rewinding.name_generation(paths, loaded.header, session.created_ms))
    await _agree(runtime, operation, plan, session, paths, redactor)
    return True


async def give_back(runtime: Runtime, session: Session, turn_id: str, redactor: Redactor) -> None:
    """Undo the rewind that was held for a turn which did not come.  Raises: McodeError.

    One that was admitted and given up again has made it final: that is undone as anybody could.
    """
    held = await operations.take_back_hold(runtime.store, runtime.owner, runtime.clock, session.id, turn_id)
    if held is None:
        await rewind(runtime, session, None, redactor)
        return
    paths = history_paths(runtime.sessions_dir, session.history_relative_dir)
    await _give_back(runtime, held, session, paths, redactor)


async def _give_back(
    runtime: Runtime, operation: Operation, session: Session, paths: HistoryPaths, redactor: Redactor
) -> bool:
    """Bring back what a held rewind took, however far that, or this, had come; whether it had taken anything."""
    plan = operation.manifest.rewind
    assert plan is not None
    undo = rewinding.undo_of(plan)

    def put() -> bool:
        _, loaded = rewinding.load(paths, session.id)
        if rewinding.is_put(loaded, undo):
            rewinding.name_generation(paths, loaded.header, session.created_ms)
            return True
        if not rewinding.is_put(loaded, plan):
            return False
        back = rewinding.forward(paths, loaded, session.id, runtime.clock.now_ms())
        rewinding.put(paths, back, session.created_ms)
        return True

    if not await runtime.store.on_thread(put):
        await _undo(runtime, operation, paths)
        return False
    await _agree(runtime, operation, undo, session, paths, redactor)
    return True


async def _undo(runtime: Runtime, operation: Operation, paths: HistoryPaths) -> None:
    """Nothing has changed but that there may be an archive; unless the new generation stands already."""
    plan = operation.manifest.rewind
    assert plan is not None

    def clear() -> bool:
        _, loaded = rewinding.load(paths, operation.session_id)
        if rewinding.is_put(loaded, plan):
            return False  # the next start makes the rows agree
        if not plan.is_undo:
            rewinding.forget(paths, plan)
        return True

    if await runtime.store.on_thread(clear):
        await operations.end(runtime.store, operation)


async def _agree(
    runtime: Runtime,
    operation: Operation,
    plan: RewindPlan,
    session: Session,
    paths: HistoryPaths,
    redactor: Redactor,
) -> None:
    """Make rows agree with the history as it stands, and let the session go, or hold it for its turn."""
    store, is_held = runtime.store, operation.manifest.held_for is not None
    data, loaded = await store.on_thread(lambda: rewinding.load(paths, session.id))
    records = [line.record for line in loaded.lines]
    if plan.is_undo:
        moved = await store.on_thread(lambda: _brought_back(paths, session.id, plan, records))
        rows = RecordRows(session.id, redactor)
        for start in range(0, len(moved), _BATCH):
            part = moved[start : start + _BATCH]
            await operations.change(store, operation, partial(rows.write, part))
            fault("after-rewind-rows")
    else:
        row = await store.read(lambda: message_rows.row_of(session.id, plan.message_id))
        if row is not None:
            delete = partial(message_rows.delete_behind, session.id, row, _BATCH)
            while await operations.change(store, operation, delete):
                fault("after-rewind-rows")
    size = len(data) - len(loaded.torn_tail)

    def last() -> None:
        if is_held:  # what else the session says changes with its turn, or not at all
            session_rows.update_session(session.id, history_bytes=size)
            return
        session_rows.update_session(
            session.id,
            history_bytes=size,
            status="idle",
            error_code=None,
            error_message=None,
            error_source=None,
            revert=None if plan.is_undo else plan.message_id,
            last_turn_id=_newest_turn(records),
            updated_ms=runtime.clock.now_ms(),
        )

    if is_held and not plan.is_undo:
        await operations.hold(store, operation, last)
        fault("after-rewind-agreed")
        return
    await operations.change(store, operation, last)
    fault("after-rewind-agreed")
    await operations.end(store, operation)


def _brought_back(
    paths: HistoryPaths, session_id: str, plan: RewindPlan, records: Sequence[HistoryRecord]
) -> Sequence[HistoryRecord]:
    """What an undo brings back, now that its generation stands."""
    if plan.behind is not None and plan.kept is not None:
        return rewinding.moved_of(paths, session_id, records, plan.snapshot, plan.behind, plan.kept)
    first = next(at for at, record in enumerate(records) if record.id == plan.message_id)
    return records[first:]


async def _check_shown(runtime: Runtime, session: Session, name: str) -> None:
    """Refuse a message that is shown, and that no generation holds.  Raises: GenerationMissingError."""

    def look() -> list[str]:
        if message_rows.row_of(session.id, name) is not None:
            return [name]
        return message_rows.ids_with_prefix(session.id, name) if is_message_prefix(name) else []

    found = await runtime.store.read(look)
    if len(found) == 1 and is_user_message_id(found[0]):
        raise GenerationMissingError(
            f"{found[0]} stands before a compaction, and what a model was sent then is not kept with "
            f"session {session.id}: only what came after can be taken back"
        )


def _newest_turn(records: Sequence[HistoryRecord]) -> str | None:
    """The newest turn of this session that the history has something of; inside a transaction."""
    seen: set[str] = set()
    for record in reversed(records):
        if record.copied_from is not None:
            return None  # it ran in the session that this one is a fork of
        if record.turn_id not in seen:
            seen.add(record.turn_id)
            if turn_rows.find_receipt(record.turn_id) is not None:
                return record.turn_id
    return None
