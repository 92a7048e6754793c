"""mcode's own export, read back: one JSON document, `mcode.session` of format version 2.

Everything in it is held to its type; ids, digests and times are held to what
they may be, since files and rows are named by them.  Nothing is written here.
"""

from __future__ import annotations

import os
import re

import msgspec
from msgspec import Struct

from mcode_exec.ids import is_session_id
from mcode_exec.importers.values import BOM
from mcode_exec.paths import open_regular
from mcode_exec.records.export import FORMAT, FORMAT_VERSION, ExportedSession

#: of a document; attachments are in it
MAX_BYTES = 1024 * 1024 * 1024
_HEAD_BYTES = 4096
_MARK = re.compile(rb'\A\s*\{\s*"format"\s*:\s*"mcode\.session"')
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}")
_LAST_MS = 253_402_300_799_999  # the end of the year 9999


class UnusableExportError(Exception):
    """A document that cannot be taken in; the message says why."""


class _Head(Struct, rename="camel"):
    format: str = ""
    format_version: int = 0


_heads = msgspec.json.Decoder(_Head)
_documents = msgspec.json.Decoder(ExportedSession)


def is_mcode_export(path: str) -> bool:
    """Whether a file begins as an export of mcode does.  Raises: OSError."""
    with open(open_regular(path), "rb") as file:
        return _MARK.match(file.read(_HEAD_BYTES).removeprefix(BOM)) is not None


def read_export(path: str) -> ExportedSession:
    """The session of a document.  Raises: UnusableExportError; OSError."""
    with open(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_BYTES:
            raise UnusableExportError(f"{path} has more than {MAX_BYTES >> 20} MiB")
        data = file.read(MAX_BYTES + 1)
    return parse_export(data, path)


def parse_export(data: bytes, path: str) -> ExportedSession:
    """Likewise of a document's bytes; `path` is what a message calls it."""
    data = data.removeprefix(BOM)
    try:
        head = _heads.decode(data)
    except (ValueError, RecursionError) as error:
        raise UnusableExportError(f"{path} is no JSON document: {error}") from error
    if head.format != FORMAT:
        raise UnusableExportError(f"{path} is no export of mcode: its `format` is not {FORMAT}")
    if head.format_version < FORMAT_VERSION:
        raise UnusableExportError(
            f"{path} is of format version {head.format_version}, which has no history; export the session anew"
        )
    if head.format_version > FORMAT_VERSION:
        raise UnusableExportError(
            f"{path} was written by a newer mcode (format version {head.format_version}, this one knows "
            f"{FORMAT_VERSION}); update mcode"
        )
    try:
        document = _documents.decode(data)
    except (ValueError, RecursionError) as error:
        raise UnusableExportError(f"{path} cannot be taken in: {error}") from error
    _check(document, path)
    return document


def _check(document: ExportedSession, path: str) -> None:
    info = document.session
    if not is_session_id(info.id):
        raise UnusableExportError(f"{path}: {info.id[:80]!r} is no session id")
    if document.generation is None and document.history:
        raise UnusableExportError(f"{path} has a history without the line that begins it")
    ids = [one for record in document.history for one in (record.id, record.turn_id)]
    ids += [turn.turn_id for turn in document.turns]
    ids += [one for usage in document.usage for one in (usage.turn_id, usage.message_id)]
    if info.last_turn_id is not None:
        ids.append(info.last_turn_id)
    for one in ids:
        if _ID.fullmatch(one) is None:
            raise UnusableExportError(f"{path}: {one[:80]!r} is no id of a message or turn")
    times = [info.created_ms, info.updated_ms, info.activity_ms, info.archived_ms or 0]
    times += [record.at_ms for record in document.history]
    times += [at for turn in document.turns for at in (turn.accepted_ms, turn.settled_ms)]
    times += [usage.at_ms for usage in document.usage]
    for at_ms in times:
        if not 0 <= at_ms <= _LAST_MS:
            raise UnusableExportError(f"{path}: {at_ms} is no time of UTC milliseconds")
