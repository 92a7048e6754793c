"""How a step goes over a connection, byte by byte: framing, pauses, and every way of breaking off."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from tests.support import wire
from tests.support.steps import (
    CLOSE_EARLY,
    CUT,
    END,
    MID_CHUNK,
    MID_EVENT,
    RESET,
    STALL,
    Answer,
    Close,
    Gated,
    Hang,
    Raw,
    Reset,
    Status,
    Step,
)

if TYPE_CHECKING:
    from tests.support.peer import Request

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


async def send(
    step: Step,
    request: Request,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    keep_alive: bool,
) -> bool:
    """Carry out `step`; True if the connection can take another request."""
    if isinstance(step, Gated):
        step.gate.reach()
        if not await _while_connected(_gate_opens(step), request, reader):
            return False
        return await send(step.step, request, reader, writer, keep_alive=keep_alive)
    if isinstance(step, Hang):
        await _client_leaves(request, reader)
        return False
    if isinstance(step, Reset):
        _reset(writer)
        return False
    if isinstance(step, Close):
        return False
    if isinstance(step, Status):
        return await _send_status(step, request, writer, keep_alive)
    if isinstance(step, Raw):
        return await _send_raw(step, request, reader, writer)
    assert isinstance(step, Answer), f"no step: {step!r}"
    if not await _while_connected(asyncio.sleep(step.first_byte_s), request, reader):
        return False
    assert request.api is not None
    if not request.json.get("stream"):
        return await _send_status(
            Status(200, wire.body(request.api, step, request.json), step.headers), request, writer, keep_alive
        )
    return await _send_stream(step, request, reader, writer, keep_alive)


def _head(code: int, headers: Any, *extra: tuple[str, str]) -> bytes:
    pairs: list[tuple[str, str]] = list(headers.items()) if hasattr(headers, "items") else list(headers)
    named = {name.lower() for name, _ in pairs}
    pairs += [(name, value) for name, value in extra if name.lower() not in named]
    lines = [f"HTTP/1.1 {code} {_REASONS.get(code, 'Scripted')}", *(f"{n}: {v}" for n, v in pairs)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


async def _send_status(
    step: Status, request: Request, writer: asyncio.StreamWriter, keep_alive: bool
) -> bool:
    kind = "application/json"
    body = step.body
    if body is None:
        body = b""
    elif isinstance(body, str):
        body, kind = body.encode("utf-8", "surrogatepass"), "text/plain; charset=utf-8"
    elif not isinstance(body, bytes):
        body = json.dumps(body).encode()
    connection = "keep-alive" if keep_alive else "close"
    head = _head(
        step.code,
        step.headers,
        ("content-type", kind),
        ("content-length", str(len(body))),
        ("connection", connection),
    )
    writer.write(head + body)
    await writer.drain()
    request.answered_s = time.monotonic()
    return keep_alive


async def _send_raw(
    step: Raw, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """The body ends with the connection, unless the headers given say otherwise."""
    if step.with_head:
        extra = (("content-type", "text/event-stream"), ("connection", "close"))
        writer.write(_head(step.status, step.headers, *extra))
    for chunk in step.chunks:
        if isinstance(chunk, bytes):
            writer.write(chunk)
            await writer.drain()
            request.answered_s = time.monotonic()
        elif not await _while_connected(asyncio.sleep(chunk), request, reader):
            return False
    await _end_early(step.ending, request, reader, writer)
    return False


async def _send_stream(
    step: Answer,
    request: Request,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    keep_alive: bool,
) -> bool:
    pieces = _pieces(step, request)
    extra = [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-cache"),
        ("transfer-encoding", "chunked"),
        ("connection", "keep-alive" if keep_alive else "close"),
    ]
    if step.gzip:
        extra.append(("content-encoding", "gzip"))
    writer.write(_head(200, step.headers, *extra))
    for at, piece in enumerate(pieces):
        if at and step.delay_s and not await _while_connected(asyncio.sleep(step.delay_s), request, reader):
            return False
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if step.split or step.delay_s or at % 64 == 0:
            await writer.drain()
            # each piece in a segment of its own, as far as a kernel allows
            await asyncio.sleep(0)
    if step.ending in (END, CLOSE_EARLY, MID_EVENT):
        writer.write(b"0\r\n\r\n")
    elif step.ending == MID_CHUNK:
        writer.write(b"400\r\ndata: {")
    await writer.drain()
    request.answered_s = time.monotonic()
    if step.ending in (CUT, RESET, STALL, MID_CHUNK):
        await _end_early(step.ending, request, reader, writer)
        return False
    return keep_alive


def _pieces(step: Answer, request: Request) -> list[bytes]:
    """What is written, chunk by chunk."""
    assert request.api is not None
    events = wire.events(request.api, step, request.json)
    if step.ending == MID_EVENT:
        events[-1] = events[-1][:40]
    elif step.ending != END:
        events.pop()
    events[:0] = [f": {comment}\n\n".encode() for comment in step.comments]
    if not step.gzip and not step.split:
        return events
    whole = b"".join(events)
    if step.gzip:
        whole = gzip.compress(whole)
    size = step.split or max(1, len(whole) // max(1, len(events)))
    return [whole[start : start + size] for start in range(0, len(whole), size)]


async def _end_early(
    ending: str, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    await writer.drain()
    if ending == RESET:
        # what was written should arrive before the reset overtakes it
        await asyncio.sleep(0.05)
        _reset(writer)
    elif ending == STALL:
        await _client_leaves(request, reader)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _gate_opens(step: Gated) -> None:
    while not step.gate.is_open:
        await asyncio.sleep(0.005)


async def _client_leaves(request: Request, reader: asyncio.StreamReader) -> None:
    """Returns when the client has closed its side; nothing it sends is looked at."""
    try:
        while await reader.read(65536):
            pass
    except ConnectionError:
        pass
    request.gone_s = time.monotonic()


async def _while_connected(waiting: Any, request: Request, reader: asyncio.StreamReader) -> bool:
    """Await `waiting` unless the client leaves first; True if it has stayed."""
    # a watcher would take the next request's bytes, so it looks at end of file only
    task = asyncio.ensure_future(waiting)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=0.02)
            if reader.at_eof() and not task.done():
                request.gone_s = time.monotonic()
                return False
        return True
    finally:
        task.cancel()
