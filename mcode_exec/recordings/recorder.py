"""`--record`: what goes to a provider and what comes back, kept as it happens, secrets masked.

A recorder stands around a transport and changes nothing of what passes: a run
that is recorded is the run it would be otherwise, except that it ends when
what it was asked to keep cannot be written.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mcode_exec.errors import InvocationError, McodeError, OutputWriteFailedError
from mcode_exec.providers.failures import Headers
from mcode_exec.providers.transport import Response, Transport
from mcode_exec.providers.url import Url
from mcode_exec.recordings import layout
from mcode_exec.recordings.layout import End, Exchange, Failure, Manifest, RecordedCall
from mcode_exec.recordings.rewriting import masked, recut
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.redaction import MASK, Redactor

FLAG = "--record"
#: so much of one answer is kept; what goes beyond is passed on all the same
MAX_KEPT_BYTES = 64 * 1024 * 1024
#: ends of the names of headers that are secret whatever stands in them
_SECRET_HEADERS = ("authorization", "cookie", "key", "token", "secret")


def check_target(directory: str) -> None:
    """Whether a recording can be made there; nothing is made.  Raises: InvocationError, OutputWriteFailedError."""
    try:
        layout.names_to_replace(directory)
        os.close(_hold(directory))
    except FileNotFoundError:
        directory = os.path.dirname(directory)
        while not os.path.lexists(directory):
            directory = os.path.dirname(directory)
    except OSError as error:
        raise _failed(directory, error) from error
    if not (os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)):
        raise OutputWriteFailedError(f"{FLAG}: nothing can be made in {directory}")


def _hold(directory: str) -> int:
    """A descriptor under which nobody else records there.  Raises: InvocationError; OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise InvocationError(
            f"{FLAG}: another run is recording into {directory}; name another one"
        ) from None
    except OSError:
        pass  # a file system without such locks: nobody is noticed
    return fd


