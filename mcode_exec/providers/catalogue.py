"""What is known of a model: limits and prices, by configuration, the user's override file, the data, or default.

The data are read only when a model that they may know is asked for.  Nothing
here is a guess: a price that is not known is None; limits that are not known
are the stated defaults.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec.config.records import CostConfig, ModelConfig, ProviderConfig
from mcode_exec.errors import ConfigError
from mcode_exec.providers.known_providers import PROVIDERS
from mcode_exec.records.model import ModelInfo, ModelRef
from mcode_exec.records.usage import Price, is_price

if TYPE_CHECKING:
    from mcode_exec.providers.catalogue_data import CatalogueData, CatalogueModel, Cost
    from mcode_exec.providers.catalogue_override import Override

#: beyond so many tokens a prompt is priced as a long one where only that is known
_LONG_TOKENS = 200_000
#: limits of a model that nobody describes, tokens
DEFAULT_CONTEXT_TOKENS = 128_000
DEFAULT_OUTPUT_TOKENS = 8_192


class ListedModel(Struct, frozen=True, kw_only=True):
    """A line of `mcode models`."""

    info: ModelInfo
    name: str
    #: whether the catalogue's data have it
    is_in_data: bool


class _Known(Struct, frozen=True, kw_only=True):
    """What data and override say of a model together, and who had the last word."""

    model: CatalogueModel | None = None
    source: str = "default"
    is_in_data: bool = False


class Catalogue:
    """What one process knows of models; nothing is read before the first question.

    `fetched` is the file of fetched data, which may be missing; `override` the user's file, which may not.
    """

    def __init__(self, *, fetched: str | None = None, override: str | None = None) -> None:
        self._fetched = fetched
        self.override_file = override

    def info(self, ref: ModelRef, config: ProviderConfig | None = None) -> ModelInfo:
        """Limits and prices of a model: the configuration's, the override's, the data's, the stated defaults.

        Raises: ConfigError for an override file that cannot be used.
        """
        configured = (config.models.get(ref.model_id) if config else None) or ModelConfig()
        said = self._said(ref.provider_id).get(ref.model_id)
        data_id = None if _is_complete(configured) else _id_in_data(ref.provider_id)
        found = None if data_id is None else self.data.find_model(data_id, ref.model_id)
        known = self._known(ref, found, said, configured)
        _check_whole(ref, known.model, configured)
        return _info(ref, known, configured)

    def listed(self, provider_id: str, config: ProviderConfig | None = None) -> list[ListedModel]:
        """The models of a provider that anybody describes, by id.  Raises: ConfigError, as `info`."""
        data_id = _id_in_data(provider_id)
        models = {} if data_id is None else self.data.all_models(data_id)
        said = self._said(provider_id)
        configured = config.models if config else {}
        listed = []
        for model_id in sorted({*models, *said, *configured}):
            ref = ModelRef(provider_id=provider_id, model_id=model_id)
            ours = configured.get(model_id) or ModelConfig()
            known = self._known(ref, models.get(model_id), said.get(model_id), ours)
            _check_whole(ref, known.model, ours)
            listed.append(
                ListedModel(
                    info=_info(ref, known, ours),
                    name=(known.model.name if known.model else "") or model_id,
                    is_in_data=known.is_in_data,
                )
            )
        return listed

    @cached_property
    def data(self) -> CatalogueData:
        from mcode_exec.providers.catalogue_data import CatalogueData

        return CatalogueData(self._fetched)

    @cached_property
    def override(self) -> Override:
        """What the user's file says; nothing without one.  Raises: ConfigError."""
        if self.override_file is None:
            return {}
        from mcode_exec.providers.catalogue_override import read_override

        return read_override(self.override_file)

    def _said(self, provider_id: str) -> dict[str, CatalogueModel]:
        """Under the provider's own name, which wins, and that of models.dev."""
        said = dict(self.override.get(_id_in_data(provider_id) or "", {}))
        said.update(self.override.get(provider_id, {}))
        return said

    def _known(
        self, ref: ModelRef, found: CatalogueModel | None, said: CatalogueModel | None, ours: ModelConfig
    ) -> _Known:
        if said is None:
            return (
                _Known() if found is None else _Known(model=found, source=self.data.source, is_in_data=True)
            )
        from mcode_exec.providers.catalogue_override import check_whole, laid_over

        model = laid_over(found, said)
        check_whole(model, said, ours.cost, path=self.override_file, model=str(ref))
        return _Known(model=model, source="override", is_in_data=found is not None)


def _check_whole(ref: ModelRef, known: CatalogueModel | None, ours: ModelConfig) -> None:
    """Half a price is none: what the configuration says of one, the data or the override must make whole.

    Raises: ConfigError.
    """
    if ours.half_cost is None or _price(known.cost if known else None, ours.cost) is not None:
        return
    raise ConfigError(
        f"{ours.half_cost} is missing, and nobody else says it for {ref}: a price has input and output."
    )


def _id_in_data(provider_id: str) -> str | None:
    entry = PROVIDERS.get(provider_id)
    return None if entry is None else entry.catalogue_id


def _is_complete(override: ModelConfig) -> bool:
    cost = override.cost
    has_price = cost is not None and cost.input is not None and cost.output is not None
    return has_price and override.context_tokens is not None and override.output_tokens is not None


def _info(ref: ModelRef, known: _Known, override: ModelConfig) -> ModelInfo:
    found = known.model
    known_context, known_output = (found.limit.context, found.limit.output) if found else (None, None)
    context = override.context_tokens or known_context or DEFAULT_CONTEXT_TOKENS
    output = override.output_tokens or known_output or min(DEFAULT_OUTPUT_TOKENS, context)
    is_configured = override != ModelConfig()
    return ModelInfo(
        ref=ref,
        context_tokens=context,
        output_tokens=output,
        price=_price(found.cost if found else None, override.cost),
        source="config" if is_configured else known.source,
        takes_tools=found is None or found.tool_call is not False,
        takes_images=_takes_images(found, override),
        reasons=found is not None and bool(found.reasoning),
    )


def _takes_images(found: CatalogueModel | None, override: ModelConfig) -> bool:
    if override.images is not None:
        return override.images
    # a model that nobody describes is taken at its user's word
    return found is None or found.modalities is None or "image" in found.modalities.input


def _price(known: Cost | None, override: CostConfig | None) -> Price | None:
    def pick(name: str) -> Decimal | None:
        ours: Decimal | None = getattr(override, name, None)
        return _sane(getattr(known, name, None)) if ours is None else ours

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
            Price(
                input=given,
                output=output,
                cache_read=_sane(one.cache_read),
                cache_write=_sane(one.cache_write),
            ),
        )
        for above, one in sorted(found, key=lambda tier: tier[0])
        if (given := _sane(one.input)) is not None and (output := _sane(one.output)) is not None
    )


def _sane(price: Decimal | None) -> Decimal | None:
    """Data are other people's: what is no price is not known."""
    return price if price is not None and is_price(price) else None
