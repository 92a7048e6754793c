"""Canonical history on disk: `messages.jsonl`, one record a line, only ever appended to.

A line is one write ending in `\\n`, fsynced, at an expected size: whoever finds
another size writes nothing.  Opening repairs what a crash can leave: a torn
last line is set aside under `reports/`, records welded onto one line are split.
Any other line that is no record is HISTORY_CORRUPT, and the file stays as it
is.  A takeover moves the history to a new inode, so that a fenced-out owner
that wakes up writes into nothing.

All functions here block; callers run them on the store thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import msgspec

from mcode_exec.errors import HistoryCorruptError, LeaseLostError, StoreFailedError
from mcode_exec.faults import fault
from mcode_exec.plurals import counted
from mcode_exec.records.history import GenerationHeader, HistoryRecord
from mcode_exec.sessions.files import make_dirs, read_file, replace_file
from mcode_exec.sessions.layout import HistoryPaths
from mcode_exec.sessions.lines import Line, Loaded, parse, serialise

FORMAT_VERSION = 1
_APPEND_PAUSES_S = (0.025, 0.05)  # between at most 3 attempts; source: session-system notes

_encode = msgspec.json.Encoder().encode


class NeedsChangeError(Exception):
    """The file cannot be opened as it is, and who opened it may not change it."""


class CanonicalHistory:
    """One session's history, open for one turn.  Make it with `open_history`."""

    def __init__(self, paths: HistoryPaths, session_id: str, sessions_dir: str) -> None:
        self.paths = paths
        self.session_id = session_id
        self.records: list[HistoryRecord] = []
        #: (record, end offset) of records whose rows may be missing; consumed by recovery
        self.beyond: list[Line] = []
        #: things a person should know about what was found, as (code, message)
        self.notices: list[tuple[str, str]] = []
        #: size of the file as we know it; 0 before it exists
        self.size = 0
        self._sessions_dir = sessions_dir
        self._descriptor: int | None = None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def append(self, records: Sequence[HistoryRecord], now_ms: int) -> None:
        """Write `records` and make them survive power loss.

        Raises: LeaseLostError when the file is no longer ours; StoreFailedError
            (source `canonical-history`) when it could not be written; an
            uncertain append is never repeated.
        """
        if self._descriptor is None:
            header = GenerationHeader(generation=1, session_id=self.session_id, at_ms=now_ms)
            self._create(serialise(header, records), now_ms)
        else:
            self._append(serialise(None, records))
        self.records.extend(records)

    def _append(self, data: bytes) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            raise StoreFailedError("the history is closed")
        last_error: OSError | None = None
        for pause_s in (*_APPEND_PAUSES_S, None):
            status = os.fstat(descriptor)
            if status.st_nlink == 0:
                raise LeaseLostError(f"session {self.session_id} was taken over by another process")
            if status.st_size != self.size:
                raise StoreFailedError(
                    f"{self.paths.messages} has {counted(status.st_size, 'byte')} where {self.size} were expected; "
                    "nothing was written",
                    source="canonical-history",
                )
            try:
                written = os.write(descriptor, data)
                if written == len(data):
                    break
                last_error = OSError(28, f"only {written} of {len(data)} bytes could be written")
            except OSError as error:
                last_error = error
            try:
                os.ftruncate(descriptor, self.size)
            except OSError as error:
                raise _write_failure(self.paths.messages, error) from error
            if pause_s is None:
                raise _write_failure(self.paths.messages, last_error)
            time.sleep(pause_s)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Whether the line survives is unknown: it is not repeated, and the session says so.
            raise _write_failure(self.paths.messages, error) from error
        self.size += len(data)

    def _create(self, data: bytes, now_ms: int) -> None:
        try:
            self._descriptor = publish(self.paths, self.session_id, self._sessions_dir, data, now_ms)
        except FileExistsError as error:
            # We were stopped before our first record; who took the session over has written meanwhile.
            raise LeaseLostError(f"session {self.session_id} was taken over by another process") from error
        self.size = len(data)

    def rewrite(self, data: bytes) -> None:
        """Give the file a new inode with `data` as its content, and keep that one open."""
        self.close()
        try:
            self._descriptor = replace_file(self.paths.messages, data, durable=True)
        except OSError as error:
            raise _write_failure(self.paths.messages, error) from error
        self.size = len(data)


def publish(paths: HistoryPaths, session_id: str, sessions_dir: str, data: bytes, now_ms: int) -> int:
    """Make the first generation of a session, whose bytes are `data`, and make it survive power loss; its descriptor.

    Raises: FileExistsError where there is one; StoreFailedError (source `canonical-history`).
    """
    try:
        make_dirs(paths.directory, os.path.dirname(sessions_dir))
        write_manifest(paths, session_id, now_ms, 1)
        fault("after-manifest")
        return replace_file(paths.messages, data, durable=True, is_new=True)
    except FileExistsError:
        raise
    except OSError as error:
        raise _write_failure(paths.messages, error) from error


