"""What is secret in a header or query parameter that stands in the configuration as it is sent."""

from __future__ import annotations

import base64
import binascii

#: parts of the names of headers and query parameters whose values are secret
_SECRET_PARTS = ("auth", "key", "token", "secret", "password", "cookie", "credential", "sig", "sas", "jwt")
#: schemes whose credentials are secret in a header of any name; source: RFC 7617, RFC 6750
_SCHEMES = ("bearer", "basic")


def secrets_in(name: str, value: str) -> tuple[str, ...]:
    """Everything in a value that is to be masked: the value, and each part that a server may repeat alone."""
    scheme, _, credentials = value.strip().partition(" ")
    credentials = credentials.strip()
    has_scheme = bool(credentials) and scheme.lower() in _SCHEMES
    if not has_scheme and not any(part in name.lower() for part in _SECRET_PARTS):
        return ()
    if not credentials:
        return (value,)
    found = [value, credentials]
    if scheme.lower() == "basic":
        found += _of_basic(credentials)
    elif not has_scheme:
        # a scheme of somebody's own, or parameters: `Token abc`, `key=abc, other=def`
        found += [part.strip(' "') for word in value.replace(";", ",").split(",") for part in _parts(word)]
    return tuple(found)


def _parts(word: str) -> list[str]:
    key, equals, rest = word.partition("=")
    return [rest] if equals and rest.strip(' "=') else key.split()


def _of_basic(credentials: str) -> list[str]:
    """`user:password` as it was before it was encoded, and the password alone."""
    bare = credentials.rstrip("=")
    try:
        data = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (ValueError, binascii.Error):
        return [bare]
    try:
        pair = data.decode("utf-8")
    except UnicodeDecodeError:
        pair = data.decode("latin-1")
    return [bare, pair, pair.partition(":")[2]]
