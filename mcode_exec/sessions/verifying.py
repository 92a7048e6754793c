"""Checking a session's history line by line, and setting aside what is no record.

A repair throws nothing away: bad lines go to a file under `reports/`, the good
ones make a new `messages.jsonl`, and rows are made to agree with it.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from mcode_exec.errors import StoreFailedError
from mcode_exec.records.history import GenerationHeader, HistoryRecord
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.files import make_dirs, read_file, replace_file
from mcode_exec.sessions.layout import HistoryPaths
from mcode_exec.sessions.lines import Line, parse, read_header, read_record, serialise, split_welded
from mcode_exec.sessions.record_rows import finish_rows
from mcode_exec.store.database import Store

_BAD_LINES = "bad-lines-"


class _Sorted(msgspec.Struct, kw_only=True):
    header: GenerationHeader | None = None
    records: list[HistoryRecord] = []
    #: (line number, raw line, what is wrong)
    bad: list[tuple[int, bytes, str]] = []


def check(paths: HistoryPaths, session_id: str, *, known_bytes: int = 0) -> list[dict[str, Any]]:
    """Every line that is no record, as {line, problem, repaired}.

    `known_bytes` is what rows say of the file (sessions.history_bytes): 0 for a session that never ran.
    """
    data = _read(paths)
    if data is None:
        return _of_no_file(known_bytes)
    found = _sort(data)
    return _foreign(found, session_id) or _findings(found, is_repaired=False)


def repair(
    paths: HistoryPaths, session_id: str, now_ms: int, *, known_bytes: int = 0
) -> list[dict[str, Any]]:
    """Set bad lines aside; what was found, each with where it went.

    Raises: StoreFailedError when it cannot be written.
    """
    data = _read(paths)
    if data is None:
        return _of_no_file(known_bytes)
    found = _sort(data)
    foreign = _foreign(found, session_id)
    if foreign or (not found.bad and found.header is not None):
        return foreign
    header = found.header or GenerationHeader(
        generation=1, session_id=session_id, at_ms=now_ms, reason="header made anew by repair"
    )
    try:
        make_dirs(paths.reports, os.path.dirname(paths.directory))
        kept = os.path.join(paths.reports, f"{_BAD_LINES}{now_ms}.jsonl")
        os.close(replace_file(kept, b"".join(raw + b"\n" for _, raw, _ in found.bad), durable=True))
        os.close(replace_file(paths.messages, serialise(header, found.records), durable=True))
    except OSError as error:
        raise StoreFailedError(f"{paths.messages} cannot be mended: {error.strerror}") from error
    return [{**finding, "keptIn": kept} for finding in _findings(found, is_repaired=True)]


def has_set_aside(paths: HistoryPaths) -> bool:
    """Whether a repair has set lines of this session aside."""
    try:
        return any(name.startswith(_BAD_LINES) for name in os.listdir(paths.reports))
    except OSError:
        return False


async def rebuild_rows(store: Store, session: Session, paths: HistoryPaths, redactor: Redactor) -> None:
    """Make rows agree with the history as it stands now."""

    def transaction() -> None:
        data = _read(paths)
        if data is None:
            return
        loaded = parse(data, paths.messages)
        lines: list[Line] = list(loaded.lines)
        finish_rows(lines, session.id, len(data), redactor)

    await store.write(transaction)


def _read(paths: HistoryPaths) -> bytes | None:
    try:
        return read_file(paths.messages)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreFailedError(f"{paths.messages} cannot be read: {error.strerror}") from error


def _sort(data: bytes) -> _Sorted:
    found = _Sorted(records=[], bad=[])
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    for number, raw in enumerate(lines, start=1):
        if number == 1:
            try:
                found.header = read_header(raw)
                continue
            except ValueError:
                pass  # without its header a file may still begin with a record
        try:
            found.records.append(read_record(raw))
        except ValueError as error:
            split = split_welded(raw)
            if split is not None:
                found.records.extend(split)
            else:
                found.bad.append((number, raw, str(error)))
    return found


def _of_no_file(known_bytes: int) -> list[dict[str, Any]]:
    """A session that never ran has no file; of one that did, everything is lost."""
    return [_finding(1, "messages.jsonl is missing")] if known_bytes else []


def _foreign(found: _Sorted, session_id: str) -> list[dict[str, Any]]:
    """What a repair leaves alone: whose history it is must be settled by a person."""
    if found.header is None or found.header.session_id == session_id:
        return []
    return [_finding(1, f"the file belongs to session {found.header.session_id}")]


def _finding(line: int, problem: str, *, is_repaired: bool = False) -> dict[str, Any]:
    return {"line": line, "problem": problem, "repaired": is_repaired}


def _findings(found: _Sorted, *, is_repaired: bool) -> list[dict[str, Any]]:
    findings = [_finding(number, problem, is_repaired=is_repaired) for number, _, problem in found.bad]
    if found.header is None:
        findings.insert(0, _finding(1, "the generation header is missing", is_repaired=is_repaired))
    return findings
