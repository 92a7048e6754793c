"""Proxies, TLS, codings and hostile peers, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import ssl
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcode_exec.errors import ConfigError, ModelCallError
from mcode_exec.providers.client import Endpoint, RetryPolicy, Timeouts
from mcode_exec.providers.proxy import proxy_for
from mcode_exec.providers.sse import SseEvent, SseParser
from mcode_exec.providers.url import Url
from mcode_exec.records.history import Message, TextBlock
from tests.unit.providers.byte_peer import (
    BytePeer,
    Call,
    Script,
    chat,
    chunk,
    endpoint,
    http,
    request,
    run,
    said,
    sse,
    stream_head,
)

PEM = Path(__file__).parent / "tls" / "peer.pem"
ONCE = RetryPolicy(max_retries=0)


def server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(PEM)
    return context


@pytest.fixture
def trusted() -> Iterator[None]:
    """The test certificate is what the system trusts, as SSL_CERT_FILE says it."""
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(PEM)
    yield
    if before is None:
        del os.environ["SSL_CERT_FILE"]
    else:
        os.environ["SSL_CERT_FILE"] = before


def ask_tls(base_url_host: str, *, environ: dict[str, str] | None = None) -> object:
    async def main() -> object:
        call = Call(retry=ONCE, environ=environ)
        async with BytePeer([http(said())], context=server_context()) as peer:
            try:
                return await call.ask(endpoint(f"https://{base_url_host}:{peer.port}/v1"))
            except ModelCallError as error:
                return error
            finally:
                await call.client.close()

    return asyncio.run(main())


@pytest.mark.usefixtures("trusted")
def test_https_with_a_trusted_certificate_is_spoken() -> None:
    answer = ask_tls("127.0.0.1")
    assert getattr(answer, "content", answer) == (TextBlock(text="done"),)


def test_an_untrusted_certificate_is_a_wrong_configuration_and_not_tried_again() -> None:
    error = ask_tls("127.0.0.1")
    assert isinstance(error, ModelCallError)
    assert (error.code, error.is_retried) == ("LLM_BAD_RESPONSE", False)
    assert "certificate of 127.0.0.1" in error.message


def test_https_to_a_peer_that_speaks_plain_http_is_said() -> None:
    async def ask(peer: BytePeer, call: Call) -> object:
        return await call.ask(endpoint(f"https://127.0.0.1:{peer.port}/v1"))

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def main() -> ModelCallError:
        call = Call(retry=ONCE)
        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        try:
            await call.ask(endpoint(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"))
        except ModelCallError as error:
            return error
        finally:
            server.close()
            await call.client.close()
        raise AssertionError("no error")

    assert asyncio.run(main()).code == "LLM_BAD_RESPONSE"


class Relay:
    """An HTTP proxy: absolute targets and CONNECT, all led to one port."""

    def __init__(self, port: int) -> None:
        self.port_behind = port
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self.port_behind)
        if head.startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        else:
            behind_writer.write(head)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            except ConnectionError:
                pass

        await asyncio.wait(
            [
                asyncio.ensure_future(pump(reader, behind_writer)),
                asyncio.ensure_future(pump(behind_reader, writer)),
            ],
            return_when=asyncio.FIRST_COMPLETED,
        )
        behind_writer.transport.abort()
        writer.transport.abort()


def ask_through(target: str, variable: str, *, context: ssl.SSLContext | None = None) -> tuple[object, Relay]:
    async def main() -> tuple[object, Relay]:
        async with BytePeer([http(said())], context=context) as peer:
            relay = Relay(peer.port)
            server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            call = Call(retry=ONCE, environ={variable: f"http://me:p%40ss@127.0.0.1:{port}"})
            try:
                return await call.ask(endpoint(target)), relay
            except ModelCallError as error:
                return error, relay
            finally:
                await call.client.close()
                server.close()
                await asyncio.sleep(0.01)

    return asyncio.run(main())


def test_plain_http_goes_through_the_proxy_with_the_whole_address() -> None:
    answer, relay = ask_through("http://model.example/v1", "http_proxy")
    assert getattr(answer, "content", answer) == (TextBlock(text="done"),)
    assert relay.heads[0].startswith(b"POST http://model.example/v1/chat/completions HTTP/1.1\r\n")
    assert b"proxy-authorization: Basic bWU6cEBzcw==\r\n" in relay.heads[0]


@pytest.mark.usefixtures("trusted")
def test_https_goes_through_a_tunnel() -> None:
    answer, relay = ask_through("https://model.example/v1", "HTTPS_PROXY", context=server_context())
    assert getattr(answer, "content", answer) == (TextBlock(text="done"),)
    assert relay.heads[0].startswith(b"CONNECT model.example:443 HTTP/1.1\r\n")


def test_a_socks_proxy_is_said_only_where_it_would_be_used() -> None:
    environ = {"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "socks5h://127.0.0.1:9", "http_proxy": ""}
    answer, _, _ = run([[http(said())]], call=Call(environ=environ))
    assert answer.content == (TextBlock(text="done"),)
    with pytest.raises(ConfigError, match="SOCKS"):
        proxy_for("https", "model.example", 443, environ)


@pytest.mark.parametrize(
    ("host", "port", "no_proxy", "is_direct"),
    [
        ("10.1.2.3", 80, "10.0.0.0/8", True),
        ("10.1.2.3", 80, "192.168.0.0/16, 10.1.2.4", False),
        ("fd00::5", 80, "fd00::/8", True),
        ("a.example", 80, "example", True),
        ("a.corp.example", 80, ".corp.example", True),
        ("corp.example", 80, ".corp.example", True),
        ("notcorp.example", 80, "corp.example", False),
        ("a.example", 8080, "a.example:8080", True),
        ("a.example", 80, "a.example:8080", False),
        ("A.Example", 80, "a.EXAMPLE", True),
        ("a.example", 80, "*", True),
        ("a.example", 80, "*.example", True),
        ("a.example", 80, " , ", False),
        ("a.example", 80, "bad/cidr", False),
        ("localhost", 80, "", True),
        ("127.9.9.9", 80, "", True),
        ("::1", 80, "", True),
        ("0:0:0:0:0:0:0:1", 80, "", True),
        ("::ffff:127.0.0.1", 80, "", True),
        ("127.1", 80, "", True),
        ("2130706433", 80, "", True),
        ("0x7f.1", 80, "", True),
        ("LocalHost.", 80, "", True),
        ("0.0.0.0", 80, "", True),
        ("128.1", 80, "", False),
        ("::ffff:10.0.0.1", 80, "", False),
        ("localhost.example", 80, "", False),
        ("127.example.org", 80, "", False),
        ("10.1.2.3", 80, "10.1.2.3/32", True),
        ("10.1.2.3", 80, "::/0", False),
        ("10.1.2.3", 8080, "10.1.2.3:8080", True),
        ("10.1.2.3", 80, "10.1.2.3:8080", False),
        ("fd00::5", 80, "fe80::/10", False),
        ("fd00::5", 80, "[fd00::]/8", True),
        ("fd00::5", 80, "FD00:0:0::5", True),
        ("fd00:0::5", 80, "[fd00::5]", True),
        ("fd00::5", 8080, "[fd00::5]:8080", True),
        ("fd00::5", 80, "[fd00::5]:8080", False),
        ("fd00::5", 80, "fd00::6", False),
        ("a.example", 80, "a.example.", True),
        ("a.example.", 80, ".example", True),
        ("a.example", 80, "b.example, *", True),
        ("a.example", 80, "b.example c.example a.example", True),
        ("a.example", 80, "a.example:http", True),
    ],
)
def test_no_proxy_is_read_as_people_write_it(host: str, port: int, no_proxy: str, is_direct: bool) -> None:
    environ = {"HTTP_PROXY": "proxy.example:3128", "no_proxy": no_proxy}
    assert (proxy_for("http", host, port, environ) is None) == is_direct


def body() -> bytes:
    return said("done")


def sync_flushed(window: int) -> bytes:
    coder = zlib.compressobj(wbits=window)
    out = b""
    for event in body().split(b"\n\n")[:-1]:
        out += coder.compress(event + b"\n\n") + coder.flush(zlib.Z_SYNC_FLUSH)
    return out + coder.flush()


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", sync_flushed(31)),
        ("x-gzip", gzip.compress(body()[:20]) + gzip.compress(body()[20:])),
        ("deflate", sync_flushed(15)),
        ("deflate", sync_flushed(-15)),
        ("identity", body()),
    ],
)
def test_a_coded_answer_is_decoded_as_it_comes(coding: str, data: bytes) -> None:
    head = stream_head(f"content-encoding: {coding}\r\n")
    answer, _, _ = run([[head, *[data[at : at + 7] for at in range(0, len(data), 7)], "close"]])
    assert answer.content == (TextBlock(text="done"),)


def test_a_coding_nobody_asked_for_is_said() -> None:
    error, peer, _ = run([[http(b"x", extra="content-encoding: br\r\n")]])
    assert error.code == "LLM_BAD_RESPONSE"
    assert len(peer.requests) == 1


def test_the_status_of_a_refusal_counts_though_its_body_cannot_be_decoded() -> None:
    coded = "content-encoding: br\r\n"
    answer, _, _ = run([[http(b"x", status="503 Busy", extra=coded)], [http(said())]])
    assert answer.retries == 1
    error, _, _ = run([[http(b"x", status="401 No", extra=coded)]])
    assert (error.code, error.http_status) == ("LLM_AUTH_ERROR", 401)


def test_a_coded_answer_cut_in_the_middle_is_tried_again() -> None:
    data = sync_flushed(31)
    error, _, _ = run(
        [[stream_head("content-encoding: gzip\r\n") + data[:40], "close"]], call=Call(retry=ONCE)
    )
    assert error.code == "LLM_UPSTREAM_ERROR"
    assert error.message.endswith("is cut off")


def test_a_cut_chunked_answer_is_tried_again() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    first: Script = [head + chunk(sse(chat({"content": "He"}))), "close"]
    answer, peer, _ = run([first, [http(said())]])
    assert answer.retries == 1
    assert len(peer.requests) == 2


@pytest.mark.parametrize("charset", ["", "; charset=iso-8859-1", "; charset=utf-8"])
def test_text_is_utf_8_whatever_the_charset_says(charset: str) -> None:
    answer, _, _ = run([[http(said("漢字🙂é"), kind=f"text/plain{charset}")]])
    assert answer.content == (TextBlock(text="漢字🙂é"),)


def test_the_usage_may_come_after_the_finish_reason_and_done_may_not() -> None:
    usage = sse({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}})
    finished = sse(chat({"content": "done"}), chat({}, "stop"))
    late: Script = [stream_head() + finished, 0.15, usage, "hold"]
    answer, _, _ = run([late])
    assert answer.usage.input_tokens == 9
    never: Script = [stream_head() + sse(chat({"content": "x"}, "stop", usage={"prompt_tokens": 5})), "hold"]
    answer, _, _ = run([never])
    assert answer.usage.input_tokens == 5


@pytest.mark.parametrize("end", ["hold", "close"])
@pytest.mark.parametrize(
    ("bytes_", "fault"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "its answer begins 'SSH-2.0-OpenSSH_9.2"),
        (b"220 mail ESMTP\r\n", "its answer begins '220 mail"),
        (b"HELLO WORLD\r\n\r\n", "its answer begins 'HELLO WORLD"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", "its answer begins '"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "it speaks TLS; begin base_url with https://"),
        (b"HTTP/2 200 OK\r\n\r\n", "illegal status line"),
        (b"HTTP/1.1 200 OK\r\nbad header: 3\r\n\r\n", "illegal header line"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n", "it switches protocols"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 40, "interim answers without end"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"v" * 200_000, "headers of more than 128 KiB"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 40_000, "headers of more than 128 KiB"),
    ],
)
def test_a_peer_that_is_no_http_server_is_a_wrong_base_url_at_once(
    bytes_: bytes, fault: str, end: str
) -> None:
    error, peer, _ = run([[bytes_, end]])
    assert (error.code, error.exit_code) == ("LLM_BAD_RESPONSE", 3)
    assert "does not speak HTTP/1.1: " in error.message
    assert fault in error.message
    assert "bytearray" not in error.message
    assert len(peer.requests) == 1


def test_an_answer_that_is_garbled_after_its_head_is_tried_again() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    error, _, _ = run([[head + chunk(sse(chat({"content": "He"}))) + b"zz\r\n"]], call=Call(retry=ONCE))
    assert (error.code, error.is_retried) == ("LLM_UPSTREAM_ERROR", True)
    assert error.message.endswith("garbled its answer (illegal chunk header)")


@pytest.mark.parametrize("interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\na: b\r\n\r\n"])
def test_an_interim_answer_is_no_answer_yet(interim: bytes) -> None:
    answer, _, _ = run([[interim, 0.02, interim + http(said("done"))]])
    assert answer.content == (TextBlock(text="done"),)


def test_tls_that_is_never_begun_is_told_from_a_connection_that_is_not() -> None:
    async def ask(peer: BytePeer, call: Call) -> object:
        return await call.ask(endpoint(f"https://127.0.0.1:{peer.port}/v1"))

    timeouts = Timeouts(connect_s=0.2)
    error, _, _ = run([["hold"]], ask, call=Call(retry=ONCE, timeouts=timeouts))
    assert error.code == "LLM_UPSTREAM_ERROR"
    assert error.message.startswith("connected, but could not begin TLS with 127.0.0.1:")


def test_an_error_body_that_never_ends_is_not_waited_for() -> None:
    head = b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\n\r\n"
    script: Script = [head + b"x" * 70_000, "hold"]
    error, _, _ = run([script], call=Call(retry=ONCE))
    assert error.code == "LLM_AUTH_ERROR"


def test_an_early_refusal_of_a_large_request_is_heard() -> None:

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http(b'{"error":{"message":"too large"}}', status="413 Too Large"))
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.transport.abort()

    async def main() -> ModelCallError:
        call = Call(retry=ONCE)
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        where: Endpoint = endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        big = Message(role="user", content=(TextBlock(text="x" * 20_000_000),))
        try:
            await call.ask(where, request(big))
        except ModelCallError as error:
            return error
        finally:
            await call.client.close()
            server.close()
            await asyncio.sleep(0.25)
        raise AssertionError("no error")

    error = asyncio.run(main())
    assert (error.code, error.http_status) == ("LLM_BAD_REQUEST", 413)


def test_a_key_with_a_line_break_inside_is_refused_without_showing_it() -> None:
    async def ask(peer: BytePeer, call: Call) -> object:
        return await call.ask(endpoint(peer.base_url, api_key="sk-a\nb: c", key_env="ACME_KEY"))

    error, peer, _ = run([[http(said())]], ask)
    assert isinstance(error, ConfigError)
    assert "ACME_KEY" in error.message
    assert "sk-a" not in error.message
    assert peer.requests == []


def test_query_and_headers_of_the_configuration_are_sent() -> None:
    async def ask(peer: BytePeer, call: Call) -> object:
        where = endpoint(
            peer.base_url, auth="api-key", query={"api-version": "1 2"}, headers={"X-Team": "ci"}
        )
        return await call.ask(where)

    _, peer, _ = run([[http(said())]], ask)
    (sent,) = peer.requests
    assert sent.line == "POST /v1/chat/completions?api-version=1+2 HTTP/1.1"
    assert (sent.header("x-team"), sent.header("api-key")) == ("ci", "sk-test-key")
    assert sent.header("authorization") is None


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "ftp://h/v1",
        "h/v1",
        "http://",
        "http://h:x/v1",
        "http://h:99999",
        "http://:80/",
        "http://u:secret@h/",
    ],
)
def test_an_address_that_is_none_is_said(base_url: str) -> None:
    async def ask(_: BytePeer, call: Call) -> object:
        return await call.ask(endpoint(base_url))

    error, _, _ = run([[]], ask)
    assert isinstance(error, ConfigError)
    assert "base_url" in error.message
    assert "secret" not in error.message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("https://h/v1", ("https", "h", 443, "/v1")),
        ("HTTP://H.Example:8080", ("http", "h.example", 8080, "/")),
        ("http://h:1/a?b=c#d", ("http", "h", 1, "/a?b=c")),
        ("http://[::1]:8080/v1", ("http", "::1", 8080, "/v1")),
        ("http://[fd00::1]/", ("http", "fd00::1", 80, "/")),
        ("https://h?x=1", ("https", "h", 443, "/?x=1")),
        ("https://bücher.example/ü", ("https", "xn--bcher-kva.example", 443, "/%C3%BC")),
        (" https://h/a b\n", ("https", "h", 443, "/a%20b")),
    ],
)
def test_an_address_is_taken_apart(text: str, parts: tuple[str, str, int, str]) -> None:
    url = Url(text)
    assert (url.scheme, url.host, url.port, url.target) == parts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://[::1/v1", 'has a "[" without its "]"'),
        ("http://[::1]80/v1", 'has more than a port behind its "]"'),
        ("http://[model.example]/v1", "has brackets around what is no IPv6 address"),
        ("http://fd00::1/v1", "has more than one colon in its host and port"),
        ("http://[::1]:x/v1", "has a port that is no port"),
        ("http://h:0/v1", "has a port that is no port"),
        ("http://:80/v1", "must begin with http:// or https:// and name a host"),
    ],
)
def test_an_address_that_is_none_is_told_by_its_fault(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="^base_url " + re.escape(said)):
        Url(text)


def test_a_failure_names_an_ipv6_address_in_brackets() -> None:
    call = Call(retry=RetryPolicy(max_retries=0))

    async def main() -> ModelCallError:
        try:
            with pytest.raises(ModelCallError) as caught:
                await call.ask(endpoint("http://[::1]:1/v1", "openai-completions"))
            return caught.value
        finally:
            await call.client.close()

    assert "[::1]:1" in asyncio.run(main()).message


WHOLE = sse(
    chat({"content": "done"}),
    chat({}, "stop"),
    {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
)
GARBLED = [
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    + chunk(WHOLE)
    + b"ZZZ\r\n",
    stream_head("content-encoding: gzip\r\n") + gzip.compress(WHOLE) + b"no gzip",
]


@pytest.mark.parametrize("data", GARBLED, ids=["chunked", "gzip"])
def test_what_came_before_the_transport_broke_is_told_though_it_broke_in_the_same_read(data: bytes) -> None:
    answer, peer, _ = run([[data, "close"]], call=Call(retry=ONCE))
    assert answer.content == (TextBlock(text="done"),)
    assert answer.usage.input_tokens == 9
    assert len(peer.requests) == 1


@pytest.mark.parametrize("line", [b"\n", b": x\n\n", b"data: {}\n\n", b"event: x\n\n"])
def test_a_few_bytes_that_unpack_to_very_many_lines_are_taken_in_slices(
    monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    """Between two of them the loop is let in, so that an abort is heard."""
    sizes, feed = [], SseParser.feed

    def counted(parser: SseParser, data: bytes) -> list[SseEvent]:
        sizes.append(len(data))
        return feed(parser, data)

    monkeypatch.setattr(SseParser, "feed", counted)
    body = gzip.compress(line * (8_000_000 // len(line)), 1)
    run([[stream_head("content-encoding: gzip\r\n") + body, "close"]], call=Call(retry=ONCE))
    assert len(sizes) > 20  # all of it, or as far as the time for silence allows
    assert max(sizes) <= 64 * 1024


FOREIGN = http(said("of another request"))
BEHIND = {
    "a whole answer": FOREIGN,
    "part of a head": b"HTTP/1.1 200 OK\r\n",
    "a line end": b"\r\n",
    "an interim answer": b"HTTP/1.1 100 Continue\r\n\r\n",
}


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("context", [None, server_context()], ids=["plain", "tls"])
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("pause_s", [None, 0.02])
def test_what_stands_behind_an_answer_is_never_the_answer_to_the_next_request(
    context: ssl.SSLContext | None, behind: str, pause_s: float | None
) -> None:
    async def main() -> tuple[list[object], list[int]]:
        call = Call(retry=ONCE)
        first: Script = (
            [http(said("first")) + BEHIND[behind]]
            if pause_s is None
            else [http(said("first")), pause_s, BEHIND[behind]]
        )
        async with BytePeer(first, [http(said("second"))], context=context) as peer:
            answers = [(await call.ask(endpoint(peer.base_url))).content]
            await asyncio.sleep(0.1)  # what is sent behind it has come
            answers.append((await call.ask(endpoint(peer.base_url))).content)
            await call.client.close()
            return list(answers), [request.connection for request in peer.requests]

    answers, connections = asyncio.run(main())
    assert answers == [(TextBlock(text="first"),), (TextBlock(text="second"),)]
    assert connections == [1, 2]


def test_a_408_that_was_meant_for_an_idle_connection_is_no_answer_to_the_next_request() -> None:
    """The server gave the connection up while the request was on its way: it is asked anew, and no try is counted."""
    gone = http(b"{}", status="408 Request Timeout", extra="connection: close\r\n")

    async def main() -> tuple[list[object], list[int]]:
        call = Call(retry=ONCE)
        async with BytePeer([http(said("first"))], [gone, "close"], [http(said("second"))]) as peer:
            answers = [(await call.ask(endpoint(peer.base_url))).content for _ in range(2)]
            await call.client.close()
            return list(answers), [request.connection for request in peer.requests]

    answers, connections = asyncio.run(main())
    assert answers == [(TextBlock(text="first"),), (TextBlock(text="second"),)]
    assert connections == [1, 1, 2]
