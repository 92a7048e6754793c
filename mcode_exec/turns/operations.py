"""Making or changing a session in several steps: its manifest and its lock come and go together.

From the first step to the last the session is held as for maintenance, so that
no turn is admitted, and one that is being made is hidden.  What its steps are the manifest says;
who takes them, and what a death leaves to do, is the executor's.  Every
transaction here looks first whether the operation is still its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import structs

from mcode_exec.clock import Clock
from mcode_exec.errors import BusyError, LeaseLostError
from mcode_exec.records.operation import Manifest, Operation, Phase
from mcode_exec.records.session import Project, Session
from mcode_exec.store import message_rows, operation_rows, session_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.store.message_rows import RawMessage
from mcode_exec.turns.maintenance import maintenance_lock
from mcode_exec.turns.owner import Owner

T = TypeVar("T")


async def begin(
    store: Store, owner: Owner, clock: Clock, project: Project, session: Session, manifest: Manifest
) -> tuple[Session, Operation | None]:
    """Store a session that is not whole yet, and what is to become of it.

    With a key that is bound already: the session it is bound to, and no operation.
    """
    operation = Operation(session_id=session.id, owner=owner.token, phase="begun", manifest=manifest)

    def transaction() -> tuple[Session, Operation | None]:
        kept = session_rows.ensure_project(project)
        if session.session_key is not None:
            found = session_rows.find_by_key(kept.id, session.session_key)
            if found is not None:
                return found, None
        wanted = structs.replace(session, project_id=kept.id, visibility="hidden")
        session_rows.insert_session(wanted)
        operation_rows.insert_operation(operation)
        turn_rows.insert_lock(maintenance_lock(owner, session.id, clock))
        return wanted, operation

    return await store.write(transaction)


async def note(store: Store, owner: Owner, session_id: str, manifest: Manifest) -> Operation:
    """Note what is about to be done to a session that is held for maintenance by its caller."""
    operation = Operation(session_id=session_id, owner=owner.token, phase="begun", manifest=manifest)
    await store.write(lambda: operation_rows.insert_operation(operation))
    return operation


async def change(store: Store, operation: Operation, step: Callable[[], T]) -> T:
    """A step of it that changes rows, in a transaction of its own.  Raises: LeaseLostError."""

    def transaction() -> T:
        _check(operation)
        return step()

    return await store.write(transaction)


async def end(store: Store, operation: Operation) -> None:
    """All is done, or nothing has been: the manifest goes, and with it what we held."""

    def transaction() -> None:
        _check(operation)
        operation_rows.delete_operation(operation.session_id)
        _unlock(operation)

    await store.write(transaction)


async def hold(store: Store, operation: Operation, step: Callable[[], None]) -> None:
    """The last step of a rewind that a turn is to make final: its lock goes, its manifest keeps all others out.

    Raises: LeaseLostError.
    """

    def transaction() -> None:
        _check(operation)
        step()
        operation_rows.set_phase(operation.session_id, operation.owner, "held")
        _unlock(operation)

    await store.write(transaction)


async def take_back_hold(
    store: Store, owner: Owner, clock: Clock, session_id: str, turn_id: str
) -> Operation | None:
    """The rewind that was held for a turn of ours, locked again; None where that was admitted.

    Raises: BusyError where the session is held all the same: its next opening gives the rewind back.
    """

    def transaction() -> Operation | None:
        found = operation_rows.find_operation(session_id)
        if found is None or found.owner != owner.token or found.manifest.held_for != turn_id:
            return None
        lock = turn_rows.find_lock(session_id)
        if lock is not None and lock.owner != owner.token:
            raise BusyError(f"session {session_id} is busy; the next start gives back what was taken from it")
        if lock is None:
            turn_rows.insert_lock(maintenance_lock(owner, session_id, clock))
        return found

    return await store.write(transaction)


async def advance(store: Store, operation: Operation, phase: Phase) -> Operation:
    """Note that a step is done.  Raises: LeaseLostError if the operation is not ours any more."""

    def transaction() -> None:
        if not operation_rows.set_phase(operation.session_id, operation.owner, phase):
            raise _lost(operation)

    await store.write(transaction)
    return structs.replace(operation, phase=phase)


async def put_rows(
    store: Store, operation: Operation, first_revision: int, rows: Sequence[RawMessage]
) -> None:
    """Write display messages of the session; those that are there stay.  Raises: LeaseLostError."""

    def transaction() -> None:
        _check(operation)
        message_rows.insert_copies(operation.session_id, first_revision, rows)

    await store.write(transaction)


async def let_go(store: Store, operation: Operation, history_bytes: int) -> Operation:
    """The session is whole, and turns may be admitted; it stays hidden until `complete`.  Raises: LeaseLostError."""

    def transaction() -> None:
        _check(operation)
        operation_rows.set_phase(operation.session_id, operation.owner, "copied")
        session_rows.update_session(operation.session_id, history_bytes=history_bytes)
        _unlock(operation)

    await store.write(transaction)
    return structs.replace(operation, phase="copied")


async def complete(store: Store, operation: Operation) -> None:
    """Show the session as what it is meant to be; the manifest goes.  Doing it twice changes nothing."""

    def transaction() -> None:
        if operation_rows.delete_operation(operation.session_id):
            _unlock(operation)
            session_rows.update_session(operation.session_id, visibility=operation.manifest.visibility)

    await store.write(transaction)


async def take_over(store: Store, owner: Owner, clock: Clock, session_id: str) -> Operation | None:
    """An operation that a dead process has left, for us to bring to an end; None if another is quicker."""

    def transaction() -> Operation | None:
        found = operation_rows.find_operation(session_id)
        if found is None or owner.is_alive(found.owner):
            return None
        if not operation_rows.take_over(session_id, found.owner, owner.token):
            return None
        lock = turn_rows.find_lock(session_id)
        if lock is not None and lock.kind == "maintenance" and lock.owner == found.owner:
            turn_rows.delete_lock(session_id, lock.token)
        if found.phase != "copied":
            turn_rows.insert_lock(maintenance_lock(owner, session_id, clock))
        return structs.replace(found, owner=owner.token)

    return await store.write(transaction)


def _check(operation: Operation) -> None:
    found = operation_rows.find_operation(operation.session_id)
    if found is None or found.owner != operation.owner:
        raise _lost(operation)


def _lost(operation: Operation) -> LeaseLostError:
    return LeaseLostError(
        f"session {operation.session_id} was still being worked on, and another process has ended that"
    )


def _unlock(operation: Operation) -> None:
    lock = turn_rows.find_lock(operation.session_id)
    if lock is not None and lock.kind == "maintenance" and lock.owner == operation.owner:
        turn_rows.delete_lock(operation.session_id, lock.token)
