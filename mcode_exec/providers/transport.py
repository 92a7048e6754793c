"""What a model client needs of whatever carries its requests: the network, a recorder around it, or a recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mcode_exec.providers.failures import Headers
from mcode_exec.providers.url import Url


class Response(Protocol):
    """Status and headers of an answer; the body is read piece by piece, decoded."""

    status: int
    headers: Headers

    @property
    def proxy(self) -> str:
        """What a message calls the proxy that could read the request, and answer it itself; "" for none."""
        ...

    async def read(self) -> bytes:
        """The next bytes of the body; b"" at its end.  Raises: ModelCallError where it breaks."""
        ...

    async def read_at_most(self, limit: int, limit_s: float) -> bytes:
        """The body up to `limit` bytes, for as many seconds; what breaks or holds it up is not missed."""
        ...

    def release(self) -> None:
        """The caller has what it wanted: the connection may serve again."""
        ...

    def abort(self) -> None:
        """The answer is given up: the connection is closed at once."""
        ...


class Transport(Protocol):
    async def post(
        self, url: Url, headers: Headers, body: bytes, *, on_connected: Callable[[], None]
    ) -> Response:
        """Send a request and wait for the head of its answer; `on_connected` is called before it goes out.

        Raises: ModelCallError; ConfigError for what cannot be sent.
        Cancellation: closes the connection.
        """
        ...

    async def close(self) -> None: ...
