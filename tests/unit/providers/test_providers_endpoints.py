"""Addresses, keys and wire formats of providers: built in, from variables, from the configuration."""

from __future__ import annotations

import pytest

from mcode_exec.config.records import ProviderConfig
from mcode_exec.errors import ConfigError, ModelUnknownError
from mcode_exec.providers.endpoints import endpoint_of, key_variables


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
