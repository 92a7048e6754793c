"""A lean HTTP/1.1 client: h11 on asyncio streams, one POST at a time per connection.

Invariants: no redirect is followed; every wait ends with the task, and a task
that is cancelled leaves no socket behind; a connection goes back to the pool
only when its answer was read to the end, or can be on the next use.  A reused
connection that the server had closed in the meantime is dialled anew, once,
before anything counts as a failure.  Time limits on answers are the caller's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import h11

from mcode_exec.errors import ConfigError, ModelCallError
from mcode_exec.providers.dialing import Origin, Pipe, dial
from mcode_exec.providers.failures import Headers, header, printable
from mcode_exec.providers.proxy import proxy_for

if TYPE_CHECKING:
    import ssl

_READ_BYTES = 64 * 1024
MAX_HEADER_BYTES = 128 * 1024
_MAX_INFORMATIONAL = 16
#: longest wait for the end of an answer whose content is complete, when its connection is wanted again
_FINISH_S = 0.05
#: an idle connection older than this is not worth trying
_MAX_IDLE_S = 55.0
_MAX_POOLED = 8


class _StaleConnectionError(Exception):
    """A reused connection was closed before it answered."""


class Url:
    """An http or https address, taken apart.

    Written out because urllib.parse costs every start more than this does.
    Raises: ConfigError for anything else.
    """

    def __init__(self, text: str) -> None:
        scheme, found, rest = text.strip().partition("://")
        self.scheme = scheme.lower()
        if not found or self.scheme not in ("http", "https"):
            raise ConfigError("base_url must begin with http:// or https:// and name a host")
        rest = rest.partition("#")[0]
        end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
        if "@" in rest[:end]:
            raise ConfigError("base_url holds a user name or password; send them as a header instead")
        host, port = _host_and_port(rest[:end])
        if not host or any(c.isspace() for c in host):
            raise ConfigError("base_url must begin with http:// or https:// and name a host")
        self.host = host.lower() if host.isascii() else _ascii_host(host)
        self.port = port or (443 if self.scheme == "https" else 80)
        target = rest[end:] if rest[end:].startswith("/") else "/" + rest[end:]
        if not target.isascii() or not target.isprintable() or " " in target:
            from urllib.parse import quote

            target = quote(target, safe="/?&=%:@!$'()*+,;~[]")
        self.target = target


def _host_and_port(netloc: str) -> tuple[str, int | None]:
    if netloc.startswith("["):
        host, _, port = netloc[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = netloc.partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise ConfigError("base_url has a port that is no port; write https://host:443/path")
    return host, int(port) if port else None


def _ascii_host(host: str) -> str:
    if host.isascii():
        return host  # and the codec, with its tables, stays unloaded
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ConfigError("base_url names a host that is no host name") from None


class Response:
    """Status and headers of an answer; the body is read piece by piece, decoded."""

    def __init__(self, connection: _Connection, event: h11.Response) -> None:
        self.status = event.status_code
        self.headers: Headers = [(bytes(name), bytes(value)) for name, value in event.headers]
        self._connection = connection
        self._decoder = _decoder_for(header(self.headers, b"content-encoding"), self)

    async def read(self) -> bytes:
        """The next bytes of the body; b"" at its end.

        Raises: ModelCallError (LLM_UPSTREAM_ERROR) if the connection breaks.
        """
        while True:
            data = await self._connection.read_body()
            if self._decoder is None or not data:
                return data
            try:
                data = self._decoder.decode(data)
            except ValueError as error:
                raise ModelCallError(
                    "LLM_UPSTREAM_ERROR", f"the compressed answer of {self._connection.origin} is damaged"
                ) from error
            if data:
                return data

    async def read_at_most(self, limit: int) -> bytes:
        """The body up to `limit` bytes; what a broken connection cut off is not missed."""
        pieces: list[bytes] = []
        size = 0
        try:
            while size < limit and (data := await self.read()):
                pieces.append(data)
                size += len(data)
        except ModelCallError:
            pass
        return b"".join(pieces)[:limit]

    def release(self) -> None:
        """The caller is done: keep the connection if it may serve again."""
        self._connection.release()

    def abort(self) -> None:
        """Close the connection at once."""
        self._connection.abort()


class _Inflater:
    """gzip or deflate, as it comes, in bounded pieces."""

    def __init__(self, coding: str) -> None:
        import zlib

        self._zlib = zlib
        self._is_gzip = coding != "deflate"
        self._stream: Any = zlib.decompressobj(31) if self._is_gzip else None

    def decode(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while data:
            if self._stream is None or self._stream.eof:
                self._stream = self._zlib.decompressobj(self._window(data))
            try:
                piece = self._stream.decompress(data, 64 * 1024 * 1024)
            except self._zlib.error as error:
                raise ValueError(str(error)) from None
            size += len(piece)
            if size > 64 * 1024 * 1024:
                raise ValueError("too large")
            pieces.append(piece)
            data = self._stream.unconsumed_tail or self._stream.unused_data
        return b"".join(pieces)

    def _window(self, data: bytes) -> int:
        if self._is_gzip:
            return 31
        # "deflate" means zlib's format, but some send the bare one
        return 15 if data[0] & 0x0F == 8 and len(data) > 1 and (data[0] << 8 | data[1]) % 31 == 0 else -15


def _decoder_for(coding: str | None, response: Response) -> _Inflater | None:
    coding = (coding or "identity").lower()
    if coding in ("identity", ""):
        return None
    if coding in ("gzip", "x-gzip", "deflate"):
        return _Inflater(coding)
    response.abort()
    raise ModelCallError(
        "LLM_BAD_RESPONSE",
        printable(f"the answer is coded as {coding!r}, though only plain answers were asked for"),
        http_status=response.status,
    )


class _Connection:
    def __init__(self, pool: HttpClient, origin: Origin, pipe: Pipe) -> None:
        self.origin = origin
        self.is_reused = False
        self.idle_since_s = 0.0
        self._pool = pool
        self._reader, self._writer = pipe
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEADER_BYTES)
        self._has_answer = False
        self._is_open = True

    async def post(self, target: str, headers: Headers, body: bytes) -> Response:
        request = h11.Request(method=b"POST", target=target.encode("ascii"), headers=headers)
        self._has_answer = False
        data = (self._h11.send(request) or b"") + (self._h11.send(h11.Data(data=body)) or b"")
        data += self._h11.send(h11.EndOfMessage()) or b""
        # not drained: a server may answer, and stop reading, before it has read all
        self._writer.write(data)
        for _ in range(_MAX_INFORMATIONAL):
            event = await self._next_event()
            if isinstance(event, h11.Response):
                return Response(self, event)
            if not isinstance(event, h11.InformationalResponse):
                raise self._broken("closed the connection without an answer")
        raise ModelCallError("LLM_BAD_RESPONSE", f"{self.origin} does not come to an answer")

    async def read_body(self) -> bytes:
        pieces: list[bytes] = []
        while self._h11.their_state is h11.SEND_BODY:
            event = self._parse()
            if event is h11.NEED_DATA:
                if pieces:
                    return b"".join(pieces)
                await self._receive()
            elif isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
        return b"".join(pieces)

    async def _next_event(self) -> Any:
        while (event := self._parse()) is h11.NEED_DATA:
            await self._receive()
        return event

    def _parse(self) -> Any:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            if self._reader.at_eof():
                raise self._broken("closed the connection in the middle of its answer") from error
            self.abort()
            # a provider that cannot speak HTTP is another service than the one meant
            code = "LLM_UPSTREAM_ERROR" if self._has_answer else "LLM_BAD_RESPONSE"
            raise ModelCallError(code, printable(f"{self.origin} does not speak HTTP: {error}")) from error

    async def _receive(self) -> None:
        try:
            data = await self._reader.read(_READ_BYTES)
        except OSError as error:
            raise self._broken(error.strerror or "broke the connection") from error
        if data:
            self._has_answer = True
        elif not self._has_answer:
            raise self._broken("closed the connection without an answer")
        self._h11.receive_data(data)

    def _broken(self, how: str) -> Exception:
        self.abort()
        if self.is_reused and not self._has_answer:
            return _StaleConnectionError()
        return ModelCallError("LLM_UPSTREAM_ERROR", printable(f"{self.origin}: {how}"))

    def release(self) -> None:
        if not self._is_open:
            return
        try:
            # take in what has already arrived; the rest can wait for the next use
            while self._h11.their_state is h11.SEND_BODY and self._h11.next_event() is not h11.NEED_DATA:
                pass
        except h11.RemoteProtocolError:
            pass
        if self._h11.their_state in (h11.DONE, h11.SEND_BODY) and not self._reader.at_eof():
            self._pool.put_back(self)
        else:
            self.abort()

    async def is_ready_again(self) -> bool:
        """Whether another request may go out: the last answer is over and nothing else came."""
        try:
            async with asyncio.timeout(_FINISH_S):
                while self._h11.their_state is h11.SEND_BODY:
                    await self.read_body()
        except (TimeoutError, ModelCallError, _StaleConnectionError):
            return False
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        self._h11.start_next_cycle()
        self.is_reused = True
        return not self._reader.at_eof() and not self._writer.is_closing()

    def abort(self) -> None:
        self._is_open = False
        self._writer.transport.abort()


class HttpClient:
    """Connections to providers, kept open between the steps of one process."""

    def __init__(self, *, connect_s: float = 10.0, environ: Mapping[str, str] | None = None) -> None:
        self._connect_s = connect_s
        self._environ = os.environ if environ is None else environ
        self._idle: dict[Origin, list[_Connection]] = {}
        self._context: ssl.SSLContext | None = None

    async def post(
        self, url: Url, headers: Headers, body: bytes, *, on_connected: Callable[[], None]
    ) -> Response:
        """Send a request and wait for the head of its answer.

        `on_connected` is called before the request goes out, once per connection used.
        Raises: ModelCallError; ConfigError for a proxy or a header that cannot be used.
        Cancellation: closes the socket.
        """
        proxy = proxy_for(url.scheme, url.host, url.port, self._environ)
        origin = Origin(url.scheme, url.host, url.port, proxy)
        target = url.target
        headers = [(b"host", origin.netloc.encode("ascii")), *headers]
        headers += [(b"accept-encoding", b"identity"), (b"content-length", b"%d" % len(body))]
        if proxy and url.scheme == "http":
            target = f"http://{origin.netloc}{target}"
            if proxy.authorization:
                headers.append((b"proxy-authorization", proxy.authorization.encode("latin-1")))
        while True:
            connection = await self._take_idle(origin) or await self._connect(origin)
            on_connected()
            try:
                return await connection.post(target, headers, body)
            except _StaleConnectionError:
                continue
            except h11.LocalProtocolError:
                connection.abort()
                raise ConfigError("a header of the provider holds a character that cannot be sent") from None
            except BaseException:
                connection.abort()
                raise

    async def _take_idle(self, origin: Origin) -> _Connection | None:
        now_s = asyncio.get_running_loop().time()
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            try:
                if now_s - connection.idle_since_s < _MAX_IDLE_S and await connection.is_ready_again():
                    return connection
            except BaseException:
                connection.abort()
                raise
            connection.abort()
        return None

    async def _connect(self, origin: Origin) -> _Connection:
        if self._context is None and (origin.scheme == "https" or (origin.proxy and origin.proxy.is_tls)):
            from mcode_exec.providers.tls import client_context

            self._context = client_context()
        try:
            async with asyncio.timeout(self._connect_s):
                pipe = await dial(origin, self._context, limit_s=self._connect_s)
        except TimeoutError:
            raise ModelCallError(
                "LLM_UPSTREAM_ERROR", f"cannot connect to {origin} within {self._connect_s:g} s"
            ) from None
        return _Connection(self, origin, pipe)

    def put_back(self, connection: _Connection) -> None:
        connection.idle_since_s = asyncio.get_running_loop().time()
        idle = self._idle.setdefault(connection.origin, [])
        idle.append(connection)
        if len(idle) > _MAX_POOLED:
            idle.pop(0).abort()

    async def close(self) -> None:
        """Close every idle connection."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()
        # transports close in the loop's next round
        await asyncio.sleep(0)
