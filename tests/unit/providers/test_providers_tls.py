"""TLS that does not come about: what the sentence says, and whether it is tried again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from pathlib import Path

import pytest

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.client import RetryPolicy
from tests.unit.providers.byte_peer import Call, endpoint

PEM = Path(__file__).parent / "tls" / "peer.pem"


def server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(PEM)
    return context


def refused(answer: bytes | ssl.SSLContext, host: str = "127.0.0.1") -> ModelCallError:
    """The failure of a call whose peer answers the first bytes of TLS so, or speaks it."""
    context = answer if isinstance(answer, ssl.SSLContext) else None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10_000)
        writer.write(answer if isinstance(answer, bytes) else b"")
        writer.close()

    async def main() -> ModelCallError:
        call = Call(retry=RetryPolicy(max_retries=0))
        server = await asyncio.start_server(serve, host, 0, ssl=context)
        try:
            await call.ask(endpoint(f"https://{host}:{server.sockets[0].getsockname()[1]}/v1"))
        except ModelCallError as error:
            return error
        finally:
            server.close()
            await call.client.close()
        raise AssertionError("no error")

    return asyncio.run(main())


def alert(number: int, level: int = 2) -> bytes:
    return bytes([0x15, 3, 3, 0, 2, level, number])


@pytest.mark.parametrize(
    ("answer", "sentence", "is_retried"),
    [
        (alert(80), "broke off the TLS handshake by an error of its own", True),
        (alert(20), "in TLS arrived damaged", True),
        (alert(0, 1), "closed the connection in the TLS handshake", True),
        (b"", "broke in the TLS handshake: the other side closed it", True),
        (b"\x16\x03\x01", "broke in the TLS handshake: the other side closed it", True),
        (alert(40), "speaks TLS, but refuses what is offered", False),
        (alert(71), "speaks TLS, but wants stronger ciphers", False),
        (alert(70), "speaks no version of TLS that mcode does", False),
        (alert(112), "knows no service of the name 127.0.0.1; is the base URL right?", False),
        (alert(116), "asks for a certificate of the client", False),
        (alert(42), "asks for a certificate of the client", False),
        (alert(50), "refused the TLS handshake (it said: tlsv1 alert decode error)", False),
        (alert(120), "refused the TLS handshake (it said: tlsv1 alert no application protocol)", False),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS as https needs", False),
        (b"SSH-2.0-OpenSSH_9\r\n", "does not speak TLS as https needs", False),
    ],
)
def test_a_handshake_that_fails_says_why(answer: bytes, sentence: str, is_retried: bool) -> None:
    error = refused(answer)
    assert sentence in error.message
    assert "_ssl.c" not in error.message
    assert error.is_retried == is_retried
    assert error.code == ("LLM_UPSTREAM_ERROR" if is_retried else "LLM_BAD_RESPONSE")


def test_a_certificate_for_another_name_is_no_matter_of_the_trust_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    error = refused(server_context(), "127.0.0.2")
    assert "not valid for '127.0.0.2'; is the base URL right?" in error.message
    assert "SSL_CERT_FILE" not in error.message


def test_a_certificate_that_is_not_trusted_is_advised_by_what_ssl_cert_file_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    assert refused(server_context()).message.endswith("; set SSL_CERT_FILE for a private authority")
    for directory, said in (
        (tmp_path / "none", "is no directory"),
        (tmp_path, "does not hold its authority"),
    ):
        monkeypatch.setenv("SSL_CERT_DIR", str(directory))
        message = refused(server_context()).message
        assert message.endswith(f"; SSL_CERT_DIR names {directory}, which {said}")
    monkeypatch.delenv("SSL_CERT_DIR")
    missing = tmp_path / "none.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(missing))
    assert (
        f"SSL_CERT_FILE names {missing}, which cannot be read: No such file"
        in refused(server_context()).message
    )
    missing.write_text("no certificate\n")
    assert "which holds no certificate in PEM form" in refused(server_context()).message


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_server_that_wants_a_certificate_of_the_client_is_a_wrong_configuration(
    version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS 1.3 says so only when the handshake is over on this side."""
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    context = server_context()
    context.load_verify_locations(PEM)
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = version

    def serve(listener: socket.socket) -> None:
        # a plain socket: asyncio's servers close without sending the alert
        peer, _ = listener.accept()
        secured = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
        with secured, contextlib.suppress(OSError):
            with contextlib.suppress(ssl.SSLError):
                secured.do_handshake()
            secured.settimeout(5.0)
            while socket.socket.recv(secured, 4096):
                pass

    async def ask(port: int) -> object:
        call = Call(retry=RetryPolicy(max_retries=0))
        try:
            return await call.ask(endpoint(f"https://127.0.0.1:{port}/v1"))
        finally:
            await call.client.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with pytest.raises(ModelCallError) as caught:
            asyncio.run(ask(listener.getsockname()[1]))
        thread.join()
    assert (caught.value.code, caught.value.is_retried) == ("LLM_BAD_RESPONSE", False)
    assert (
        "asks for a certificate of the client" in caught.value.message
        or "a client certificate that it wants" in caught.value.message
    )
