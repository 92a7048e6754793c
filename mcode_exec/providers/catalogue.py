"""What is known of a model: limits and prices from the catalogue's data, overridden by the configuration.

The data are read only when a model that they may know is asked for.  Nothing
here is a guess: a price that is not known is None; limits that are not known
are the stated defaults.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec.config.records import CostConfig, ModelConfig, ProviderConfig
from mcode_exec.providers.known_providers import PROVIDERS
from mcode_exec.records.model import ModelInfo, ModelRef
from mcode_exec.records.usage import Price

if TYPE_CHECKING:
    from mcode_exec.providers.catalogue_data import CatalogueModel, Cost

#: beyond so many tokens a prompt is priced as a long one where only that is known
_LONG_TOKENS = 200_000
#: limits of a model that nobody describes, tokens
DEFAULT_CONTEXT_TOKENS = 128_000
DEFAULT_OUTPUT_TOKENS = 8_192


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
