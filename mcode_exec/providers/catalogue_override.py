"""The user's own word on models: a file in the shape of models.dev, laid over the catalogue's data.

What an entry names wins, what it leaves out is as the data have it.  Providers
stand under the name that `--model` uses, or under that of models.dev.  Other
than with data of others, a fault anywhere in the file is a ConfigError that
names file and field.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import msgspec
from msgspec import Struct

from mcode_exec.errors import ConfigError
from mcode_exec.paths import open_regular
from mcode_exec.providers.catalogue_data import (
    MAX_BYTES,
    UNREADABLE,
    CatalogueModel,
    Cost,
    Limit,
    wrong_price,
)
from mcode_exec.records.usage import MAX_PRICE


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
            wrong = wrong_price("cost", model.cost)
            if wrong is not None:
                where = f"{provider_id}.models.{model_id}.{wrong}"
                raise ConfigError(
                    f"{path}: {where!r} must be a number from 0 to {MAX_PRICE} (USD per million tokens)."
                )
            unusable = _unusable_tier(model.cost)
            if unusable is not None:
                raise ConfigError(f"{path}: '{provider_id}.models.{model_id}.cost.{unusable}.")
    return {provider_id: provider.models for provider_id, provider in providers.items()}


def _unusable_tier(cost: Cost | None) -> str | None:
    """What keeps a price of long prompts from being charged, as field and fault; it must not be dropped unsaid."""
    if cost is None:
        return None
    sizes: set[int] = set()
    for number, tier in enumerate(cost.tiers):
        name = f"tiers[{number}]'"
        if tier.tier.type != "context" or not tier.tier.size:
            return name + ' needs \'tier\': {"type": "context", "size": TOKENS}'
        if tier.tier.size in sizes:
            return f"{name} is the second one that begins at {tier.tier.size} tokens"
        if tier.input is None or tier.output is None:
            return name + " needs both 'input' and 'output'"
        sizes.add(tier.tier.size)
    long = cost.context_over_200k
    if long is not None and (long.input is None or long.output is None):
        return "context_over_200k' needs both 'input' and 'output'"
    return None


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
    return ConfigError(
        f"{path}: {'.'.join(names) + below.removesuffix('`')!r}: {what or type(fault).__name__}."
    )
