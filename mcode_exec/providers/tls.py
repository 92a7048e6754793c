"""TLS from the system's trust store; imported for https only.

`SSL_CERT_FILE` and `SSL_CERT_DIR` replace the store, as OpenSSL has it.
"""

from __future__ import annotations

import os
import ssl

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.failures import printable, why

#: OpenSSL's numbers for a certificate that is another's, and for one whose time is not now
_OF_ANOTHER = frozenset({62, 63, 64})
_OUT_OF_TIME = frozenset({9, 10})

_OLD = "{place} speaks no version of TLS that mcode does: it has 1.2 and 1.3"
_NO_COMMON = (
    "{place} speaks TLS, but refuses what is offered: no cipher in common, a client certificate that it wants, "
    "or no service of the name {host}"
)
_NO_NAME = "{place} knows no service of the name {host}; is the base URL right?"
_CLIENT = "{place} asks for a certificate of the client, and mcode has none"
#: what a peer's alert means, by words of its name
_ALERTS = {
    "internal error": "{place} broke off the TLS handshake by an error of its own",
    "user canceled": "{place} broke off the TLS handshake",
    "bad record mac": "what {place} sent in TLS arrived damaged",
    "unrecognized name": _NO_NAME,
    "protocol version": _OLD,
    "unsupported protocol": _OLD,
    "handshake failure": _NO_COMMON,
    "insufficient security": "{place} speaks TLS, but wants stronger ciphers than are offered",
    "certificate required": _CLIENT,
    "alert bad certificate": _CLIENT,
    "alert unknown ca": _CLIENT,
    "alert access denied": _CLIENT,
    "alert": "{place} refused the TLS handshake",
}
#: those that say nothing of the configuration: another attempt may fare better
_PASSING = frozenset({"internal error", "user canceled", "bad record mac"})


def client_context() -> ssl.SSLContext:
    import truststore

    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def failure(error: OSError, place: str, host: str) -> ModelCallError:
    """What went wrong where TLS was begun with `place`, which was asked for as `host`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = f"the certificate of {place} is not trusted: {_reason(error)}{_advice(error)}"
        return ModelCallError("LLM_BAD_RESPONSE", printable(said))
    if not isinstance(error, ssl.SSLError):
        said = f"the connection to {place} broke in the TLS handshake: {why(error)}"
        return ModelCallError("LLM_UPSTREAM_ERROR", printable(said))
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ModelCallError(
            "LLM_UPSTREAM_ERROR", printable(f"{place} closed the connection in the TLS handshake")
        )
    reason = _reason(error)
    for word, sentence in _ALERTS.items():
        if word in reason:
            code = "LLM_UPSTREAM_ERROR" if word in _PASSING else "LLM_BAD_RESPONSE"
            said = f"{sentence.format(place=place, host=host)} (it said: {reason})"
            return ModelCallError(code, printable(said))
    return ModelCallError(
        "LLM_BAD_RESPONSE", printable(f"{place} does not speak TLS as https needs: {reason}")
    )


def _reason(error: ssl.SSLError) -> str:
    """What OpenSSL found wrong, without its file and line numbers."""
    said = getattr(error, "verify_message", "")
    if said:
        return str(said).rstrip(".")
    text = str(error.reason or error.strerror or error).partition(" (_ssl.c")[0]
    return text.removeprefix("[SSL] ").replace("_", " ").lower()


def _advice(error: ssl.SSLCertVerificationError) -> str:
    """What helps, by what is wrong: another store does not make a certificate another host's, nor valid again."""
    if error.verify_code in _OF_ANOTHER:
        return "; is the base URL right?"
    if error.verify_code in _OUT_OF_TIME:
        return "; the server needs a new one, or the clock of this machine is wrong"
    path = os.environ.get("SSL_CERT_FILE")
    directories = os.environ.get("SSL_CERT_DIR", "")
    if directories and not path:
        if not any(os.path.isdir(one) for one in directories.split(os.pathsep)):
            return f"; SSL_CERT_DIR names {directories}, which is no directory"
        return f"; SSL_CERT_DIR names {directories}, which does not hold its authority"
    if not path:
        return "; set SSL_CERT_FILE for a private authority"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return f"; SSL_CERT_FILE names {path}, which holds no certificate in PEM form"
    except OSError as unreadable:
        return f"; SSL_CERT_FILE names {path}, which cannot be read: {why(unreadable)}"
    return f"; SSL_CERT_FILE names {path}, which does not hold its authority"
