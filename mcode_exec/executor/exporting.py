"""`sessions export`: a session as a document that leaves the data directory, secrets masked, piece by piece."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from decimal import Decimal
from functools import partial
from typing import Any, Literal

import msgspec

from mcode_exec.executor.inspect import masked_words
from mcode_exec.executor.pages import document
from mcode_exec.executor.runtime import Runtime
from mcode_exec.executor.showing import reading
from mcode_exec.records.export import FORMAT, FORMAT_VERSION, ExportedTurn
from mcode_exec.records.history import FileBlock, HistoryRecord, ImageBlock, ToolResultBlock
from mcode_exec.records.message import DisplayMessage, ToolPart
from mcode_exec.records.session import Session
from mcode_exec.records.shown import shown
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.attachments import Attachments
from mcode_exec.sessions.history_lines import HistoryLines
from mcode_exec.sessions.layout import history_paths
from mcode_exec.sessions.leaving import as_shown
from mcode_exec.sessions.masking import masked
from mcode_exec.store import export_rows, message_rows
from mcode_exec.version import VERSION

ExportFormat = Literal["mcode", "opencode", "claude", "markdown", "html"]
FORMATS: tuple[ExportFormat, ...] = ("mcode", "opencode", "claude", "markdown", "html")
BATCH = 80

_encoder = msgspec.json.Encoder(decimal_format="number")
_decode_result = msgspec.json.Decoder(float_hook=Decimal).decode
#: not told to others: places in this store, and what is derived
_PRIVATE = (
    "historyRelativeDir",
    "historyBytes",
    "deletingBy",
    "revert",
    "compactingMs",
    "cacheKey",
    "relocatedFrom",
    "isMadeAhead",
)


def known(form: str) -> ExportFormat:
    """The format that a word names.  Raises: ValueError."""
    return FORMATS[FORMATS.index(form)]


def export(
    data_dir: str | None, env: Mapping[str, str], name: str, form: ExportFormat
) -> AsyncGenerator[bytes]:
    """The pieces of a document of one session.  Raises: SessionError; HistoryCorruptError; StoreFailedError."""
    if form in ("html", "markdown"):
        return document(data_dir, env, name, "html" if form == "html" else "markdown")
    return _export(data_dir, env, name, form)


async def _export(
    data_dir: str | None, env: Mapping[str, str], name: str, form: ExportFormat
) -> AsyncGenerator[bytes]:
    async with reading(data_dir, env, name) as (runtime, session, redactor):
        if form == "mcode":
            pieces = _Document(runtime, session, redactor).pieces()
        else:
            from mcode_exec.exporters import claude, opencode

            writer: Any = opencode.Document if form == "opencode" else claude.Document
            pieces = _foreign(runtime, session, redactor, writer(masked_words(session, redactor), VERSION))
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece


async def _foreign(
    runtime: Runtime, session: Session, redactor: Redactor, writer: Any
) -> AsyncGenerator[bytes]:
    """A document of another program, made of the display messages."""
    paths = history_paths(runtime.sessions_dir, session.history_relative_dir)
    attachments = Attachments(paths, runtime.data)

    def bytes_of(digest: str) -> bytes | None:
        return attachments.find(digest)

    yield writer.head()
    after = 0
    while True:
        rows = await runtime.store.read(partial(message_rows.messages_after, session.id, after, BATCH))
        if not rows:
            break
        after = rows[-1][0]
        messages = [masked(message, redactor) for _, message in rows]
        for message in messages:
            yield await runtime.store.on_thread(partial(writer.message, message, bytes_of))
    yield writer.end()


class _Document:
    """mcode's own: everything that a session is, but what can be made anew."""

    def __init__(self, runtime: Runtime, session: Session, redactor: Redactor) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._session = session
        self._redactor = redactor
        paths = history_paths(runtime.sessions_dir, session.history_relative_dir)
        self._messages_path = paths.messages
        self._attachments = Attachments(paths, runtime.data)
        #: digests that records name, in their order
        self._digests: dict[str, None] = {}
        self._prefixes: dict[str, None] = {}
        self._known: set[str] = set()
        #: messages with calls whose results are still to come, by call id
        self._holders: dict[str, DisplayMessage] = {}

    async def pieces(self) -> AsyncGenerator[bytes]:
        lines = await self._store.on_thread(lambda: HistoryLines(self._messages_path))
        try:
            yield self._head(lines)
            yield b',\n"history":['
            async for piece in _joined(self._records(lines)):
                yield piece
        finally:
            await self._store.on_thread(lines.close)
        for name, values in (
            ("messages", self._earlier_messages()),
            ("turns", self._turns()),
            ("usage", self._usage()),
        ):
            yield b"],\n" + f'"{name}":['.encode()
            async for piece in _joined(values):
                yield piece
        for name, pairs in (("prefixes", self._prefix_bodies()), ("attachments", self._files())):
            yield (b"],\n" if name == "prefixes" else b"},\n") + f'"{name}":{{'.encode()
            async for piece in _joined(pairs):
                yield piece
        yield b"}}\n"

    def _head(self, lines: HistoryLines) -> bytes:
        info = shown(masked_words(self._session, self._redactor))
        for name in _PRIVATE:
            info.pop(name, None)
        head = {
            "format": FORMAT,
            "formatVersion": FORMAT_VERSION,
            "mcodeVersion": VERSION,
            "exportedMs": self._runtime.clock.now_ms(),
            "session": self._redactor.json(info),
            "generation": None if lines.header is None else msgspec.to_builtins(lines.header),
        }
        return _encoder.encode(head)[:-1]

    async def _records(self, lines: HistoryLines) -> AsyncIterator[bytes]:
        while True:
            records = await self._store.on_thread(partial(lines.next, BATCH))
            if not records:
                return
            rows = await self._store.read(partial(self._rows_of, records))
            for record in records:
                self._note(record, rows.get(record.id))
                yield _encoder.encode(as_shown(record, rows.get(record.id), self._holders, self._redactor))

    def _rows_of(self, records: list[HistoryRecord]) -> dict[str, DisplayMessage]:
        found = {}
        for record in records:
            if record.message.role != "tool":
                row = message_rows.find_message(self._session.id, record.id)
                if row is not None:
                    found[record.id] = row[1]
        return found

    def _note(self, record: HistoryRecord, row: DisplayMessage | None) -> None:
        if record.message.role != "tool":
            self._known.add(record.id)
            if row is not None:
                calls = [part.call_id for part in row.parts if isinstance(part, ToolPart)]
                self._holders = dict.fromkeys(calls, row)
        if record.prefix is not None:
            self._prefixes[record.prefix] = None
        for block in record.message.content:
            if isinstance(block, ImageBlock | FileBlock):
                self._digests[block.digest] = None
            elif isinstance(block, ToolResultBlock):
                self._holders.setdefault(block.call_id, _NOBODY)

    async def _earlier_messages(self) -> AsyncIterator[bytes]:
        """Those of earlier generations: no record of the history makes them."""
        after = 0
        while True:
            rows = await self._store.read(
                partial(message_rows.messages_after, self._session.id, after, BATCH)
            )
            if not rows:
                return
            after = rows[-1][0]
            for _, message in rows:
                if message.id not in self._known:
                    yield _encoder.encode(msgspec.to_builtins(masked(message, self._redactor)))

    async def _turns(self) -> AsyncIterator[bytes]:
        after = 0
        while True:
            receipts = await self._store.read(
                partial(export_rows.settled_after, self._session.id, after, BATCH)
            )
            if not receipts:
                return
            after = receipts[-1].sequence
            for receipt in receipts:
                turn = ExportedTurn(
                    turn_id=receipt.turn_id,
                    digest=receipt.digest,
                    source=receipt.source,
                    attempt=receipt.attempt,
                    accepted_ms=receipt.accepted_ms,
                    settled_ms=receipt.settled_ms or receipt.accepted_ms,
                    outcome=receipt.outcome or "failed",
                    reason=receipt.reason,
                    code=receipt.code,
                    is_dispatched=receipt.is_dispatched,
                    result=None if receipt.result is None else _decode_result(receipt.result),
                )
                plain = msgspec.to_builtins(turn, builtin_types=(Decimal,))
                yield _encoder.encode(self._redactor.json(plain))

    async def _usage(self) -> AsyncIterator[bytes]:
        after = 0
        while True:
            rows = await self._store.read(partial(export_rows.usage_after, self._session.id, after, BATCH))
            if not rows:
                return
            after = rows[-1][0]
            for _, usage in rows:
                yield _encoder.encode(usage)

    async def _prefix_bodies(self) -> AsyncIterator[bytes]:
        for digest in self._prefixes:
            body = await self._store.read(partial(export_rows.prefix_body, digest))
            if body is not None:
                text = self._redactor.text(body.decode("utf-8", "replace"))
                yield _encoder.encode(digest) + b":" + _encoder.encode(text)

    async def _files(self) -> AsyncIterator[bytes]:
        for digest in self._digests:
            data = await self._store.on_thread(partial(self._attachments.find, digest))
            body = None if data is None else base64.b64encode(data).decode()
            yield _encoder.encode(digest) + b":" + _encoder.encode(body)


_NOBODY = DisplayMessage(id="", session_id="", turn_id="", role="assistant", created_ms=0, parts=())


async def _joined(values: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Values with commas and line ends between them."""
    is_first = True
    async for value in values:
        yield (b"\n" if is_first else b",\n") + value
        is_first = False
