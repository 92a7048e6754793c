"""An address of a provider, taken apart: scheme, host, port, target.

Written out because urllib.parse costs every start more than this does.
"""

from __future__ import annotations

from mcode_exec.config.authority import WrongAuthorityError, host_and_port
from mcode_exec.errors import ConfigError


class Url:
    """An http or https address; `name` is what a fault calls it.

    Raises: ConfigError for anything else.
    """

    def __init__(self, text: str, name: str = "base_url") -> None:
        scheme, found, rest = text.strip().partition("://")
        self.scheme = scheme.lower()
        if not found or self.scheme not in ("http", "https"):
            raise ConfigError(f"{name} must begin with http:// or https:// and name a host")
        rest = rest.partition("#")[0]
        end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
        if "@" in rest[:end]:
            raise ConfigError(f"{name} holds a user name or password; send them as a header instead")
        try:
            host, port = host_and_port(rest[:end])
        except WrongAuthorityError as wrong:
            raise ConfigError(f"{name} {wrong}") from None
        if not host or any(c.isspace() for c in host):
            raise ConfigError(f"{name} must begin with http:// or https:// and name a host")
        self.host = host.lower() if host.isascii() else _ascii_host(host, name)
        self.port = port or (443 if self.scheme == "https" else 80)
        target = rest[end:] if rest[end:].startswith("/") else "/" + rest[end:]
        if not target.isascii() or not target.isprintable() or " " in target:
            from urllib.parse import quote

            target = quote(target, safe="/?&=%:@!$'()*+,;~[]")
        self.target = target

    @property
    def netloc(self) -> str:
        return netloc(self.scheme, self.host, self.port)


def netloc(scheme: str, host: str, port: int) -> str:
    """Host and port as a URL and the Host header name them: the usual port is left out."""
    host = f"[{host}]" if ":" in host else host
    return host if port == (443 if scheme == "https" else 80) else f"{host}:{port}"


def _ascii_host(host: str, name: str) -> str:
    if host.isascii():
        return host  # and the codec, with its tables, stays unloaded
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ConfigError(f"{name} names a host that is no host name") from None
