"""`mcode sessions verify`: whether what is kept of sessions can be read and agrees, and mending what is certain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

from mcode_exec.errors import HistoryCorruptError
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.runtime import Runtime
from mcode_exec.faults import fault
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import consistency, finding, verifying
from mcode_exec.sessions.consistency import MANIFEST, ROWS, Fault
from mcode_exec.sessions.files import read_file
from mcode_exec.sessions.history import write_manifest
from mcode_exec.sessions.layout import HistoryPaths, history_paths
from mcode_exec.sessions.lines import Loaded, parse
from mcode_exec.store import message_rows, session_rows
from mcode_exec.turns.maintenance import maintenance

Finding = dict[str, Any]
_PAGE = 200  # sessions per read


async def verify(
    data_dir: str | None, env: Mapping[str, str], name: str | None, *, repair: bool
) -> AsyncIterator[tuple[str, list[Finding]]]:
    """What is wrong with a session, or (None) with every one: its id and its findings, session by session.

    A finding is {sessionId, file, line, problem, repaired, keptIn}.
    Raises: SessionError, BusyError when a turn runs and a repair was asked for.
    """
    async with opened(data_dir, env, reads_only=not repair) as runtime:
        redactor = Redactor(secret_values(env))
        if name is not None:
            session = await finding.find_exact(runtime.store, name)
            yield session.id, await _verify(runtime, session, redactor, repair=repair)
            return
        after = ""
        while page := await runtime.store.read(partial(session_rows.page_ids, after, _PAGE)):
            for session_id in page:
                found = await runtime.store.read(partial(session_rows.find_session, session_id))
                if found is not None and found.deleting_by is None:
                    yield session_id, await _verify(runtime, found, redactor, repair=repair)
            after = page[-1]


async def _verify(runtime: Runtime, session: Session, redactor: Redactor, *, repair: bool) -> list[Finding]:
    paths = history_paths(runtime.sessions_dir, session.history_relative_dir)
    if repair:
        async with maintenance(runtime.store, runtime.owner, session.id, runtime.clock):
            return await _repair(runtime, session, paths, redactor)
    known = session.history_bytes
    lines = await runtime.store.on_thread(lambda: verifying.check(paths, session.id, known_bytes=known))
    faults = [] if lines else await _faults(runtime, session, paths)
    return [*(_of_line(session, line) for line in lines), *(_of_fault(session, one) for one in faults)]


async def _repair(
    runtime: Runtime, session: Session, paths: HistoryPaths, redactor: Redactor
) -> list[Finding]:
    store, now_ms, known = runtime.store, runtime.clock.now_ms(), session.history_bytes
    lines = await store.on_thread(lambda: verifying.repair(paths, session.id, now_ms, known_bytes=known))
    fault("after-repair")
    findings = [_of_line(session, line) for line in lines]
    if not all(line["repaired"] for line in lines):
        return findings
    faults = await _faults(runtime, session, paths)
    if any(one.mends == MANIFEST for one in faults):
        await store.on_thread(lambda: _mend_manifest(session, paths))
    if lines or any(one.mends == ROWS for one in faults):
        await verifying.rebuild_rows(store, session, paths, redactor)
    # what bad lines had made of the rows is mended with them
    return findings + [_of_fault(session, one, is_repaired=one.mends is not None) for one in faults]


def _mend_manifest(session: Session, paths: HistoryPaths) -> None:
    loaded = _load(paths)
    if loaded is not None:
        write_manifest(paths, session.id, session.created_ms, loaded.header.generation)


async def _faults(runtime: Runtime, session: Session, paths: HistoryPaths) -> list[Fault]:
    """What does not agree; of a turn that runs meanwhile only what has its rows already counts."""
    loaded = await runtime.store.on_thread(lambda: _load(paths))
    if loaded is None:
        return []
    rows = await runtime.store.read(lambda: set(message_rows.ids_of(session.id)))
    records = [line.record for line in loaded.lines]
    with_rows = [line.record for line in loaded.lines if line.end <= session.history_bytes]

    def look() -> list[Fault]:
        return [
            *consistency.of_files(paths, session.id, loaded, records),
            # the halves of pairs whose lines were set aside are known, and no model is sent them
            *(() if verifying.has_set_aside(paths) else consistency.of_pairs(records)),
        ]

    files = await runtime.store.on_thread(look)
    return [*files, *consistency.of_rows(session.id, with_rows, rows)]


def _load(paths: HistoryPaths) -> Loaded | None:
    """None where there is no history, or none that can be read: that is told line by line."""
    try:
        data = read_file(paths.messages)
        return parse(data, paths.messages) if data else None
    except (OSError, HistoryCorruptError):
        return None


def _of_line(session: Session, line: Finding) -> Finding:
    return {"sessionId": session.id, "file": "messages.jsonl", **line}


def _of_fault(session: Session, one: Fault, *, is_repaired: bool = False) -> Finding:
    return {
        "sessionId": session.id,
        "file": one.file,
        "line": None,
        "problem": one.problem,
        "repaired": is_repaired,
    }
