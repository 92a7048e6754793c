"""Where a call goes and what stands above it: address, headers, key; no key is in any message."""

from __future__ import annotations

from types import ModuleType

from mcode_exec.errors import ConfigError, KeyMissingError
from mcode_exec.providers.failures import Headers
from mcode_exec.providers.wire import Endpoint, WireRequest
from mcode_exec.records.model import WireFormat
from mcode_exec.version import VERSION


def wire_module(api: WireFormat) -> ModuleType:
    """Only the format that is spoken is imported."""
    if api == "anthropic-messages":
        from mcode_exec.providers import anthropic_messages

        return anthropic_messages
    if api == "openai-responses":
        from mcode_exec.providers import openai_responses

        return openai_responses
    from mcode_exec.providers import openai_completions

    return openai_completions


def address(endpoint: Endpoint, path: str) -> str:
    base, _, query = endpoint.base_url.partition("?")
    pairs = [query] if query else []
    if endpoint.query:
        from urllib.parse import urlencode

        pairs.append(urlencode(endpoint.query))
    return base.rstrip("/") + path + ("?" + "&".join(pairs) if pairs else "")


def headers_of(endpoint: Endpoint, call: WireRequest) -> Headers:
    """Header lines in an order that never changes; the configuration's own come last and win.

    Raises: KeyMissingError; ConfigError for what cannot be sent.
    """
    lines = {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        "user-agent": f"mcode-exec/{VERSION}",
        **dict(call.headers),
    }
    if endpoint.auth != "none":
        key = (endpoint.api_key or "").strip()
        if not key:
            where = f"set {endpoint.key_env}" if endpoint.key_env else "set api_key in the configuration"
            raise KeyMissingError(f"no key for the provider {endpoint.provider_id}: {where}")
        if not key.isascii() or not key.isprintable():
            raise ConfigError(
                f"the key of the provider {endpoint.provider_id} holds a character no key can hold"
                + (f"; look at {endpoint.key_env}" if endpoint.key_env else "")
            )
        if endpoint.auth == "bearer":
            lines["authorization"] = f"Bearer {key}"
        else:
            lines[endpoint.auth] = key
    for name, value in endpoint.headers.items():
        lines[name.lower()] = value
    try:
        return [(name.encode("ascii"), value.encode("latin-1").strip()) for name, value in lines.items()]
    except UnicodeEncodeError:
        raise ConfigError(
            f"a header of the provider {endpoint.provider_id} holds a character that cannot be sent"
        ) from None
