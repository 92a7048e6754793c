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
from mcode_exec.records.history import GenerationHeader, HistoryRecord
from mcode_exec.sessions.layout import HistoryPaths, make_dirs, read_file, sync_dir

FORMAT_VERSION = 1
_APPEND_PAUSES_S = (0.025, 0.05)  # between at most 3 attempts; source: session-system notes

_encode = msgspec.json.Encoder().encode
_records = msgspec.json.Decoder(HistoryRecord)
_headers = msgspec.json.Decoder(GenerationHeader)


class Line(msgspec.Struct, frozen=True):
    """A record and the offset just past it in the file."""

    record: HistoryRecord
    end: int


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds."""

    header: GenerationHeader
    lines: tuple[Line, ...]
    #: bytes after the last whole line: torn by a crash, never acknowledged
    torn_tail: bytes = b""
    #: True when the lines on disk are not the lines here: welded records were split
    was_rewritten: bool = False


def read_record(raw: bytes) -> HistoryRecord:
    """The record of one line.  Raises: ValueError for a line that is none."""
    try:
        return _records.decode(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_header(raw: bytes) -> GenerationHeader:
    """The header of a generation.  Raises: ValueError for a line that is none."""
    try:
        return _headers.decode(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse(data: bytes, path: str) -> Loaded:
    """Read a whole file.

    Raises: HistoryCorruptError, naming file and line, for a line that is no record.
    """
    body_end = data.rfind(b"\n") + 1
    tail = data[body_end:]
    body = data[:body_end]
    if tail:
        # A whole line that only lacks its newline was written; nothing of it is lost.
        try:
            read_record(tail) if body else read_header(tail)
        except ValueError:
            pass
        else:
            body, tail = data + b"\n", b""
    raw_lines = body.split(b"\n")[:-1]
    header, lines, offset = None, [], 0
    was_rewritten = len(body) > len(data)
    for number, raw in enumerate(raw_lines, start=1):
        offset += len(raw) + 1
        if number == 1:
            header = _header(raw, path)
            continue
        try:
            lines.append(Line(read_record(raw), offset))
        except ValueError as error:
            split = split_welded(raw)
            if split is None:
                raise _corrupt(path, number, error) from error
            lines.extend(Line(record, offset) for record in split)
            was_rewritten = True
    if header is None:
        raise _corrupt(path, 1, "the generation header is missing")
    return Loaded(header=header, lines=tuple(lines), torn_tail=tail, was_rewritten=was_rewritten)


def _header(raw: bytes, path: str) -> GenerationHeader:
    try:
        return read_header(raw)
    except ValueError as error:
        raise _corrupt(path, 1, error) from error


def _corrupt(path: str, line: int, why: object) -> HistoryCorruptError:
    return HistoryCorruptError(
        f"{path} line {line} is no history record ({why}); nothing was changed. "
        "`mcode sessions verify --repair SESSION` sets the line aside",
        path=path,
        line=line,
    )


def split_welded(raw: bytes) -> list[HistoryRecord] | None:
    """The records of a line onto which several were written; None if it is anything else."""
    import json

    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    decoder, position, records = json.JSONDecoder(), 0, []
    while position < len(text):
        try:
            value, position = decoder.raw_decode(text, position)
            records.append(msgspec.convert(value, HistoryRecord))
        except (ValueError, RecursionError):
            return None
    return records if len(records) > 1 else None


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
        data = b"".join(_encode(record) + b"\n" for record in records)
        if self._descriptor is None:
            header = GenerationHeader(generation=1, session_id=self.session_id, at_ms=now_ms)
            self._create(_encode(header) + b"\n" + data, now_ms)
        else:
            self._append(data)
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
                    f"{self.paths.messages} has {status.st_size} bytes where {self.size} were expected; "
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
            make_dirs(self.paths.directory, os.path.dirname(self._sessions_dir))
            manifest = {
                "format": FORMAT_VERSION,
                "sessionId": self.session_id,
                "createdMs": now_ms,
                "generation": 1,
            }
            replace_file(self.paths.manifest, _encode(manifest) + b"\n", durable=False)
            fault("after-manifest")
            self._descriptor = replace_file(self.paths.messages, data, durable=True, is_new=True)
        except FileExistsError as error:
            # We were stopped before our first record; who took the session over has written meanwhile.
            raise LeaseLostError(f"session {self.session_id} was taken over by another process") from error
        except OSError as error:
            raise _write_failure(self.paths.messages, error) from error
        self.size = len(data)

    def rewrite(self, data: bytes) -> None:
        """Give the file a new inode with `data` as its content, and keep that one open."""
        self.close()
        try:
            self._descriptor = replace_file(self.paths.messages, data, durable=True)
        except OSError as error:
            raise _write_failure(self.paths.messages, error) from error
        self.size = len(data)


def open_history(
    paths: HistoryPaths, session_id: str, sessions_dir: str, *, known_bytes: int, takeover: bool, now_ms: int
) -> CanonicalHistory:
    """Open for a turn: load, repair, and take a new inode if the session was taken over.

    `known_bytes` is the part of the file whose rows are written (sessions.history_bytes).
    Raises: HistoryCorruptError; StoreFailedError.
    """
    history = CanonicalHistory(paths, session_id, sessions_dir)
    try:
        data = read_file(paths.messages)
    except FileNotFoundError:
        if known_bytes:
            raise HistoryCorruptError(
                f"the history of session {session_id} is missing: {paths.messages} does not exist",
                path=paths.messages,
            ) from None
        return history
    except OSError as error:
        raise StoreFailedError(f"{paths.messages} cannot be read: {error.strerror}") from error
    if not data and not known_bytes:
        try:
            os.unlink(paths.messages)  # it holds nothing; the first record makes it anew
        except OSError as error:
            raise _write_failure(paths.messages, error) from error
        return history
    loaded = parse(data, paths.messages)
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


def serialise(header: GenerationHeader, records: Sequence[HistoryRecord]) -> bytes:
    """A whole generation as the bytes of its file."""
    return b"".join([_encode(header), b"\n", *(_encode(record) + b"\n" for record in records)])


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
        "createdMs": loaded.header.at_ms,
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
        if all(manifest.get(key) == expected[key] for key in ("format", "sessionId", "generation")):
            return
    notices.append(("history.manifest", f"{paths.manifest} disagreed with messages.jsonl and was made anew"))
    try:
        replace_file(paths.manifest, _encode(expected) + b"\n", durable=False)
    except OSError as error:
        raise _write_failure(paths.manifest, error) from error


def replace_file(path: str, data: bytes, *, durable: bool, is_new: bool = False) -> int:
    """Write `data` to a new inode and move it over `path`; durable: returns its descriptor, else -1.

    `is_new`: nothing may stand at `path` yet.  Raises: OSError; FileExistsError if something does.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
        if is_new:
            _name_new(temporary, path)
        else:
            os.rename(temporary, path)
        if durable:
            sync_dir(os.path.dirname(path))
            return descriptor
    except BaseException:
        os.close(descriptor)
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
    os.close(descriptor)
    return -1


def _name_new(temporary: str, path: str) -> None:
    """Rename, but never over something: of two who do it at once one gets FileExistsError."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: what cannot be one step is at least looked at first.
        if os.path.lexists(path):
            raise FileExistsError(17, "exists", path) from None
        os.rename(temporary, path)
    else:
        os.unlink(temporary)


def _write_failure(path: str, error: OSError | None) -> StoreFailedError:
    why = error.strerror if error is not None and error.strerror else str(error)
    advice = (
        "free some space and run the command again"
        if error is not None and error.errno in (28, 122)
        else ("check the disk and its permissions")
    )
    return StoreFailedError(f"{path} could not be written: {why}; {advice}", source="canonical-history")