class Recorder:
    """Writes one recording."""

    def __init__(self, directory: str, manifest: Manifest, redactor: Redactor) -> None:
        """Make the directory; an earlier recording in it goes.  Raises: OutputWriteFailedError, InvocationError."""
        self._directory = directory
        self._redactor = redactor
        self._requests = 0
        self._failure: OutputWriteFailedError | None = None
        self._held: int | None = None
        try:
            layout.make_directory(directory)
            self._held = _hold(directory)
            for name in layout.names_to_replace(directory):
                os.unlink(os.path.join(directory, name))
            text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
            layout.write(os.path.join(directory, layout.MANIFEST), self._masked(text) + b"\n")
        except OSError as error:
            raise _failed(directory, error) from error

    def around(self, transport: Transport) -> Transport:
        """A transport that is recorded."""
        return _RecordedTransport(self, transport)

    def keep_call(self, call_id: str, name: str, arguments: Mapping[str, Any], outcome: ToolOutcome) -> None:
        """One tool call and what it gave back."""
        call = msgspec.to_builtins(
            RecordedCall(id=call_id, name=name, arguments=dict(arguments), outcome=outcome)
        )
        self._write(layout.TOOLS, msgspec.json.encode(self._redactor.json(call)) + b"\n", flags=os.O_APPEND)

    def close(self) -> None:
        """The recording is over: another may be made in its place."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def check(self) -> None:
        """Raise OutputWriteFailedError if something could not be kept."""
        if self._failure is not None:
            raise self._failure

    def begin(self, body: bytes) -> int:
        """The number of a request that is about to be sent.  Raises: OutputWriteFailedError, and nothing is sent."""
        self._requests += 1
        self._write(os.path.basename(layout.request_path("", self._requests)), self._masked(body))
        self.check()
        return self._requests

    def end(self, number: int, exchange: Exchange, body: bytes) -> None:
        """An exchange that is over, with the bytes of its answer."""
        kept = self._masked(body)
        if len(kept) != len(body):
            exchange = msgspec.structs.replace(exchange, pieces=recut(exchange.pieces, len(kept)))
        if exchange.status is not None:
            self._write(os.path.basename(layout.response_path("", number)), kept)
        described = msgspec.json.encode(self._redactor.json(msgspec.to_builtins(exchange)))
        self._write(os.path.basename(layout.exchange_path("", number)), described + b"\n")

    def _write(self, name: str, data: bytes, *, flags: int = os.O_TRUNC) -> None:
        # an answer that cannot be kept is one all the same: the run ends before its next request
        try:
            layout.write(os.path.join(self._directory, name), data, flags=flags)
        except OSError as error:
            self._failure = self._failure or _failed(self._directory, error)

    def _masked(self, data: bytes) -> bytes:
        return masked(data, self._redactor)


class _RecordedTransport:
    def __init__(self, recorder: Recorder, inner: Transport) -> None:
        self._recorder = recorder
        self._inner = inner

    async def post(
        self, url: Url, headers: Headers, body: bytes, *, on_connected: Callable[[], None]
    ) -> Response:
        number = self._recorder.begin(body)
        sent_s = time.monotonic()
        where, lines = f"{url.scheme}://{url.netloc}{url.target.partition('?')[0]}", _lines(headers)
        try:
            response = await self._inner.post(url, headers, body, on_connected=on_connected)
        except BaseException as error:
            took_ms = _since(sent_s)
            failure = _failure_of(error)
            self._recorder.end(
                number,
                Exchange(
                    url=where,
                    headers=lines,
                    end="failed" if failure else "given-up",
                    end_ms=took_ms,
                    failure=failure,
                ),
                b"",
            )
            raise
        begun = Exchange(
            url=where,
            headers=lines,
            proxy=response.proxy,
            status=response.status,
            response_headers=_lines(response.headers),
            head_ms=_since(sent_s),
            end="complete",
        )
        return _RecordedResponse(self._recorder, number, begun, sent_s, response)

    async def close(self) -> None:
        await self._inner.close()


class _RecordedResponse:
    def __init__(
        self, recorder: Recorder, number: int, begun: Exchange, sent_s: float, inner: Response
    ) -> None:
        self.status = inner.status
        self.headers = inner.headers
        self.proxy = inner.proxy
        self._recorder = recorder
        self._number = number
        self._begun = begun
        self._sent_s = sent_s
        self._inner = inner
        self._pieces: list[tuple[int, int]] = []
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._is_over = False

    async def read(self) -> bytes:
        try:
            data = await self._inner.read()
        except McodeError as error:
            self._end("failed", _failure_of(error))
            raise
        if data:
            self._take(data)
        else:
            self._end("complete")
        return data

    async def read_at_most(self, limit: int, limit_s: float) -> bytes:
        data = await self._inner.read_at_most(limit, limit_s)
        if data:
            self._take(data)
        self._end("complete" if len(data) < limit else "released")
        return data

    def release(self) -> None:
        self._inner.release()
        self._end("released")

    def abort(self) -> None:
        self._inner.abort()
        self._end("given-up")

    def _take(self, data: bytes) -> None:
        if self._kept_bytes < MAX_KEPT_BYTES:
            self._kept.append(data[: MAX_KEPT_BYTES - self._kept_bytes])
            self._kept_bytes += len(self._kept[-1])
            self._pieces.append((_since(self._sent_s), len(self._kept[-1])))

    def _end(self, end: End, failure: Failure | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        exchange = msgspec.structs.replace(
            self._begun, pieces=self._pieces, end=end, end_ms=_since(self._sent_s), failure=failure
        )
        self._recorder.end(self._number, exchange, b"".join(self._kept))


def _since(start_s: float) -> int:
    return round((time.monotonic() - start_s) * 1000)


def _lines(headers: Headers) -> list[tuple[str, str]]:
    """Header lines for people; what is secret by its name is masked."""
    decoded = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    return [(name, MASK if name.lower().endswith(_SECRET_HEADERS) else value) for name, value in decoded]


def _failure_of(error: BaseException) -> Failure | None:
    return Failure(code=error.code, message=error.message) if isinstance(error, McodeError) else None


def _failed(directory: str, error: OSError) -> OutputWriteFailedError:
    return OutputWriteFailedError(f"{FLAG}: cannot write into {directory}: {error.strerror or error}")
