"""A lean HTTP/1.1 client: a pool of connections, a request at a time on each.

Invariants: no redirect is followed; every wait ends with the task, and a task
that is cancelled leaves no socket behind.  A reused connection that the server
had closed in the meantime is dialled anew, once, before anything counts as a
failure.  Time limits on answers are the caller's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import h11

from mcode_exec.errors import ConfigError, ModelCallError
from mcode_exec.providers.connection import Connection, Response, StaleConnectionError
from mcode_exec.providers.dialing import Origin, dial, place_of, secure
from mcode_exec.providers.failures import Headers
from mcode_exec.providers.proxy import proxy_for, refused_login
from mcode_exec.providers.url import Url

if TYPE_CHECKING:
    import ssl

#: an idle connection older than this is not worth trying
_MAX_IDLE_S = 55.0
_MAX_POOLED = 8


class HttpClient:
    """Connections to providers, kept open between the steps of one process."""

    def __init__(self, *, connect_s: float = 10.0, environ: Mapping[str, str] | None = None) -> None:
        self._connect_s = connect_s
        self._environ = os.environ if environ is None else environ
        self._idle: dict[Origin, list[Connection]] = {}
        self._context: ssl.SSLContext | None = None

    async def post(
        self, url: Url, headers: Headers, body: bytes, *, on_connected: Callable[[], None]
    ) -> Response:
        """Send a request and wait for the head of its answer.

        `on_connected` is called before the request goes out, once per connection used.
        Raises: ModelCallError; ConfigError for a proxy or a header that cannot be used.
        Cancellation: closes the socket.
        """
        lines = [(b"accept-encoding", b"identity"), (b"content-length", b"%d" % len(body))]
        return await self._ask(b"POST", url, [*headers, *lines], body, on_connected)

    async def get(self, url: Url, headers: Headers) -> Response:
        """Likewise, for what is fetched: it may come compressed."""
        return await self._ask(b"GET", url, [*headers, (b"accept-encoding", b"gzip")], b"", lambda: None)

    async def _ask(
        self, method: bytes, url: Url, headers: Headers, body: bytes, on_connected: Callable[[], None]
    ) -> Response:
        proxy = proxy_for(url.scheme, url.host, url.port, self._environ)
        origin = Origin(url.scheme, url.host, url.port, proxy)
        target = url.target
        headers = [(b"host", origin.netloc.encode("ascii")), *headers]
        if proxy and url.scheme == "http":
            target = f"http://{origin.netloc}{target}"
            if proxy.authorization:
                headers.append((b"proxy-authorization", proxy.authorization.encode("latin-1")))
        while True:
            connection = await self._take_idle(origin) or await self._connect(origin)
            on_connected()
            try:
                response = await connection.ask(method, target, headers, body)
            except StaleConnectionError:
                continue
            except h11.LocalProtocolError:
                connection.abort()
                raise ConfigError("a header of the provider holds a character that cannot be sent") from None
            except BaseException:
                connection.abort()
                raise
            if proxy and url.scheme == "http" and response.status == 407:
                response.abort()  # it was the proxy that spoke: a provider has no such word
                raise refused_login(proxy, response.headers)
            return response

    async def _take_idle(self, origin: Origin) -> Connection | None:
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

    async def _connect(self, origin: Origin) -> Connection:
        if self._context is None and (origin.scheme == "https" or (origin.proxy and origin.proxy.is_tls)):
            from mcode_exec.providers.tls import client_context

            self._context = client_context()
        undone = f"cannot connect to {place_of(origin)}"

        def tell(sentence: str) -> None:
            nonlocal undone
            undone = sentence

        try:
            async with asyncio.timeout(self._connect_s):
                pipe = await dial(origin, limit_s=self._connect_s)
                await secure(pipe, origin, self._context, tell)
        except TimeoutError:
            raise ModelCallError("LLM_UPSTREAM_ERROR", f"{undone} within {self._connect_s:g} s") from None
        return Connection(self._put_back, origin, pipe)

    def _put_back(self, connection: Connection) -> None:
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
