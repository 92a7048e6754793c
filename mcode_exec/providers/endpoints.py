"""Where a provider is and how it is spoken to: the table, overridden by the configuration, overridden by variables.

Invariant: what cannot be used (an address, a proxy, a key's source) is found
here, before anything is begun; no key is in any message.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcode_exec.config import text_variable
from mcode_exec.config.records import ProviderConfig
from mcode_exec.errors import ConfigError, ModelUnknownError
from mcode_exec.providers.known_providers import PROVIDERS, ProviderEntry
from mcode_exec.providers.proxy import proxy_for
from mcode_exec.providers.url import Url
from mcode_exec.providers.wire import Auth, Endpoint
from mcode_exec.records.model import WireFormat


def key_variables(provider_id: str, config: ProviderConfig | None = None) -> tuple[str, ...]:
    """The variables that may hold the provider's key; none when the configuration names another source."""
    if config is not None and config.has_key_source:
        return (config.api_key_env,) if config.api_key_env else ()
    entry = PROVIDERS.get(provider_id)
    return entry.key_envs if entry else (f"{_variable_stem(provider_id)}_API_KEY",)


def endpoint_of(
    provider_id: str, config: ProviderConfig | None, env: Mapping[str, str], *, with_key: bool = True
) -> Endpoint:
    """Where the provider is and how it is spoken to.

    A built-in provider whose key is nowhere gets an endpoint without one, and
    the call says so; one that only the configuration knows, and that names no
    key, is spoken to without.  Blocks up to 10 s where the key comes from a command.
    Not `with_key`: its key is left alone.
    Raises: ModelUnknownError; ConfigError; KeyMissingError for a key source that yields nothing.
    """
    entry = PROVIDERS.get(provider_id)
    if entry is None and config is None:
        raise unknown_provider(provider_id)
    base_url_env = entry.base_url_env if entry else f"{_variable_stem(provider_id)}_BASE_URL"
    base_url = _url_variable(env, base_url_env) or (config.base_url if config else None) or ""
    api = _api_of(provider_id, entry, config, has_own_url=bool(base_url))
    base_url = base_url or (entry.base_urls.get(api, "") if entry else "")
    if not base_url:
        raise ConfigError(
            f'provider {provider_id!r} has no address: set base_url under [providers."{provider_id}"]'
        )
    # what cannot be used, the address or the proxy before it, is found before anything is begun
    url = Url(base_url)
    proxy_for(url.scheme, url.host, url.port, env)
    key, key_source = _key_of(provider_id, config, env) if with_key else (None, None)
    return Endpoint(
        provider_id=provider_id,
        api=api,
        base_url=base_url,
        api_key=key,
        auth=_auth_of(entry, config, api, has_key=key is not None),
        headers=dict(config.headers) if config else {},
        query=dict(config.query) if config else {},
        key_env=" or ".join(key_variables(provider_id, config)) or None,
        key_source=key_source,
    )


def _url_variable(env: Mapping[str, str], name: str) -> str:
    """The address that a variable holds; empty where it is unset.  Raises: ConfigError for what is none."""
    value = text_variable(env, name).strip()
    if not value:
        return ""
    from mcode_exec.config import values

    try:
        return values.base_url(value)
    except values.WrongValueError as wrong:
        raise ConfigError(f"{name} {wrong}") from None


def unknown_provider(provider_id: str) -> ModelUnknownError:
    return ModelUnknownError(
        f"there is no provider {provider_id!r}; built in are {', '.join(PROVIDERS)}, "
        f"others need [providers.NAME] in the configuration"
    )


def _api_of(
    provider_id: str, entry: ProviderEntry | None, config: ProviderConfig | None, *, has_own_url: bool
) -> WireFormat:
    if config is not None and config.api is not None:
        if config.api == "local":
            raise ConfigError(f"provider {provider_id!r} is local: it has no address until its server runs")
        if config.api == "replay":
            raise ConfigError(f"provider {provider_id!r} plays a recording back: it has no address")
        return config.api
    if entry is None:
        raise ConfigError(f'provider {provider_id!r} has no api: set it under [providers."{provider_id}"]')
    return entry.api_elsewhere or entry.api if has_own_url else entry.api


def _key_of(
    provider_id: str, config: ProviderConfig | None, env: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """The key and where it is from, or neither."""
    if config is not None and config.has_key_source:
        from mcode_exec.config.keys import key_source, resolve_key

        key = resolve_key(config, env)
        return (key, key_source(config)) if key is not None else (None, None)
    for name in key_variables(provider_id, config):
        if value := env.get(name, "").strip():
            return value, f"the variable {name}"
    return None, None


def _auth_of(
    entry: ProviderEntry | None, config: ProviderConfig | None, api: WireFormat, *, has_key: bool
) -> Auth:
    names_source = config is not None and config.has_key_source
    if not has_key and not names_source and not (entry and entry.needs_key):
        return "none"
    if config is not None and config.auth is not None:
        return config.auth
    if entry is not None:
        return entry.auth
    return "x-api-key" if api == "anthropic-messages" else "bearer"


def _variable_stem(provider_id: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in provider_id).upper()
