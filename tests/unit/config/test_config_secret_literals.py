from __future__ import annotations

import pytest

from mcode_exec.config.records import Config, ProviderConfig


@pytest.mark.parametrize(
    "name",
    ["Authorization", "x-auth-token", "cf-access-client-secret", "Ocp-Apim-Subscription-Key", "Cookie"],
)
def test_headers_and_parameters_that_are_keys_are_secret(name: str) -> None:
    provider = ProviderConfig(
        name="p", headers={name: "value-1"}, query={"sig": "value-2", "api-version": "3"}
    )
    assert Config(providers={"p": provider}).secret_literals == ("value-1", "value-2")


def test_other_headers_are_not() -> None:
    provider = ProviderConfig(name="p", headers={"x-team": "ci", "accept": "text/plain"})
    assert Config(providers={"p": provider}).secret_literals == ()
