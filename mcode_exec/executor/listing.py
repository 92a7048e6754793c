"""The models that can be named, for `mcode models`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from mcode_exec import config as configuration
from mcode_exec.config import Config, ProviderConfig
from mcode_exec.errors import ConfigError, ModelUnknownError
from mcode_exec.executor.models import BUILT_IN_MODEL, is_local, local_info
from mcode_exec.executor.workspaces import find_workspace
from mcode_exec.providers import catalogue
from mcode_exec.providers.endpoints import key_variables
from mcode_exec.providers.known_providers import PROVIDERS
from mcode_exec.records.model import ModelInfo, ModelRef


class ModelRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """Prices are USD per million tokens as decimal text, null when unknown."""

    model: str
    name: str
    context: int
    output: int
    input: str | None
    output_price: str | None
    cache_read: str | None
    cache_write: str | None
    tools: bool
    images: bool
    reasoning: bool
    key: str
    source: str


async def list_models(
    env: Mapping[str, str],
    *,
    cwd: str | None,
    config_file: str | None,
    provider: str | None,
    all_providers: bool,
) -> list[ModelRow]:
    """Models of one provider, of those whose key is here, or of all.  Raises: ConfigError, ModelUnknownError."""
    config = configuration.load(
        flag_file=config_file, env=env, workspace=find_workspace(cwd, env), trust_flag=False
    )
    known = sorted({*PROVIDERS, *config.providers, "local"})
    if provider is not None and provider not in known:
        raise ModelUnknownError(f"there is no provider {provider!r}; there are {', '.join(known)}")
    rows: list[ModelRow] = []
    for provider_id in known if provider is None else [provider]:
        state = _key(provider_id, config, env)
        if provider is None and not all_providers and state == "missing":
            continue
        rows += _rows(provider_id, config, state)
    return rows


def _key(provider_id: str, config: Config, env: Mapping[str, str]) -> str:
    provider = config.providers.get(provider_id)
    entry = PROVIDERS.get(provider_id)
    if is_local(ModelRef(provider_id=provider_id, model_id=""), provider):
        return _local_state(provider)
    if provider is not None and (provider.api_key_file or provider.api_key_command):
        return "configured"
    if any(env.get(name, "").strip() for name in key_variables(provider_id, provider)):
        return "set"
    needs_key = entry.needs_key if entry is not None else provider is not None and provider.has_key_source
    return "missing" if needs_key else "none needed"


def _local_state(provider: ProviderConfig | None) -> str:
    from mcode_exec.providers.local import check_installed

    try:
        check_installed(None if provider is None else provider.path)
    except ConfigError:
        return "not installed" if provider is None or provider.path is None else "not usable"
    return "none needed"


def _rows(provider_id: str, config: Config, state: str) -> list[ModelRow]:
    provider = config.providers.get(provider_id)
    ref = ModelRef(provider_id=provider_id, model_id=BUILT_IN_MODEL)
    is_ours = is_local(ref, provider)
    if is_ours and (provider is None or provider.path is None):
        return [_row(local_info(ref, provider), "SmolLM2 135M, on this machine, no tools", state)]
    return [
        _row(local_info(listed.info.ref, provider) if is_ours else listed.info, listed.name, state)
        for listed in catalogue.known_models(provider_id, provider)
    ]


def _row(info: ModelInfo, name: str, state: str) -> ModelRow:
    price = info.price
    return ModelRow(
        model=str(info.ref),
        name=name,
        context=info.context_tokens,
        output=info.output_tokens,
        input=None if price is None else format(price.input, "f"),
        output_price=None if price is None else format(price.output, "f"),
        cache_read=None if price is None or price.cache_read is None else format(price.cache_read, "f"),
        cache_write=None if price is None or price.cache_write is None else format(price.cache_write, "f"),
        tools=info.takes_tools,
        images=info.takes_images,
        reasoning=info.reasons,
        key=state,
        source=info.source,
    )
