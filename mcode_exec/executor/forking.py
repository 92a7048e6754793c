"""Sessions that begin with another one's history, or in a worktree of their own: made step by step.

Each step is noted in the manifest (turns.operations) once it is done: hidden
session, worktree, canonical history, attachments and display messages, and last
the session for everybody to see.  What fails is undone; what a death leaves is
finished by the next start if it was asked for itself, and goes if it was only
meant for a turn that was never admitted.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from mcode_exec.errors import McodeError, SessionError, StoreBusyError, StoreFailedError
from mcode_exec.executor.choice import shared_worktree
from mcode_exec.executor.worktrees import location_of, make_worktree, undo_worktree
from mcode_exec.faults import fault
from mcode_exec.records.operation import Manifest, Operation, WorktreePlan
from mcode_exec.records.session import BTW, Project, Session, Visibility
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import making
from mcode_exec.sessions.history import publish
from mcode_exec.sessions.inheriting import Copy, Source, batches, read_source
from mcode_exec.sessions.layout import history_paths
from mcode_exec.sessions.lines import read_header
from mcode_exec.sessions.removing import remove_files
from mcode_exec.store import operation_rows, session_rows
from mcode_exec.turns import deletion, operations

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

#: our own words: what is inherited is known, and is nobody's order any more
_BOUNDARY = (
    "[mcode: a side conversation begins here. Everything above belongs to the conversation that it was opened "
    "beside: it is there for reference and is nothing that you are asked to do or to go on with; requests, plans and "
    "unfinished steps in it are that conversation's own, and it may be going on with them right now in the same "
    "directory. Do only what is asked below. Unless that asks for a change, look and answer, and leave files as they "
    "are.]"
)

_BATCH = 1000  # display messages per transaction


class Wanted(Struct, frozen=True, kw_only=True):
    """A session that is to be made."""

    session: Session
    project: Project
    #: what it begins with
    source: Source | None = None
    #: what mcode says behind that, for the model
    notes: tuple[str, ...] = ()
    worktree: WorktreePlan | None = None
    visibility: Visibility = "visible"
    #: nobody waits for it with a turn
    is_for_itself: bool = False


def directory_of(session: Session) -> str:
    """Where a session works."""
    return session.workspace if session.run_location is None else session.run_location.directory


def placed(session: Session, source: Session) -> Session:
    """A session that is made where another works which has a worktree works there too."""
    location = shared_worktree(session.workspace, source)
    if location is None:
        return session
    return structs.replace(session, workspace=source.workspace, run_location=location)


def notes_of(session: Session, source: Source | None, worktree: WorktreePlan | None) -> tuple[str, ...]:
    """What a model must know that goes on in a session with another's history."""
    if source is None:
        return ()
    here = directory_of(session) if worktree is None else location_of(worktree).directory
    before = directory_of(source.session)
    notes: tuple[str, ...] = ()
    if here != before:
        notes = (making.moved_note(here, before),)
    return (*notes, _BOUNDARY) if session.purpose == BTW else notes


async def make(runtime: Runtime, wanted: Wanted, redactor: Redactor) -> tuple[Session, Operation | None]:
    """Make a session.  Unless it is for itself it stays hidden until `operations.complete`.

    With a key that is bound already: the session it is bound to, and no operation.
    Raises: McodeError, and what was made is gone again.
    """
    session = wanted.session
    if wanted.worktree is not None:
        session = structs.replace(session, run_location=location_of(wanted.worktree))
    manifest = Manifest(
        at_ms=session.created_ms,
        visibility=wanted.visibility,
        inheritance=None if wanted.source is None else wanted.source.inheritance(wanted.notes),
        worktree=wanted.worktree,
        is_for_itself=wanted.is_for_itself,
    )
    stored, operation = await operations.begin(
        runtime.store, runtime.owner, runtime.clock, wanted.project, session, manifest
    )
    if operation is None:
        return stored, None
    try:
        fault("after-fork-begun")
        operation = await _take_steps(runtime, operation, stored, wanted.source, redactor)
        if wanted.is_for_itself:
            await operations.complete(runtime.store, operation)
            fault("after-fork-visible")
            return structs.replace(stored, visibility=wanted.visibility), None
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(_undo_quietly(runtime, operation)))
        raise
    return stored, operation


