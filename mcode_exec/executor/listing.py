"""The models that can be named, for `mcode models`."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from msgspec import Struct

from mcode_exec import config as configuration
from mcode_exec import paths
from mcode_exec.config import Config, ProviderConfig
from mcode_exec.errors import ConfigError, ModelUnknownError
from mcode_exec.executor.catalogue_state import DataState, state_of
from mcode_exec.executor.models import BUILT_IN_MODEL, catalogue_of, is_local, local_info
from mcode_exec.executor.workspaces import find_workspace
from mcode_exec.providers.catalogue import Catalogue
from mcode_exec.providers.endpoints import key_variables
from mcode_exec.providers.known_providers import PROVIDERS
from mcode_exec.records.model import ModelInfo, ModelRef
from mcode_exec.records.usage import Price


class TierRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a call costs, all of it, whose prompt has more than `above_tokens` tokens."""

    above_tokens: int
    input: str
    output_price: str
    cache_read: str | None
    cache_write: str | None


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
    #: prices of long prompts, ascending
    tiers: list[TierRow]
    tools: bool
    images: bool
    reasoning: bool
    key: str
    #: who had the last word on limits and prices
    source: str
    #: day of the catalogue's data behind it; null where they say nothing of the model
    data_date: str | None


class Listing(Struct, frozen=True, kw_only=True):
    """The rows, how old the data are, and what a refresh has changed."""

    rows: list[ModelRow]
    state: DataState
    refreshed: str | None = None
    #: False where one provider was asked for, and the data say nothing of any of its models
    tells_of_data: bool = True


async def list_models(
    env: Mapping[str, str],
    *,
    cwd: str | None,
    config_file: str | None,
    data_dir: str | None,
    provider: str | None,
    all_providers: bool,
    refreshes: bool,
) -> Listing:
    """Models of one provider, of those whose key is here, or of all; `refreshes`: by data that are fetched first.

    Raises: ConfigError, ModelUnknownError; ModelCallError and StoreFailedError of a refresh.
    """
    config = configuration.load(
        flag_file=config_file, env=env, workspace=find_workspace(cwd, env), trust_flag=False
    )
    known = sorted({*PROVIDERS, *config.providers, "local"})
    if provider is not None and provider not in known:
        raise ModelUnknownError(f"there is no provider {provider!r}; there are {', '.join(known)}")
    refreshed = None
    if refreshes:
        from mcode_exec.executor.refreshing import refresh

        refreshed = await refresh(env, config=config, data_dir=data_dir)
    catalogue = catalogue_of(config, paths.find_data_dir(data_dir, env))
    rows: list[ModelRow] = []
    for provider_id in known if provider is None else [provider]:
        state = _key(provider_id, config, env)
        if provider is None and not all_providers and state == "missing":
            continue
        try:
            rows += _rows(provider_id, config, state, catalogue)
        except ConfigError:
            # one recording that cannot be used says nothing of other providers' models
            own = config.providers.get(provider_id)
            if provider is not None or own is None or own.api != "replay":
                raise
    is_told = provider is None or not rows or any(row.data_date is not None for row in rows)
    return Listing(rows=rows, state=state_of(catalogue.data), refreshed=refreshed, tells_of_data=is_told)


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


def _rows(provider_id: str, config: Config, state: str, catalogue: Catalogue) -> list[ModelRow]:
    provider = config.providers.get(provider_id)
    ref = ModelRef(provider_id=provider_id, model_id=BUILT_IN_MODEL)
    is_ours = is_local(ref, provider)
    if provider is not None and provider.api == "replay":
        return _recorded(provider, state)
    if is_ours and (provider is None or provider.path is None):
        info = local_info(ref, provider, catalogue)
        return [_row(info, "SmolLM2 135M, on this machine, no tools", state, None)]
    rows = []
    for listed in catalogue.listed(provider_id, provider):
        info = local_info(listed.info.ref, provider, catalogue) if is_ours else listed.info
        rows.append(_row(info, listed.name, state, catalogue.data.date if listed.is_in_data else None))
    return rows


def _recorded(provider: ProviderConfig, state: str) -> list[ModelRow]:
    """The models of a recording.  Raises: ConfigError."""
    from mcode_exec.executor.tape import recorded_models

    return [_row(info, "recorded", state, None) for info in recorded_models(provider)]


def _row(info: ModelInfo, name: str, state: str, data_date: str | None) -> ModelRow:
    price = info.price
    return ModelRow(
        model=str(info.ref),
        name=name,
        context=info.context_tokens,
        output=info.output_tokens,
        input=None if price is None else _usd(price.input),
        output_price=None if price is None else _usd(price.output),
        cache_read=None if price is None else _usd(price.cache_read),
        cache_write=None if price is None else _usd(price.cache_write),
        tiers=[] if price is None else [_tier(above, one) for above, one in price.tiers],
        tools=info.takes_tools,
        images=info.takes_images,
        reasoning=info.reasons,
        key=state,
        source=info.source,
        data_date=data_date,
    )


def _tier(above: int, price: Price) -> TierRow:
    return TierRow(
        above_tokens=above,
        input=format(price.input, "f"),
        output_price=format(price.output, "f"),
        cache_read=_usd(price.cache_read),
        cache_write=_usd(price.cache_write),
    )


def _usd(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")
