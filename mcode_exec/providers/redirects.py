"""What a redirect means: it is not followed, and the sentence says where it led and what to set.

Where it led is shown without user name, password, query and fragment, any of which may hold a secret.
"""

from __future__ import annotations

from mcode_exec.errors import ConfigError, ModelCallError
from mcode_exec.providers.failures import Headers, header, printable, request_id_of
from mcode_exec.providers.url import Url


def redirected(status: int, headers: Headers, asked: Url, path: str, provider_id: str) -> ModelCallError:
    """The failure that an answer of class 3xx is; `path` is what the wire format put onto the base URL."""
    return ModelCallError(
        "LLM_BAD_RESPONSE",
        printable(_sentence(status, header(headers, b"location"), asked, path, provider_id)),
        http_status=status,
        request_id=request_id_of(headers),
    )


def _sentence(status: int, location: str | None, asked: Url, path: str, provider_id: str) -> str:
    said = f"the provider answered {status}"
    if not location:
        return f"{said} without an address to go on to; is the base URL right?"
    place = place_of(location, asked)
    if place is None:
        return f"{said}, a redirect to an address that is none for http; is the base URL right?"
    said += f", a redirect to {place}, which is not followed"
    base = place.rstrip("/").removesuffix(path)
    if base == place.rstrip("/") or place.rstrip("/") == shown_address(asked):
        return f"{said}; is the base URL right?"
    return f"{said}; if the service has moved, set base_url of the provider {provider_id!r} to {base}"


def place_of(location: str, asked: Url) -> str | None:
    """The address that `location` names from where it was received; None if that is no http address."""
    from urllib.parse import urljoin, urlsplit

    # a header is bytes, and addresses beyond ASCII come in UTF-8
    text = location.encode("latin-1", "replace").decode("utf-8", "replace")
    try:
        parts = urlsplit(urljoin(shown_address(asked), text))
        target = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
        return shown_address(Url(target.geturl()))
    except (ValueError, ConfigError):
        return None


def shown_address(url: Url) -> str:
    """An address without its query."""
    return f"{url.scheme}://{url.netloc}{url.target.partition('?')[0]}"
