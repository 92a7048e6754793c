"""The host and port of an address (`host:443`, `[::1]:8080`), and what is wrong with one, as a predicate.

The one reading of it for what a configuration says and what a request goes to.  Whether a name is a host's
is for who resolves it.
"""

from __future__ import annotations

_IPV6 = "an IPv6 address stands in brackets: http://[::1]:8080"


class WrongAuthorityError(ValueError):
    """The message goes on where the name of the address ends: `has a port that is no port; …`."""


def host_and_port(authority: str) -> tuple[str, int | None]:
    """Host (an IPv6 address without its brackets; "" if there is none) and port.

    Raises: WrongAuthorityError.
    """
    if not authority.startswith("["):
        if "]" in authority or "[" in authority:
            raise WrongAuthorityError(f"has a bracket that does not stand around the host; {_IPV6}")
        host, _, port = authority.partition(":")
        if host and ":" in port:
            raise WrongAuthorityError(f"has more than one colon in its host and port; {_IPV6}")
    else:
        host, bracket, behind = authority[1:].partition("]")
        if not bracket:
            raise WrongAuthorityError(f'has a "[" without its "]"; {_IPV6}')
        if not _is_ipv6(host):
            raise WrongAuthorityError(f"has brackets around what is no IPv6 address; {_IPV6}")
        if behind and not behind.startswith(":"):
            raise WrongAuthorityError(f'has more than a port behind its "]"; {_IPV6}')
        port = behind[1:]
    if host and port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise WrongAuthorityError("has a port that is no port; write https://host:443/path")
    return host, int(port) if host and port else None


def _is_ipv6(host: str) -> bool:
    import socket

    try:
        socket.inet_pton(socket.AF_INET6, host.partition("%")[0])  # behind a %: the zone
    except (OSError, UnicodeError, ValueError):
        return False
    return True
