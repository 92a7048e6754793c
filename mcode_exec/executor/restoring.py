"""`sessions import` of mcode's own export: the session is here again, under its id or, as a copy, under a new one."""

from __future__ import annotations

import asyncio
from typing import Literal

from msgspec import Struct, structs

from mcode_exec.errors import InvocationError
from mcode_exec.executor.runtime import Runtime
from mcode_exec.faults import fault
from mcode_exec.ids import new_session_id
from mcode_exec.importers.mcode_export import UnusableExportError, read_export
from mcode_exec.records.export import ExportedSession
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.layout import history_paths
from mcode_exec.sessions.making import create_session, project_of
from mcode_exec.sessions.restoring import RESTORING, as_copy, session_of, write_files, write_rows
from mcode_exec.store import session_rows
from mcode_exec.turns.maintenance import maintenance

#: `unchanged`: a session with this id is here already
RestoreOutcome = Literal["imported", "unchanged"]


class Restored(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one document."""

    session_id: str
    #: as the document calls it
    source_id: str
    source: str
    outcome: RestoreOutcome
    title: str
    workspace: str
    #: messages of people and models
    messages: int


async def restore_file(runtime: Runtime, path: str, redactor: Redactor, *, as_new: bool) -> Restored:
    """Bring back the session of a document; `as_new`: as a copy, whether it is here or not.

    Raises: InvocationError for a file that is no export that can be read; StoreFailedError, StoreBusyError.
    """
    try:
        document = await asyncio.to_thread(read_export, path)
    except UnusableExportError as error:
        raise InvocationError(str(error)) from error
    except OSError as error:
        raise InvocationError(f"{path} cannot be read: {error.strerror or error}") from error
    return await restore(runtime, document, path, redactor, as_new=as_new)


async def restore(
    runtime: Runtime, document: ExportedSession, path: str, redactor: Redactor, *, as_new: bool
) -> Restored:
    """Likewise, in an open store.  Doing it again after a death goes on with it."""
    source_id = document.session.id
    if as_new:
        document = as_copy(document, new_session_id())
    here = await runtime.store.read(lambda: session_rows.find_session(document.session.id))
    if here is not None and here.origin != RESTORING:
        return _told(document, here, source_id, path, "unchanged")
    if here is None:
        here = await _make(runtime, document)
    session = here
    paths = history_paths(runtime.sessions_dir, session.history_relative_dir)
    async with maintenance(runtime.store, runtime.owner, session.id, runtime.clock):
        size = await runtime.store.on_thread(lambda: write_files(document, paths, runtime.sessions_dir))
        fault("after-restored-files")
        await write_rows(runtime.store, document, size, redactor)
    return _told(document, session, source_id, path, "imported")


async def _make(runtime: Runtime, document: ExportedSession) -> Session:
    parent_id = document.session.parent_id
    parent = None
    if parent_id is not None:
        wanted = parent_id
        parent = await runtime.store.read(lambda: session_rows.find_session(wanted))
    session = session_of(document, has_parent=parent is not None)
    project = project_of(session.workspace, None, session.created_ms)
    return await create_session(runtime.store, project, structs.replace(session, project_id=project.id))


def _told(
    document: ExportedSession, session: Session, source_id: str, path: str, outcome: RestoreOutcome
) -> Restored:
    return Restored(
        session_id=session.id,
        source_id=source_id,
        source=path.encode("utf-8", "replace").decode(),
        outcome=outcome,
        title=session.title,
        workspace=session.workspace,
        messages=sum(record.message.role != "tool" for record in document.history),
    )
