"""Opening a connection: name, address, TCP, proxy tunnel, TLS; each wait ends with the task.

Names are resolved on a daemon thread of their own, so that a name server that
does not answer holds up neither an abort nor the end of the process.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.failures import printable
from mcode_exec.providers.proxy import Proxy, refused_login
from mcode_exec.providers.url import netloc

if TYPE_CHECKING:
    import ssl

Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]

#: a lone line feed ends a line as well; source: RFC 9112 §2.2
_HEAD_END = re.compile(rb"\r?\n\r?\n")
#: answers of a proxy to CONNECT are short
_MAX_CONNECT_BYTES = 64 * 1024


class Origin(Struct, frozen=True):
    """Where a connection leads; what may share one."""

    scheme: str
    host: str
    port: int
    proxy: Proxy | None = None

    @property
    def netloc(self) -> str:
        return netloc(self.scheme, self.host, self.port)

    def __str__(self) -> str:
        return _shown(self.host, self.port)


async def dial(origin: Origin, *, limit_s: float) -> Pipe:
    """A connection that leads to `origin`, which `secure` makes ready for a request.

    Units: `limit_s` is what the caller allows for all of it; an address that
        swallows packets gets a share only, so that the next one is tried in time.
    Raises: ModelCallError, LLM_UPSTREAM_ERROR naming host and port.
    """
    return await _open_any(*_place(origin), limit_s)


def _shown(host: str, port: int) -> str:
    """Host and port, the port never left out; an IPv6 address has brackets, or nobody could tell them apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def place_of(origin: Origin) -> str:
    """What is connected to, for people: the proxy, where there is one."""
    return _place(origin)[2]


def _place(origin: Origin) -> tuple[str, int, str]:
    proxy = origin.proxy
    host, port = (proxy.host, proxy.port) if proxy else (origin.host, origin.port)
    return host, port, _shown(host, port) + (f" (the proxy from {proxy.variable})" if proxy else "")


async def secure(
    pipe: Pipe, origin: Origin, context: ssl.SSLContext | None, tell: Callable[[str], None]
) -> None:
    """Make `pipe` ready for a request to `origin`: tunnel and TLS, where they are needed.

    `tell`: what cannot be done, if the time is up before the next step, as a sentence without its end.

    Raises: ModelCallError, LLM_UPSTREAM_ERROR naming host and port, or
        LLM_BAD_RESPONSE for a certificate that cannot be trusted.
    Cancellation and failure: close the connection.
    """
    reader, writer = pipe
    proxy = origin.proxy
    host, _, place = _place(origin)
    try:
        if proxy and proxy.is_tls:
            tell(f"connected, but could not begin TLS with {place}")
            await _start_tls(writer, context, host, place)
        if proxy and origin.scheme == "https":
            tell(f"connected, but got no tunnel to {origin} from {proxy}")
            await _tunnel(reader, writer, origin, proxy)
        if origin.scheme == "https":
            behind = f" behind {proxy}" if proxy else ""
            tell(f"connected, but could not begin TLS with {origin}{behind}")
            await _start_tls(writer, context, origin.host, str(origin))
    except BaseException:
        writer.transport.abort()
        raise


async def _open_any(host: str, port: int, place: str, limit_s: float) -> Pipe:
    addresses = await _resolve(host, port, place)
    share_s = limit_s / (len(addresses) + 1) if len(addresses) > 1 else None
    last: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            async with asyncio.timeout(share_s):
                await asyncio.get_running_loop().sock_connect(sock, address)
            return await asyncio.open_connection(sock=sock)
        except OSError as error:
            sock.close()
            last = error
        except BaseException:
            sock.close()
            raise
    reason = os.strerror(last.errno) if last is not None and last.errno else "no address answers"
    raise ModelCallError("LLM_UPSTREAM_ERROR", f"cannot connect to {place}: {reason}") from last


async def _resolve(host: str, port: int, place: str) -> list[Any]:
    flags = socket.AI_NUMERICHOST
    # as bytes: a host of type str would load the tables of the IDNA codec
    name = host.encode("ascii", "replace")
    try:
        return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, UnicodeError):
        pass
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Any]] = loop.create_future()

    def settle(found: list[Any] | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found or [])

    def look_up() -> None:
        found: list[Any] | None = None
        failure: Exception | None = None
        try:
            found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, found, failure)
        except RuntimeError:  # the loop is gone, and with it whoever asked
            pass

    threading.Thread(target=look_up, name="resolve", daemon=True).start()
    try:
        return await answer
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a host name"
        raise ModelCallError(
            "LLM_UPSTREAM_ERROR", f"cannot connect to {place}: the name is not resolved ({reason})"
        ) from error


async def _start_tls(
    writer: asyncio.StreamWriter, context: ssl.SSLContext | None, host: str, place: str
) -> None:
    from mcode_exec.providers import tls

    assert context is not None
    try:
        await writer.start_tls(context, server_hostname=host)
    except OSError as error:  # every ssl.SSLError is one
        raise tls.failure(error, place, host) from error


async def _tunnel(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, origin: Origin, proxy: Proxy
) -> None:
    lines = [f"CONNECT {origin} HTTP/1.1", f"Host: {origin}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    place = str(proxy)
    head = b""
    while not _HEAD_END.search(head):
        try:
            # byte by byte past the headers would be TLS already; the proxy sends none before we speak
            piece = await reader.read(4096)
        except OSError as error:
            raise ModelCallError("LLM_UPSTREAM_ERROR", f"the connection to {place} broke") from error
        if not piece:
            raise ModelCallError("LLM_UPSTREAM_ERROR", f"{place} closed the connection")
        head += piece
        if len(head) > _MAX_CONNECT_BYTES:
            raise ModelCallError("LLM_BAD_RESPONSE", f"{place} does not answer as a proxy")
    status_line = head.split(b"\n", 1)[0].rstrip(b"\r").decode("latin-1")
    fields = status_line.split(" ", 2)
    status = int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0
    if 200 <= status < 300:
        return
    if status == 407:
        raise refused_login(proxy, _lines(head))
    from mcode_exec.providers.retry_hints import retry_after_ms

    raise ModelCallError(
        _class_of_refusal(status),
        printable(f"{place} refuses a tunnel to {origin}: {status_line}"),
        http_status=status or None,
        retry_after_ms=retry_after_ms(_lines(head), int(time.time() * 1000)),
    )


def _class_of_refusal(status: int) -> str:
    """What a proxy's answer to CONNECT means: its own word, never the provider's."""
    if status == 429:
        return "LLM_RATE_LIMITED"
    may_work_later = status >= 500 and status not in (501, 505)
    return "LLM_UPSTREAM_ERROR" if may_work_later or status in (408, 425) else "LLM_BAD_RESPONSE"


def _lines(head: bytes) -> list[tuple[bytes, bytes]]:
    """The header lines of an answer, names in lower case."""
    pairs = (line.partition(b":") for line in _HEAD_END.split(head, maxsplit=1)[0].split(b"\n")[1:])
    return [(name.strip().lower(), value.strip()) for name, _, value in pairs]
