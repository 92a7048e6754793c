"""Proxies that refuse, lie or go silent; tunnels that are kept; and what none of them learns."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Sequence
from typing import Any

import pytest

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.client import RetryPolicy, Timeouts
from mcode_exec.records.history import TextBlock
from tests.unit.providers.byte_peer import APIS, BytePeer, Call, answered, endpoint, http
from tests.unit.providers.test_providers_transport import Relay, server_context, trusted

__all__ = ["trusted"]  # a fixture

ONCE = RetryPolicy(max_retries=0)
PASSWORD = "pr0xy-pass"
PAIR = base64.b64encode(f"me:{PASSWORD}".encode())


class ScriptedProxy:
    """Answers every head that comes with the same bytes, or with silence."""

    def __init__(self, answer: bytes, *, is_held: bool) -> None:
        self.heads: list[bytes] = []
        self._answer = answer
        self._is_held = is_held

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self._answer)
        if self._is_held:
            await reader.read()
        writer.close()


def ask(
    target: str, answer: bytes, *, is_held: bool = False, login: str = f"me:{PASSWORD}@"
) -> tuple[Any, ScriptedProxy]:
    """Ask `target` through a proxy that says `answer`: how it ended."""

    async def main() -> tuple[Any, ScriptedProxy]:
        proxy = ScriptedProxy(answer, is_held=is_held)
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        address = f"http://{login}127.0.0.1:{server.sockets[0].getsockname()[1]}"
        call = Call(
            retry=ONCE,
            timeouts=Timeouts(connect_s=0.3, first_byte_s=0.5, idle_s=0.5),
            environ={"HTTPS_PROXY": address, "HTTP_PROXY": address},
        )
        try:
            return await call.ask(endpoint(target)), proxy
        except ModelCallError as error:
            return error, proxy
        finally:
            await call.client.close()
            server.close()
            await asyncio.sleep(0.01)

    return asyncio.run(main())


REFUSALS: list[tuple[bytes, str, str]] = [
    (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "LLM_AUTH_ERROR", "407"),
    (b"HTTP/1.1 403 Forbidden\r\nx: y\r\n\r\n<html>", "LLM_BAD_RESPONSE", "403 Forbidden"),
    (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "LLM_UPSTREAM_ERROR", "502 Bad Gateway"),
    (b"HTTP/1.1 503 Busy\r\n\r\n", "LLM_UPSTREAM_ERROR", "503 Busy"),
    (b"HTTP/1.1 429 Slow\r\n\r\n", "LLM_RATE_LIMITED", "429 Slow"),
    (b"HTTP/1.1 501 No\r\n\r\n", "LLM_BAD_RESPONSE", "501 No"),
    (b"SSH-2.0-OpenSSH\r\n\r\n", "LLM_BAD_RESPONSE", "SSH-2.0"),
    (b"HTTP/1.1 \x1b[31m\r\n\r\n", "LLM_BAD_RESPONSE", "\\x1b[31m"),
    (b"", "LLM_UPSTREAM_ERROR", "closed the connection"),
    (b"HTTP/1.1 200", "LLM_UPSTREAM_ERROR", "closed the connection"),
    (b"x" * 100_000, "LLM_BAD_RESPONSE", "does not answer as a proxy"),
]


@pytest.mark.parametrize(("answer", "code", "said"), REFUSALS)
def test_a_proxy_that_gives_no_tunnel_is_named_and_learns_no_key(answer: bytes, code: str, said: str) -> None:
    error, proxy = ask("https://model.example/v1", answer)
    assert (error.code, error.message.count("the proxy 127.0.0.1:")) == (code, 1), error.message
    assert said in error.message
    assert error.message.isprintable()
    assert PASSWORD not in error.message
    (head,) = proxy.heads
    assert head.startswith(b"CONNECT model.example:443 HTTP/1.1\r\nHost: model.example:443\r\n")
    assert b"Proxy-Authorization: Basic " + PAIR in head
    assert b"sk-test-key" not in head


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("login", "asks", "said"),
    [
        (f"me:{PASSWORD}@", "", "it refuses the user and password in {}; correct them there"),
        (
            f"me:{PASSWORD}@",
            "Proxy-Authenticate: Basic realm=x\r\n",
            "it refuses the user and password in {};",
        ),
        ("", "", "it asks for a user and password; write USER:PASSWORD@ before the host in {}"),
        (
            f"me:{PASSWORD}@",
            "Proxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM abc\r\n",
            "it asks for Negotiate, NTLM, and mcode can only send a user and password",
        ),
    ],
)
def test_a_proxy_that_refuses_the_login_is_named_with_its_variable_and_what_to_do(
    scheme: str, login: str, asks: str, said: str
) -> None:
    answer = http(b"<html>no</html>", status="407 Auth", extra=asks)
    error, _ = ask(f"{scheme}://model.example/v1", answer, login=login)
    name = f"{scheme.upper()}_PROXY"
    assert (error.code, error.http_status) == ("LLM_AUTH_ERROR", 407)
    assert error.message.startswith("the proxy 127.0.0.1:")
    assert f" (from {name}) answered 407: {said.format(name)}" in error.message
    assert "sk-" not in error.message
    assert PASSWORD not in error.message
    assert "me:" not in error.message


def test_a_busy_proxy_says_when_to_come_again() -> None:
    error, _ = ask("https://model.example/v1", b"HTTP/1.1 429 Slow\r\nX: y\r\nRetry-After: 3\r\n\r\n")
    assert error.retry_after_ms == 3000


def test_a_proxy_that_says_nothing_is_not_waited_for() -> None:
    error, _ = ask("https://model.example/v1", b"HTTP/1.1 200 O", is_held=True)
    assert error.code == "LLM_UPSTREAM_ERROR"
    assert "no tunnel to model.example:443 from the proxy 127.0.0.1" in error.message
    assert "(from HTTPS_PROXY) within 0.3 s" in error.message


def test_a_tunnel_is_given_by_a_head_with_bare_line_feeds_too() -> None:
    error, _ = ask("https://model.example/v1", b"HTTP/1.1 200 OK\nX: y\n\n", is_held=True)
    assert "could not begin TLS with model.example:443 behind the proxy" in error.message
    error, _ = ask("https://model.example/v1", b"HTTP/1.1 429 Slow\nRetry-After: 3\n\n", is_held=True)
    assert error.retry_after_ms == 3000


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (http(b"", status="407 Auth"), "LLM_AUTH_ERROR", "(from HTTP_PROXY) answered 407"),
        (
            http(b"<html>gone</html>", status="502 Bad"),
            "LLM_UPSTREAM_ERROR",
            "(from HTTP_PROXY), answered 502",
        ),
        (
            http(b"<html>no way out</html>", status="403 No"),
            "LLM_BAD_RESPONSE",
            "(from HTTP_PROXY), answered 403",
        ),
        (
            http(b'{"error": {"message": "no"}}', status="403 No"),
            "LLM_AUTH_ERROR",
            "the provider answered 403: no",
        ),
        (
            http(b"", status="302 Found", extra="location: http://login.example/?x=1\r\n"),
            "LLM_BAD_RESPONSE",
            "302",
        ),
    ],
)
def test_a_proxy_that_answers_for_the_provider_over_plain_http_is_heard(
    answer: bytes, code: str, said: str
) -> None:
    error, proxy = ask("http://model.example/v1", answer)
    assert error.code == code
    assert said in error.message
    assert PASSWORD not in error.message
    assert len(proxy.heads) == 1


def test_a_proxy_that_is_not_there_is_named() -> None:
    async def main() -> ModelCallError:
        call = Call(retry=ONCE, environ={"HTTPS_PROXY": "http://127.0.0.1:9"})
        with pytest.raises(ModelCallError) as caught:
            await call.ask(endpoint("https://model.example/v1"))
        return caught.value

    assert "cannot connect to 127.0.0.1:9 (the proxy from HTTPS_PROXY)" in asyncio.run(main()).message


def through(
    api: str, scheme: str, *, count: int, proxy_context: ssl.SSLContext | None = None
) -> tuple[Sequence[Any], Relay, BytePeer]:
    """`count` calls one after the other through a relay: answers, what the relay saw, the peer."""

    async def main() -> tuple[Sequence[Any], Relay, BytePeer]:
        context = server_context() if scheme == "https" else None
        async with BytePeer([http(answered(api))], context=context) as peer:
            relay = Relay(peer.port)
            server = await asyncio.start_server(relay.serve, "127.0.0.1", 0, ssl=proxy_context)
            address = (
                f"{'https' if proxy_context else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            )
            call = Call(retry=ONCE, environ={"HTTPS_PROXY": address, "HTTP_PROXY": address})
            try:
                where = endpoint(f"{scheme}://model.example/v1", api)
                return [await call.ask(where) for _ in range(count)], relay, peer
            finally:
                await call.client.close()
                server.close()
                await asyncio.sleep(0.02)

    return asyncio.run(main())


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("api", APIS)
def test_a_tunnel_serves_all_steps(api: str) -> None:
    answers, relay, peer = through(api, "https", count=3)
    assert [answer.content for answer in answers] == [(TextBlock(text="done"),)] * 3
    assert (len(relay.heads), peer.connections, len(peer.requests)) == (1, 1, 3)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_may_be_spoken_to_over_tls(scheme: str) -> None:
    answers, relay, peer = through(APIS[0], scheme, count=2, proxy_context=server_context())
    assert [answer.content for answer in answers] == [(TextBlock(text="done"),)] * 2
    assert (len(relay.heads), peer.connections) == (1, 1)


@pytest.mark.usefixtures("trusted")
def test_a_certificate_for_another_name_is_not_trusted_behind_a_tunnel_either() -> None:
    async def main() -> ModelCallError:
        async with BytePeer([http(answered(APIS[0]))], context=server_context()) as peer:
            relay = Relay(peer.port)
            server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
            address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            call = Call(retry=ONCE, environ={"HTTPS_PROXY": address})
            try:
                with pytest.raises(ModelCallError) as caught:
                    await call.ask(endpoint("https://other.example/v1"))
                return caught.value
            finally:
                await call.client.close()
                server.close()
                await asyncio.sleep(0.02)

    error = asyncio.run(main())
    assert error.code == "LLM_BAD_RESPONSE"
    assert "certificate of other.example:443" in error.message
