"""The user's own word on models: a file in the shape of models.dev, laid over the catalogue's data.

What an entry names wins, what it leaves out is as the data have it.  Providers
stand under the name that `--model` uses, or under that of models.dev.  Other
than with data of others, a fault anywhere in the file is a ConfigError that
names file and field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Struct

from mcode_exec.config.records import CostConfig
from mcode_exec.errors import ConfigError
from mcode_exec.paths import open_regular
from mcode_exec.providers.catalogue_data import (
    MAX_BYTES,
    NO_PRICE,
    UNREADABLE,
    CatalogueModel,
    Cost,
    Limit,
    wrong_price,
)

_LIMITS = ("context", "output")
_NO_LIMIT = "must be a whole number of tokens from 1 up; what is not known is left out"
_PRICES = ("input", "output", "cache_read", "cache_write")
#: what may be a price that is a string; few files have it
_TEXT_PRICE = re.compile(rb'"(?:%s)"\s*:\s*"' % "|".join(_PRICES).encode())


class _Provider(Struct, frozen=True):
    models: dict[str, CatalogueModel] = {}


Override = Mapping[str, Mapping[str, CatalogueModel]]


def read_override(path: str) -> Override:
    """Provider → model → what the file says.  Raises: ConfigError."""
    data = _read(path)
    try:
        providers = msgspec.json.decode(data, type=dict[str, _Provider])
    except UNREADABLE as error:
        raise _fault(path, data, error) from None
    for provider_id, provider in providers.items():
        for model_id, model in provider.models.items():
            if not model_id:
                raise ConfigError(f"{path}: {provider_id + '.models'!r} has a model without a name.")
            wrong = wrong_price("cost", model.cost, foreign_tiers=False)
            wrong = wrong or _wrong_limit(model.limit)
            if wrong is not None:
                raise _wrong(path, (provider_id, model_id), *wrong)
    if _TEXT_PRICE.search(data) is not None:
        _refuse_text_prices(path, msgspec.json.decode(data))
    return {provider_id: provider.models for provider_id, provider in providers.items()}


def _wrong_limit(limit: Limit) -> tuple[str, str] | None:
    """The limit that is 0 and what it should be: in the data of others that means unknown, here it says nothing."""
    zero = next((field for field in _LIMITS if getattr(limit, field) == 0), None)
    return None if zero is None else (f"limit.{zero}", _NO_LIMIT)


def _wrong(path: str, names: tuple[str, str], field: str, what: str) -> ConfigError:
    return ConfigError(f"{path}: {'.models.'.join(names) + '.' + field!r} {what}.")


def _refuse_text_prices(path: str, providers: Mapping[str, Any]) -> None:
    """A decimal number is read from a string as well.  Raises: ConfigError for a price that is one."""
    for provider_id, provider in providers.items():
        for model_id, model in provider.get("models", {}).items():
            field = _text_in(model.get("cost"), "cost")
            if field is not None:
                raise _wrong(path, (provider_id, model_id), field, f"{NO_PRICE}, not a string")


def _text_in(cost: Any, at: str) -> str | None:
    """Where a price in a cost, or in one of its tiers, is a string."""
    if not isinstance(cost, dict):
        return None
    for field in _PRICES:
        if isinstance(cost.get(field), str):
            return f"{at}.{field}"
    below = [(f"{at}.tiers[{number}]", tier) for number, tier in enumerate(cost.get("tiers") or ())]
    below.append((f"{at}.context_over_200k", cost.get("context_over_200k")))
    return next((found for name, one in below if (found := _text_in(one, name)) is not None), None)


def check_whole(
    found: CatalogueModel | None,
    said: CatalogueModel,
    ours: CostConfig | None,
    *,
    path: str | None,
    model: str,
) -> None:
    """Half a price is none: what the file says of a price, the data or the configuration must make whole.

    Raises: ConfigError.
    """
    if said.cost is None:
        return
    for field in ("input", "output"):
        if getattr(found and found.cost, field, None) is None and getattr(ours, field, None) is None:
            raise ConfigError(
                f"{path}: {'cost.' + field!r} of {model} is missing, and nobody else says it: "
                "a price has input and output."
            )


def laid_over(known: CatalogueModel | None, said: CatalogueModel | None) -> CatalogueModel | None:
    """`known` with what the user has said in its place."""
    if known is None or said is None:
        return known if said is None else said
    return CatalogueModel(
        name=said.name or known.name,
        limit=Limit(
            context=said.limit.context or known.limit.context,
            output=said.limit.output or known.limit.output,
        ),
        cost=_cost(known.cost, said.cost),
        modalities=known.modalities if said.modalities is None else said.modalities,
        reasoning=known.reasoning if said.reasoning is None else said.reasoning,
        tool_call=known.tool_call if said.tool_call is None else said.tool_call,
        last_updated=known.last_updated,
    )


def _cost(known: Cost | None, said: Cost | None) -> Cost | None:
    """Tiers are those of whoever says the last word on prices, even none: half of a new price would be wrong."""
    if known is None or said is None:
        return known if said is None else said

    def pick(ours: Decimal | None, theirs: Decimal | None) -> Decimal | None:
        return theirs if ours is None else ours

    return Cost(
        input=pick(said.input, known.input),
        output=pick(said.output, known.output),
        cache_read=pick(said.cache_read, known.cache_read),
        cache_write=pick(said.cache_write, known.cache_write),
        tiers=said.tiers,
        context_over_200k=said.context_over_200k,
    )


def _read(path: str) -> bytes:
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}, the file of [catalogue], cannot be read: {error.strerror}.") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than 32 MiB; that is no catalogue.")
    return data.removeprefix(b"\xef\xbb\xbf")


def _fault(path: str, data: bytes, error: Exception) -> ConfigError:
    """What is wrong, and where: a whole-file error leaves out the names that lead to it."""
    what, _, _ = str(error).partition(" - at `")
    try:
        providers = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        return ConfigError(f"{path} is no JSON object in the shape of models.dev: {what}.")
    for provider_id, raw in providers.items():
        try:
            models = msgspec.json.decode(raw, type=_Raws).models
        except UNREADABLE as fault:
            return _at(path, (provider_id,), fault)
        for model_id, one in models.items():
            try:
                msgspec.json.decode(one, type=CatalogueModel)
            except UNREADABLE as fault:
                return _at(path, (provider_id, "models", model_id), fault)
    return ConfigError(f"{path} is not in the shape of models.dev: {what}.")


class _Raws(Struct, frozen=True):
    models: dict[str, msgspec.Raw] = {}


def _at(path: str, names: tuple[str, ...], fault: Exception) -> ConfigError:
    what, _, below = str(fault).partition(" - at `$")
    field = below.removesuffix("`")
    at = f"{path}: {'.'.join(names) + field!r}"
    if field.rpartition(".")[2] in _PRICES and field.startswith(".cost"):
        return ConfigError(f"{at} {NO_PRICE}.")
    if field in (".limit.context", ".limit.output"):
        return ConfigError(f"{at} {_NO_LIMIT}.")
    return ConfigError(f"{at}: {what or type(fault).__name__}.")
