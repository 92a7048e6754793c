"""Which proxy, if any, a request goes through: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY.

Lower-case names win over upper-case ones and empty ones count as unset.
Loopback addresses are never sent to a proxy: no proxy could reach this machine's
own.  NO_PROXY holds host suffixes, `host:port`, addresses, networks in CIDR form
(IPv6 with or without brackets) and `*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec.errors import ConfigError, ModelCallError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from mcode_exec.providers.failures import Headers

_ASKS = b"proxy-authenticate"


class Proxy(Struct, frozen=True):
    host: str
    port: int
    is_tls: bool
    #: value of the proxy-authorization header
    authorization: str | None = None
    #: the variable that names it
    variable: str = ""

    def __str__(self) -> str:
        """What a message calls it: never with its user or password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"the proxy {host}:{self.port} (from {self.variable})"


def proxy_for(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy for a target.

    Raises: ConfigError if one is named that cannot be used.
    """
    name, value = _setting(f"{scheme}_proxy", environ)
    if not value:
        name, value = _setting("all_proxy", environ)
    if not value or is_loopback(host) or _is_exempt(host, port, _setting("no_proxy", environ)[1]):
        return None
    return _parse(name, value)


def _setting(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    for spelling in (name, name.upper()):
        if value := environ.get(spelling, "").strip():
            return spelling, value
    return name, ""


def _parse(name: str, value: str) -> Proxy:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"{name} is no proxy address; write http://host:port") from None
    if parts.scheme.startswith("socks"):
        raise ConfigError(
            f"{name} names a SOCKS proxy, which mcode does not speak; "
            f"set an http:// proxy, or add the provider's host to NO_PROXY"
        )
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{name} is no proxy address; write http://host:port")
    is_tls = parts.scheme == "https"
    return Proxy(host, port or (443 if is_tls else 80), is_tls, _authorization(parts), name)


def _authorization(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    from base64 import b64encode
    from urllib.parse import unquote

    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + b64encode(pair.encode()).decode("ascii")


def refused_login(proxy: Proxy, headers: Headers) -> ModelCallError:
    """What a proxy's 407 means, with or without a tunnel.

    The advice holds no whole address with a login: it would be masked on its way out as if it were one.
    """
    from mcode_exec.providers.failures import printable

    asked = [
        value.decode("latin-1").split(None, 1)[0]
        for name, value in headers
        if name == _ASKS and value.strip()
    ]
    if asked and not any(scheme.lower().rstrip(",") == "basic" for scheme in asked):
        what = f"asks for {', '.join(asked)[:60]}, and mcode can only send a user and password (Basic)"
        advice = "let a proxy on this machine log in to it, and name that one"
    elif proxy.authorization:
        what = f"refuses the user and password in {proxy.variable}"
        advice = "correct them there (special characters as %XX)"
    else:
        what = "asks for a user and password"
        advice = f"write USER:PASSWORD@ before the host in {proxy.variable}"
    return ModelCallError(
        "LLM_AUTH_ERROR", printable(f"{proxy} answered 407: it {what}; {advice}"), http_status=407
    )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself, however it is spelled: `127.1`, `[::ffff:127.0.0.1]`, `LOCALHOST.`"""
    import socket
    from ipaddress import IPv6Address, ip_address

    name = host.lower().rstrip(".").removeprefix("[").removesuffix("]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    if not name[:1].isdigit() and ":" not in name:
        return False
    try:
        address = ip_address(name)
    except ValueError:
        try:
            address = ip_address(socket.inet_aton(name))  # `127.1`, `0x7f.1`, `2130706433`
        except (OSError, ValueError):
            return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    address = mapped or address
    return address.is_loopback or address.is_unspecified


def _is_exempt(host: str, port: int, no_proxy: str) -> bool:
    return any(_matches(host, port, entry) for entry in no_proxy.replace(",", " ").split())


def _matches(host: str, port: int, entry: str) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _is_in_network(host, entry)
    name, wanted_port = _split_port(entry.lower())
    if wanted_port is not None and wanted_port != port:
        return False
    name = name.removeprefix("*").removeprefix(".").rstrip(".")
    host = host.lower().rstrip(".")
    if ":" in name and ":" in host:
        return _is_in_network(host, name)  # an IPv6 address has many spellings
    return bool(name) and (host == name or host.endswith("." + name))


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        port = port.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:  # a plain name, or an IPv6 address without brackets
        return entry, None
    return name, int(port) if port.isascii() and port.isdigit() else None


def _is_in_network(host: str, network: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network.replace("[", "").replace("]", ""), strict=False)
    except (ValueError, TypeError):
        return False
