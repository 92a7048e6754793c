"""What the bytes of a history file mean: a header line, then one record a line, each ending in `\\n`.

Pure functions; what cannot be read says file and line.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mcode_exec.errors import HistoryCorruptError
from mcode_exec.records.history import GenerationHeader, HistoryRecord

_encode_lines = msgspec.json.Encoder().encode_lines
_records = msgspec.json.Decoder(HistoryRecord)
_headers = msgspec.json.Decoder(GenerationHeader)


class Line(msgspec.Struct, frozen=True, gc=False):
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


def serialise(header: GenerationHeader | None, records: Sequence[HistoryRecord]) -> bytes:
    """A whole generation as the bytes of its file; without a header, lines to add to one."""
    return _encode_lines([*records] if header is None else [header, *records])
