"""TLS from the system's trust store; imported for https only.

`SSL_CERT_FILE` and `SSL_CERT_DIR` replace the store, as OpenSSL has it.
"""

from __future__ import annotations

import ssl


def client_context() -> ssl.SSLContext:
    import truststore

    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def is_certificate_error(error: BaseException) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError | ssl.CertificateError)


def is_tls_error(error: BaseException) -> bool:
    return isinstance(error, ssl.SSLError)


def reason(error: BaseException) -> str:
    """What OpenSSL found wrong, without its file and line numbers."""
    said = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    return str(said).replace("_", " ")
