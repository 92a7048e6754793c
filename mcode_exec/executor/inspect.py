"""What the listing commands read: sessions, messages, exports.  Nothing here starts a turn.

Opening the store recovers what dead processes left, as every command does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec import structs

from mcode_exec.executor.runtime import Runtime
from mcode_exec.records.session import Seal, Session
from mcode_exec.redaction import Redactor
from mcode_exec.store import deletion_rows


@asynccontextmanager
async def opened(
    data_dir: str | None, env: Mapping[str, str], *, reads_only: bool = False
) -> AsyncIterator[Runtime]:
    """The runtime of a command that makes no store; `reads_only`: it writes nothing, and needs no room for that."""
    runtime = await Runtime.look(data_dir, dict(env), reads_only=reads_only)
    try:
        yield runtime
    finally:
        await runtime.close()


async def seals_of(runtime: Runtime, sessions: list[Session]) -> dict[str, Seal]:
    """What is to be told of those that are being deleted."""
    ids = [session.id for session in sessions if session.deleting_by is not None]
    return await runtime.store.read(lambda: deletion_rows.seals_of(ids)) if ids else {}


def masked_words(session: Session, redactor: Redactor) -> Session:
    """A title is made of the prompt, and an error may quote a server; the rest names things."""
    error = session.error_message
    return structs.replace(
        session,
        title=redactor.text(session.title),
        error_message=None if error is None else redactor.text(error),
    )