def write_manifest(paths: HistoryPaths, session_id: str, created_ms: int, generation: int) -> None:
    """Say whose history this is, and which generation stands.  Raises: OSError."""
    manifest = {
        "format": FORMAT_VERSION,
        "sessionId": session_id,
        "createdMs": created_ms,
        "generation": generation,
    }
    replace_file(paths.manifest, _encode(manifest) + b"\n", durable=False)


def open_history(
    paths: HistoryPaths,
    session_id: str,
    sessions_dir: str,
    *,
    known_bytes: int,
    takeover: bool,
    now_ms: int,
    may_change: bool = True,
) -> CanonicalHistory:
    """Open for a turn: load, repair, and take a new inode if the session was taken over.

    `known_bytes` is the part of the file whose rows are written (sessions.history_bytes).  What changes the
    file here would undo what others have written since it was read: `may_change` only where the lease
    cannot go meanwhile.
    Raises: HistoryCorruptError; StoreFailedError; NeedsChangeError.
    """
    history = CanonicalHistory(paths, session_id, sessions_dir)
    try:
        data = read_file(paths.messages)
    except FileNotFoundError:
        if known_bytes:
            raise HistoryCorruptError(
                f"the history of session {session_id} is missing: {paths.messages} does not exist; put it back, "
                f"or begin a new session (`mcode sessions show {session_id}` shows what else is kept of this one)",
                path=paths.messages,
            ) from None
        return history
    except OSError as error:
        raise StoreFailedError(f"{paths.messages} cannot be read: {error.strerror}") from error
    if not data and not known_bytes:
        if not may_change:
            raise NeedsChangeError
        try:
            os.unlink(paths.messages)  # it holds nothing; the first record makes it anew
        except OSError as error:
            raise _write_failure(paths.messages, error) from error
        return history
    loaded = parse(data, paths.messages)
    if not may_change and (takeover or loaded.torn_tail or loaded.was_rewritten):
        raise NeedsChangeError
    if loaded.torn_tail:
        kept = _set_aside(paths, loaded.torn_tail, now_ms)
        history.notices.append(
            (
                "history.torn-tail",
                f"a half-written last record was set aside as {kept}; nothing before it is lost",
            )
        )
    if loaded.header.session_id != session_id:
        raise HistoryCorruptError(
            f"{paths.messages} belongs to session {loaded.header.session_id}, not to {session_id}",
            path=paths.messages,
        )
    _check_manifest(paths, session_id, loaded, history.notices)
    history.records = [line.record for line in loaded.lines]
    history.beyond = [line for line in loaded.lines if line.end > known_bytes]
    whole = len(data) - len(loaded.torn_tail)
    if known_bytes > len(data):
        history.notices.append(
            ("history.shorter", f"{paths.messages} is shorter than the store knew; the file decides")
        )
    try:
        if loaded.was_rewritten:
            history.rewrite(serialise(loaded.header, history.records))
        elif takeover:
            history.rewrite(data[:whole])
        else:
            history._descriptor = os.open(paths.messages, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            history.size = whole
            if loaded.torn_tail:
                os.ftruncate(history._descriptor, whole)
                os.fsync(history._descriptor)
    except OSError as error:
        raise _write_failure(paths.messages, error) from error
    return history


def _set_aside(paths: HistoryPaths, data: bytes, now_ms: int) -> str:
    kept = os.path.join(paths.reports, f"torn-tail-{now_ms}.bin")
    try:
        make_dirs(paths.reports, os.path.dirname(paths.directory))
        os.close(replace_file(kept, data, durable=True))
    except OSError as error:
        raise _write_failure(kept, error) from error
    return kept


def _check_manifest(
    paths: HistoryPaths, session_id: str, loaded: Loaded, notices: list[tuple[str, str]]
) -> None:
    """`messages.jsonl` decides; a manifest that says otherwise is made anew, and that is said."""
    expected = {
        "format": FORMAT_VERSION,
        "sessionId": session_id,
        "generation": loaded.header.generation,
    }
    try:
        manifest = msgspec.json.decode(read_file(paths.manifest))
    except (OSError, ValueError, RecursionError):
        manifest = None
    if isinstance(manifest, dict):
        version = manifest.get("format")
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise StoreFailedError(
                f"{paths.manifest} was written by a newer mcode (format {version}); update mcode"
            )
        if all(manifest.get(key) == value for key, value in expected.items()):
            return
    notices.append(("history.manifest", f"{paths.manifest} disagreed with messages.jsonl and was made anew"))
    try:
        write_manifest(paths, session_id, loaded.header.at_ms, loaded.header.generation)
    except OSError as error:
        raise _write_failure(paths.manifest, error) from error


def _write_failure(path: str, error: OSError | None) -> StoreFailedError:
    why = error.strerror if error is not None and error.strerror else str(error)
    advice = (
        "free some space and run the command again"
        if error is not None and error.errno in (28, 122)
        else ("check the disk and its permissions")
    )
    return StoreFailedError(f"{path} could not be written: {why}; {advice}", source="canonical-history")
