"""What the listing commands read: sessions, messages, exports.  Nothing here starts a turn.

Opening the store recovers what dead processes left, as every command does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import structs

from mcode_exec.executor.runtime import Runtime
from mcode_exec.faults import fault
from mcode_exec.records.session import Seal, Session
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import finding, verifying
from mcode_exec.sessions.layout import history_paths
from mcode_exec.store import deletion_rows
from mcode_exec.turns.maintenance import maintenance


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


async def verify_session(
    data_dir: str | None, env: Mapping[str, str], name: str, *, repair: bool
) -> list[dict[str, Any]]:
    """What is wrong with a session's history, line by line; `repair` sets bad lines aside.

    Raises: BusyError when a turn runs and a repair was asked for.
    """
    async with opened(data_dir, env, reads_only=not repair) as runtime:
        session = await finding.find_exact(runtime.store, name)
        paths = history_paths(runtime.sessions_dir, session.history_relative_dir)
        known = session.history_bytes
        if not repair:
            return await runtime.store.on_thread(
                lambda: verifying.check(paths, session.id, known_bytes=known)
            )
        async with maintenance(runtime.store, runtime.owner, session.id, runtime.clock):
            now_ms = runtime.clock.now_ms()
            findings = await runtime.store.on_thread(
                lambda: verifying.repair(paths, session.id, now_ms, known_bytes=known)
            )
            fault("after-repair")
            if all(finding["repaired"] for finding in findings):
                await verifying.rebuild_rows(runtime.store, session, paths, Redactor(secret_values(env)))
        return findings
