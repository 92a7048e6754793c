"""One connection to a provider: h11 on asyncio streams, one request at a time, and the answer to it.

Invariants: what is no HTTP/1 is refused with its first bytes; a connection may
serve again only when its answer was read to the end, or can be on the next use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import h11

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.dialing import Origin, Pipe
from mcode_exec.providers.failures import Headers, header, printable, why

if TYPE_CHECKING:
    from mcode_exec.providers.codings import Inflater

_READ_BYTES = 64 * 1024
MAX_HEADER_BYTES = 128 * 1024
_MAX_INFORMATIONAL = 16
#: how much of an answer that is none is shown
_SHOWN_BYTES = 40
#: longest wait for the end of an answer whose content is complete, when its connection is wanted again
_FINISH_S = 0.05


class StaleConnectionError(Exception):
    """A reused connection was closed, or given up by its server, before it answered."""


class Response:
    """Status and headers of an answer; the body is read piece by piece, decoded."""

    def __init__(self, connection: Connection, event: h11.Response) -> None:
        self.status = event.status_code
        self.headers: Headers = [(bytes(name), bytes(value)) for name, value in event.headers]
        self._connection = connection
        self._decoder: Inflater | None = None
        #: the name of a coding that is not understood
        self._coding = ""
        coding = (header(self.headers, b"content-encoding") or "identity").lower()
        if coding not in ("identity", ""):
            from mcode_exec.providers.codings import decoder_for

            self._decoder = decoder_for(coding)
            self._coding = "" if self._decoder else coding

    @property
    def proxy(self) -> str:
        """What a message calls the proxy that could read the request, and answer it itself; "" for none."""
        origin = self._connection.origin
        return str(origin.proxy) if origin.proxy and origin.scheme == "http" else ""

    async def read(self) -> bytes:
        """The next bytes of the body; b"" at its end.

        Raises: ModelCallError: LLM_UPSTREAM_ERROR if the connection breaks,
            LLM_BAD_RESPONSE for a coding that nobody asked for.
        """
        if self._coding:
            raise ModelCallError(
                "LLM_BAD_RESPONSE",
                printable(f"the answer is coded as {self._coding!r}, which was not asked for"),
                http_status=self.status,
            )
        while True:
            data = await self._connection.read_body()
            if self._decoder is None:
                return data
            if not data:
                if self._decoder.is_cut:
                    raise ModelCallError(
                        "LLM_UPSTREAM_ERROR", f"the compressed answer of {self._connection.origin} is cut off"
                    )
                return data
            try:
                data = self._decoder.decode(data)
            except ValueError as error:
                from mcode_exec.providers.codings import TooLargeError

                is_large = isinstance(error, TooLargeError)
                raise ModelCallError(
                    "LLM_BAD_RESPONSE" if is_large else "LLM_UPSTREAM_ERROR",
                    f"the compressed answer of {self._connection.origin} "
                    + ("unpacks to far more than any answer" if is_large else "is damaged"),
                ) from error
            if data:
                return data

    async def read_at_most(self, limit: int, limit_s: float) -> bytes:
        """The body up to `limit` bytes, for as many seconds; what breaks or holds it up is not missed."""
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limit_s):
                while size < limit and (data := await self.read()):
                    pieces.append(data)
                    size += len(data)
        except (ModelCallError, TimeoutError):
            pass
        return b"".join(pieces)[:limit]

    def release(self) -> None:
        """The caller is done: keep the connection if it may serve again."""
        self._connection.release()

    def abort(self) -> None:
        """Close the connection at once."""
        self._connection.abort()


class Connection:
    def __init__(self, put_back: Callable[[Connection], None], origin: Origin, pipe: Pipe) -> None:
        self.origin = origin
        self.is_reused = False
        self.idle_since_s = 0.0
        self._put_back = put_back
        self._reader, self._writer = pipe
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEADER_BYTES)
        self._has_answer = False
        #: how the answer began, until that is known to be HTTP's way; None from then on
        self._begin: bytes | None = None
        self._has_head = False
        #: whether the peer has closed, and all it sent before has been taken in
        self._is_over = False
        self._is_open = True
        #: what broke an answer whose bytes before that had still to be told
        self._failure: h11.RemoteProtocolError | None = None

    async def ask(self, method: bytes, target: str, headers: Headers, body: bytes) -> Response:
        request = h11.Request(method=method, target=target.encode("ascii"), headers=headers)
        self._has_answer = self._has_head = False
        self._begin = b""
        data = (self._h11.send(request) or b"") + (self._h11.send(h11.Data(data=body)) or b"")
        data += self._h11.send(h11.EndOfMessage()) or b""
        # not drained: a server may answer, and stop reading, before it has read all
        self._writer.write(data)
        for _ in range(_MAX_INFORMATIONAL):
            event = await self._next_event()
            if isinstance(event, h11.Response):
                if event.status_code == 408 and self.is_reused:
                    # Said to a connection that idled, on its way when the request was sent (RFC 9110 15.5.9).
                    self.abort()
                    raise StaleConnectionError
                self._has_head = True
                return Response(self, event)
            if not isinstance(event, h11.InformationalResponse):
                raise self._broken("closed the connection without an answer")
        raise self._foreign("it sends interim answers without end")

    async def read_body(self) -> bytes:
        pieces: list[bytes | bytearray] = []
        if self._failure is not None:
            raise self._refused(self._failure) from self._failure
        next_event, data, needs_data = self._h11.next_event, h11.Data, h11.NEED_DATA
        while self._h11.their_state is h11.SEND_BODY:
            try:
                while isinstance(event := next_event(), data):
                    pieces.append(event.data)
            except h11.RemoteProtocolError as error:
                if not pieces:
                    raise self._refused(error) from error
                self._failure = error  # what came before it is told first
                break
            if event is needs_data:
                if pieces:
                    break
                await self._receive()
        return b"".join(pieces)

    async def _next_event(self) -> Any:
        while (event := self._parse()) is h11.NEED_DATA:
            await self._receive()
        return event

    def _parse(self) -> Any:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            raise self._refused(error) from error

    def _refused(self, error: h11.RemoteProtocolError) -> Exception:
        """What bytes that are no HTTP mean, by when they came."""
        if self._is_over:
            return self._broken("closed the connection in the middle of its answer")
        fault = str(error).partition(": bytearray(")[0]
        if fault == "Receive buffer too long":
            what = "chunk header" if self._has_head else "headers"
            fault = f"{what} of more than {MAX_HEADER_BYTES // 1024} KiB"
        if not self._has_head:
            return self._foreign("it switches protocols" if "_SWITCH" in fault else fault)
        return self._broken(f"garbled its answer ({fault})")

    async def _receive(self) -> None:
        try:
            data = await self._reader.read(_READ_BYTES)
        except OSError as error:
            if (
                not self._has_answer and getattr(error, "library", None) == "SSL"
            ):  # TLS 1.3: refused after all
                from mcode_exec.providers import tls

                self.abort()
                raise tls.failure(error, str(self.origin), self.origin.host) from error
            raise self._broken(f"broke the connection ({why(error)})") from error
        if data:
            self._has_answer = True
            self._check_begin(data)
        elif not self._has_answer:
            raise self._broken("closed the connection without an answer")
        else:
            self._is_over = True
        self._h11.receive_data(data)

    def _check_begin(self, data: bytes) -> None:
        """Refuse at once what is no HTTP/1: else more of it would be waited for."""
        if self._begin is None:
            return
        self._begin += data[:_SHOWN_BYTES]
        if not b"HTTP/".startswith(self._begin[:5]):
            if self._begin[:2] in (b"\x15\x03", b"\x16\x03"):
                raise self._foreign("it speaks TLS", "begin base_url with https://")
            raise self._foreign(f"its answer begins {self._begin[:_SHOWN_BYTES].decode('latin-1')!r}")
        if len(self._begin) >= 5:
            self._begin = None

    def _foreign(self, fault: str, advice: str = "is the base URL right?") -> ModelCallError:
        """A peer that cannot speak HTTP is another service than the one meant."""
        self.abort()
        return ModelCallError(
            "LLM_BAD_RESPONSE", printable(f"{self.origin} does not speak HTTP/1.1: {fault}; {advice}")
        )

    def _broken(self, how: str) -> Exception:
        self.abort()
        if self.is_reused and not self._has_answer:
            return StaleConnectionError()
        return ModelCallError("LLM_UPSTREAM_ERROR", printable(f"{self.origin} {how}"))

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
            self._put_back(self)
        else:
            self.abort()

    async def is_ready_again(self) -> bool:
        """Whether another request may go out: the last answer is over and nothing else came."""
        try:
            async with asyncio.timeout(_FINISH_S):
                while self._h11.their_state is h11.SEND_BODY:
                    await self.read_body()
        except (TimeoutError, ModelCallError, StaleConnectionError):
            return False
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        if self._h11.trailing_data[0] or await self._has_more() or self._writer.is_closing():
            return False
        self._h11.start_next_cycle()
        self.is_reused = True
        return True

    async def _has_more(self) -> bool:
        """Whether bytes, or the end, lie behind the answer: they would be taken for the answer to the next request."""
        await asyncio.sleep(0)  # what the machine has already received
        await asyncio.sleep(0)  # has been handed to the reader now
        try:
            async with asyncio.timeout(0):
                await self._reader.read(1)
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def abort(self) -> None:
        self._is_open = False
        self._writer.transport.abort()