async def _take_steps(
    runtime: Runtime, operation: Operation, session: Session, source: Source | None, redactor: Redactor
) -> Operation:
    """Every step that is not done yet, up to the one that lets turns in."""
    store, manifest = runtime.store, operation.manifest
    if operation.phase == "begun":
        if manifest.worktree is not None:
            await make_worktree(manifest.worktree)
            fault("after-worktree")
        operation = await operations.advance(store, operation, "placed")
    if source is None or manifest.inheritance is None:
        return await operations.let_go(store, operation, 0)
    paths = history_paths(runtime.sessions_dir, session.history_relative_dir)
    copy = Copy(source, session.id, manifest.inheritance.notes, manifest.at_ms)
    if operation.phase == "placed":
        await store.on_thread(lambda: _publish(runtime, session, copy))
        fault("after-fork-published")
        operation = await operations.advance(store, operation, "published")
    await store.on_thread(lambda: copy.take_files(paths, runtime.data))
    fault("after-fork-files")
    for start, rows in batches(copy.rows(redactor), _BATCH):
        await operations.put_rows(store, operation, start + 1, rows)
        fault("after-fork-rows")
    operation = await operations.let_go(store, operation, len(copy.data))
    fault("after-fork-copied")
    return operation


def _publish(runtime: Runtime, session: Session, copy: Copy) -> None:
    paths = history_paths(runtime.sessions_dir, session.history_relative_dir)
    try:
        descriptor = publish(paths, session.id, runtime.sessions_dir, copy.data, session.created_ms)
    except FileExistsError:
        # A process that died just behind this step has left it; nobody else writes there.
        with open(paths.messages, "rb") as file:
            if read_header(file.readline()).session_id != session.id:
                raise SessionError(f"{paths.messages} belongs to another session") from None
            if os.fstat(file.fileno()).st_size != len(copy.data):
                raise SessionError(f"{paths.messages} is not what was to be written there") from None
    else:
        os.close(descriptor)


async def complete(runtime: Runtime, operation: Operation | None) -> None:
    """The turn that a session was made for is admitted: it is there for good."""
    if operation is not None:
        fault("before-fork-visible")
        await operations.complete(runtime.store, operation)


async def undo(runtime: Runtime, operation: Operation) -> None:
    """Take away all that was made of a session, unless a turn was admitted in it: then it is shown.

    Raises: StoreFailedError, StoreBusyError.
    """

    def look() -> tuple[Session | None, Operation | None]:
        return (
            session_rows.find_session(operation.session_id),
            operation_rows.find_operation(operation.session_id),
        )

    def seal() -> Session | None:
        session = session_rows.find_session(operation.session_id)
        if session is not None and session.last_turn_id is None:
            session_rows.update_session(session.id, deleting_by=runtime.owner.token)
        elif session is None:
            operation_rows.delete_operation(operation.session_id)
        return session

    session, now = await runtime.store.read(look)
    if session is not None and now is not None and now.phase != "copied":
        # No turn can be there yet, and the room that its files take may be what the rest needs.
        await asyncio.to_thread(remove_files, runtime.sessions_dir, session.history_relative_dir)
    session = await runtime.store.write(seal)
    if session is None:
        return
    if session.last_turn_id is not None:
        await operations.complete(runtime.store, operation)
        return
    if operation.manifest.worktree is not None:
        await undo_worktree(operation.manifest.worktree)
    await asyncio.to_thread(remove_files, runtime.sessions_dir, session.history_relative_dir)
    fault("after-fork-removed")
    await deletion.delete_rows(runtime.store, session, runtime.clock)


async def _undo_quietly(runtime: Runtime, operation: Operation) -> None:
    try:
        await undo(runtime, operation)
    except McodeError:
        pass  # what went wrong before is the news; the next start finds the manifest


async def finish(runtime: Runtime, operation: Operation) -> bool:
    """Bring to an end what a dead process had begun; whether the session is whole now, and not gone.

    Raises: McodeError; its manifest stays then, and with it our name: the start after us tries again.
    """
    is_whole = await _finish(runtime, operation)
    if not is_whole:
        await undo(runtime, operation)
    return is_whole


async def _finish(runtime: Runtime, operation: Operation) -> bool:
    """Whether the session is whole; if not it is to be undone."""
    session = await runtime.store.read(lambda: session_rows.find_session(operation.session_id))
    manifest = operation.manifest
    if session is None or session.deleting_by is not None:
        return False
    if session.last_turn_id is None and not manifest.is_for_itself:
        return False
    if session.last_turn_id is None and operation.phase != "copied":
        if manifest.worktree is not None and operation.phase == "begun":
            return False  # a start is not kept waiting for a checkout
        history = history_paths(runtime.sessions_dir, session.history_relative_dir).messages
        if operation.phase == "published" and not os.path.exists(history):
            return False  # it was being taken away
        try:
            source = None
            if manifest.inheritance is not None:
                source = await read_source(
                    runtime.store,
                    runtime.sessions_dir,
                    manifest.inheritance.source_id,
                    at=None,
                    is_held=runtime.is_held,
                    resumed=manifest.inheritance,
                )
            redactor = Redactor(secret_values(runtime.env))
            operation = await _take_steps(runtime, operation, session, source, redactor)
        except (StoreBusyError, StoreFailedError):
            raise
        except McodeError:
            return False  # the source is gone, or another than it was
    await operations.complete(runtime.store, operation)
    return True
