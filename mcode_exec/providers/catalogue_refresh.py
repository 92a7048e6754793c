"""Fetching the published catalogue, and holding it to its shape before any of it counts.

Invariants: nothing secret is sent and no redirect is followed; size and time
are bounded; what is not a catalogue of models.dev's shape is refused as a
whole, while single entries that this version cannot read are left out,
counted and named.  Where the result is kept is the caller's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec import Struct, structs

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.catalogue_data import (
    MAX_BYTES,
    UNREADABLE,
    CatalogueModel,
    Fetched,
    Limit,
    newest_day,
    wrong_price,
)
from mcode_exec.providers.failures import header, printable, shown
from mcode_exec.providers.http import HttpClient
from mcode_exec.providers.redirects import place_of, shown_address
from mcode_exec.providers.transport import Response
from mcode_exec.providers.url import Url
from mcode_exec.version import VERSION

PUBLISHED_URL = "https://models.dev/api.json"
#: from the first byte sent to the last one read
LIMIT_S = 60.0
#: a catalogue of which more than one entry in so many cannot be read is of another shape
_MOST_UNREADABLE = 10
#: so many are named of what is not understood, and so much of each name
_MOST_NAMED = 5
_LONGEST_NAME = 100


class Published(Struct, frozen=True, kw_only=True):
    """A catalogue that has been fetched and can be used."""

    #: the newest day that it speaks of
    date: str
    models: dict[str, dict[str, CatalogueModel]]
    #: entries that could not be read, and the first of them by name
    left_out: int = 0
    named: tuple[str, ...] = ()
    #: models whose price cannot be one, so that it is unknown, and the first of them
    unpriced: int = 0
    unpriced_named: tuple[str, ...] = ()


class _Entry(CatalogueModel, frozen=True, kw_only=True):
    """What every model of a catalogue has: without it the file is something else."""

    id: str
    limit: Limit


class _Provider(Struct, frozen=True):
    models: dict[str, msgspec.Raw]


async def fetch(
    address: str, env: Mapping[str, str], *, connect_s: float = 10.0, limit_s: float = LIMIT_S
) -> bytes:
    """The body at `address`.

    Raises: ModelCallError: LLM_UPSTREAM_ERROR for what may work later, LLM_BAD_RESPONSE where the
        address must be wrong, LLM_AUTH_ERROR; ConfigError for an address or proxy that cannot be used.
    """
    url = Url(address, "the address of the catalogue")
    client = HttpClient(connect_s=connect_s, environ=env)
    try:
        async with asyncio.timeout(limit_s):
            response = await client.get(
                url,
                [(b"accept", b"application/json"), (b"user-agent", f"mcode-exec/{VERSION}".encode("ascii"))],
            )
            try:
                if response.status != 200:
                    raise _refusal(response, url)
                return await _body(response, url)
            finally:
                response.abort()
    except TimeoutError:
        raise ModelCallError(
            "LLM_UPSTREAM_ERROR", f"{shown_address(url)} has not answered in full within {limit_s:g} s"
        ) from None
    finally:
        await client.close()


async def _body(response: Response, url: Url) -> bytes:
    data = bytearray()
    while piece := await response.read():
        data += piece
        if len(data) > MAX_BYTES:
            raise _foreign(url, "is larger than 32 MiB")
    return bytes(data)


def _refusal(response: Response, url: Url) -> ModelCallError:
    status, where = response.status, shown_address(url)
    if 300 <= status < 400:
        place = place_of(header(response.headers, b"location") or "", url)
        return ModelCallError(
            "LLM_BAD_RESPONSE",
            printable(f"{where} answered {status}, a redirect to {place}, which is not followed"),
            http_status=status,
        )
    if status in (401, 403, 407):
        code = "LLM_AUTH_ERROR"
    elif status >= 500 or status in (408, 425, 429):
        code = "LLM_UPSTREAM_ERROR"
    else:
        code = "LLM_BAD_RESPONSE"
    return ModelCallError(code, f"{where} answered {status} instead of the catalogue", http_status=status)


def _foreign(url: Url, what: str, body: bytes = b"") -> ModelCallError:
    begins = f"; it begins: {shown(body)}" if body else ""
    return ModelCallError("LLM_BAD_RESPONSE", printable(f"the answer of {shown_address(url)} {what}{begins}"))


def published(body: bytes, address: str) -> Published:
    """The catalogue in `body`.  Raises: ModelCallError, LLM_BAD_RESPONSE for anything that is none."""
    url = Url(address, "the address of the catalogue")
    body = body.removeprefix(b"\xef\xbb\xbf")
    if not body.strip():
        raise _foreign(url, "is empty")
    try:
        raws = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        raise _foreign(url, "is no catalogue, or not all of one", body) from None
    models: dict[str, dict[str, CatalogueModel]] = {}
    left_out: list[str] = []
    unpriced: list[str] = []
    for provider_id, raw in raws.items():
        try:
            entries = msgspec.json.decode(raw, type=_Provider).models
        except UNREADABLE:
            left_out.append(_shown(provider_id))
            continue
        readable: dict[str, CatalogueModel] = {}
        for model_id, one in entries.items():
            entry = _entry(one) if model_id else None  # a model without a name cannot be asked for
            if entry is None:
                left_out.append(_shown(f"{provider_id}/{model_id}"))
                continue
            # -1 stands for "it depends": such a model is known, its price is not
            if wrong_price("cost", entry.cost, foreign_tiers=True) is not None:
                unpriced.append(_shown(f"{provider_id}/{model_id}"))
                entry = structs.replace(entry, cost=None)
            readable[model_id] = entry
        if readable:
            models[provider_id] = readable
    count = sum(map(len, models.values()))
    date = newest_day(model.last_updated for entries_ in models.values() for model in entries_.values())
    why = None
    if not count:
        why = "it describes no model"
    elif len(left_out) * _MOST_UNREADABLE > count + len(left_out):
        why = f"{len(left_out)} of its {count + len(left_out)} entries are not understood"
    elif date is None:
        why = "none of its models has a last_updated up to today, so nobody could tell how old it is"
    if date is None or why is not None:
        raise _foreign(url, f"is no catalogue in the shape of models.dev: {why}", body)
    return Published(
        date=date,
        models=models,
        left_out=len(left_out),
        named=tuple(left_out[:_MOST_NAMED]),
        unpriced=len(unpriced),
        unpriced_named=tuple(unpriced[:_MOST_NAMED]),
    )


def _shown(name: str) -> str:
    return printable(name[:_LONGEST_NAME])


def _entry(raw: msgspec.Raw) -> CatalogueModel | None:
    """Only what this version reads of an entry: the rest is not kept."""
    try:
        entry = msgspec.json.decode(raw, type=_Entry)
        return CatalogueModel(**{name: getattr(entry, name) for name in CatalogueModel.__struct_fields__})
    except UNREADABLE:
        return None


def packed(
    found: Published, *, address: str, now_ms: int, mark: str | None, packaged_date: str | None
) -> bytes:
    """The file of fetched data, as `CatalogueData` reads it."""
    import gzip

    encoder = msgspec.json.Encoder(decimal_format="number")
    fetched = Fetched(
        date=found.date,
        fetched_ms=now_ms,
        url=shown_address(Url(address, "the address of the catalogue")),
        packaged_mark=mark,
        packaged_date=packaged_date,
        providers={
            provider_id: msgspec.Raw(encoder.encode({"models": models}))
            for provider_id, models in found.models.items()
        },
    )
    return gzip.compress(encoder.encode(fetched), mtime=0)
