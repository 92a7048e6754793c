"""Fetching the published catalogue: from a server that means well, and from those that do not."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcode_exec.errors import ModelCallError
from mcode_exec.providers import catalogue_refresh
from mcode_exec.providers.catalogue_data import MAX_BYTES, CatalogueData, packaged_mark
from mcode_exec.providers.catalogue_refresh import fetch, packed, published
from tests.unit.providers.byte_peer import BytePeer, Script, http, stream_head

URL = "http://catalogue.example/api.json?token=secret"
BIG = 1 << 20


def model(model_id: str = "big-1", **fields: Any) -> dict[str, Any]:
    return {
        "id": model_id,
        "name": "Big",
        "limit": {"context": 100_000, "output": 10_000},
        "cost": {"input": 1, "output": 2.5},
        "last_updated": "2026-06-01",
        **fields,
    }


def document(*models: dict[str, Any]) -> bytes:
    return json.dumps({"acme": {"id": "acme", "models": {one["id"]: one for one in models}}}).encode()


def answer(body: bytes, **how: Any) -> bytes:
    return http(body, kind="application/json", **how)


def fetched(
    script: Script, *, env: dict[str, str] | None = None, limit_s: float = 20.0, address: str | None = None
) -> tuple[bytes | ModelCallError, BytePeer]:
    async def main() -> tuple[bytes | ModelCallError, BytePeer]:
        async with BytePeer(script) as peer:
            where = address or f"{peer.base_url}/api.json?token=secret"
            variables = {name: value.format(port=peer.port) for name, value in (env or {}).items()}
            try:
                return await fetch(where, variables, limit_s=limit_s), peer
            except ModelCallError as error:
                return error, peer

    return asyncio.run(main())


def refused(script: Script, **how: Any) -> ModelCallError:
    error, _ = fetched(script, **how)
    assert isinstance(error, ModelCallError), error
    assert "secret" not in error.message
    return error


def test_the_body_comes_as_it_is_and_nothing_secret_goes_out() -> None:
    body, peer = fetched([answer(document(model()))], env={"ANTHROPIC_API_KEY": "sk-key"})
    assert body == document(model())
    (request,) = peer.requests
    assert request.line == "GET /v1/api.json?token=secret HTTP/1.1"
    assert (request.body, request.header("content-length")) == (b"", None)
    assert request.header("accept-encoding") == "gzip"
    assert request.header("authorization") is request.header("cookie") is None
    assert b"sk-key" not in request.head


def test_a_compressed_body_is_unpacked() -> None:
    packed_body = gzip.compress(document(model()))
    body, _ = fetched([answer(packed_body, extra="content-encoding: gzip\r\n")])
    assert body == document(model())
    cut = refused([answer(packed_body[:-9], extra="content-encoding: gzip\r\n")])
    assert (cut.code, cut.exit_code) == ("LLM_UPSTREAM_ERROR", 69)


def test_a_proxy_is_asked_where_one_is_named() -> None:
    body, peer = fetched(
        [answer(document(model()))],
        env={"HTTP_PROXY": "http://user:pass@127.0.0.1:{port}"},
        address=URL,
    )
    assert body == document(model())
    assert peer.requests[0].line == "GET http://catalogue.example/api.json?token=secret HTTP/1.1"
    assert peer.requests[0].header("proxy-authorization") is not None


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        ("404 Not Found", "LLM_BAD_RESPONSE", 3),
        ("204 No Content", "LLM_BAD_RESPONSE", 3),
        ("403 Forbidden", "LLM_AUTH_ERROR", 77),
        ("429 Too Many Requests", "LLM_UPSTREAM_ERROR", 69),
        ("503 Service Unavailable", "LLM_UPSTREAM_ERROR", 69),
    ],
)
def test_a_refusal_says_its_status_and_whether_to_try_again(status: str, code: str, exit_code: int) -> None:
    error = refused([f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode()])
    assert (error.code, error.exit_code) == (code, exit_code)
    assert status.split(maxsplit=1)[0] in error.message


def test_a_redirect_is_told_and_not_followed() -> None:
    async def main() -> tuple[ModelCallError, BytePeer]:
        async with BytePeer([answer(document(model()))]) as other:
            location = f"location: http://u:pass@127.0.0.1:{other.port}/elsewhere?token=secret\r\n"
            async with BytePeer([answer(b"", status="302 Found", extra=location)]) as peer:
                with pytest.raises(ModelCallError) as caught:
                    await fetch(f"{peer.base_url}/api.json", {})
            return caught.value, other

    error, other = asyncio.run(main())
    assert other.requests == []
    assert (error.code, error.exit_code) == ("LLM_BAD_RESPONSE", 3)
    assert f"a redirect to http://127.0.0.1:{other.port}/elsewhere, which is not followed" in error.message


def test_a_body_without_end_is_cut_off_at_the_cap() -> None:
    endless = [stream_head(), *[b" " * BIG] * (MAX_BYTES // BIG + 2), "hold"]
    assert "larger than 32 MiB" in refused(endless).message
    bomb = gzip.compress(b" " * (MAX_BYTES + BIG))
    error = refused([answer(bomb, extra="content-encoding: gzip\r\n")])
    assert "unpacks to far more than any answer" in error.message
    assert error.exit_code == 3


def test_a_slow_drip_ends_at_the_time_limit() -> None:
    error = refused([stream_head(), *[b"{", 0.05] * 200], limit_s=0.5)
    assert (error.code, error.exit_code) == ("LLM_UPSTREAM_ERROR", 69)
    assert "within 0.5 s" in error.message


def test_a_body_that_breaks_off_is_no_body() -> None:
    whole = answer(document(model()))
    error = refused([whole[:-10], "close"])
    assert (error.code, error.exit_code) == ("LLM_UPSTREAM_ERROR", 69)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n",
        b"{}",
        b"[]",
        b"null",
        b"<!doctype html><p>hello",
        b"\x00\xff\xfe",
        document(model())[:-3],
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"error": {"message": "no"}}',
        b'{"acme": {"models": {}}}',
        b'{"acme": {"models": {"big-1": {}}}}',
        b'{"acme": {"models": [1, 2]}}',
        document(model(limit={"context": "much"})),
        document(model(last_updated="")),
        document(model(last_updated="9999-01-01")),
        # one entry of two that cannot be read: another shape
        document(model(), model("big-2", limit=3)),
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_no_catalogue_is_refused_in_one_sentence(body: bytes) -> None:
    with pytest.raises(ModelCallError) as caught:
        published(body, URL)
    assert (caught.value.code, caught.value.exit_code) == ("LLM_BAD_RESPONSE", 3)
    assert "\n" not in caught.value.message
    assert "secret" not in caught.value.message


def test_a_byte_order_mark_before_a_catalogue_is_passed_over() -> None:
    assert published(b"\xef\xbb\xbf" + document(model()), URL) == published(document(model()), URL)


def test_single_entries_that_cannot_be_read_are_left_out_and_counted() -> None:
    good = [model(f"big-{number}") for number in range(20)]
    found = published(document(*good, model("odd", limit=3)), URL)
    assert (found.date, found.left_out, len(found.models["acme"])) == ("2026-06-01", 1, 20)
    assert (found.named, found.unpriced, found.unpriced_named) == (("acme/odd",), 0, ())


def test_what_is_named_of_a_catalogue_is_bounded_and_harmless() -> None:
    good = [model(f"big-{number}") for number in range(200)]
    odd = [model(f"{number}\x1b[31m" + "x" * 500, limit=3) for number in range(9)]
    found = published(document(*good, *odd), URL)
    assert (found.left_out, len(found.named)) == (9, 5)
    assert all(name.isprintable() and len(name) < 150 for name in found.named)


@pytest.mark.parametrize("price", [-1, "NaN", "sNaN", "Infinity", 1e300])
def test_what_cannot_be_a_price_is_an_unknown_one(price: object, tmp_path: Path) -> None:
    found = published(document(model(cost={"input": price, "output": 1})), URL)
    assert kept(found, tmp_path).all_models("acme")["big-1"].cost is None


def test_a_price_of_long_prompts_that_cannot_be_charged_makes_the_price_unknown(tmp_path: Path) -> None:
    half = {"input": 1, "output": 2, "context_over_200k": {"input": 3}}
    foreign = {"input": 1, "output": 2, "tiers": [{"input": 3, "output": 4, "tier": {"type": "hour"}}]}
    more = [model(f"more-{number}") for number in range(9)]
    models = kept(
        published(document(model(cost=half), model("other", cost=foreign), model(""), *more), URL), tmp_path
    ).all_models("acme")
    assert models["big-1"].cost is None
    # a tier that is told by something else says nothing of the length of prompts
    assert models["other"].cost is not None
    assert "" not in models, "a model without a name cannot be asked for"


def kept(found: catalogue_refresh.Published, directory: Path) -> CatalogueData:
    path = directory / "catalogue.json.gz"
    path.write_bytes(packed(found, address=URL, now_ms=1, mark=packaged_mark(), packaged_date=None))
    return CatalogueData(str(path))


def test_what_is_kept_reads_back_as_it_was_and_tells_no_secret(tmp_path: Path) -> None:
    tiers = [{"input": 2, "output": 5, "tier": {"type": "context", "size": 200_000}}]
    found = published(document(model(cost={"input": 0.1, "output": 2.5, "tiers": tiers})), URL)
    data = kept(found, tmp_path)
    assert data.trouble is None
    assert data.all_models("acme") == found.models["acme"]
    assert data.fetched is not None
    assert data.fetched.url == "http://catalogue.example/api.json"
    assert str(found.models["acme"]["big-1"].cost.input) == "0.1"  # type: ignore[union-attr]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
entries = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("id", "name", "limit", "cost", "modalities", "reasoning", "last_updated"), values
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=5), entries, max_size=3))
def test_any_json_is_a_catalogue_or_refused(odd: dict[str, Any]) -> None:
    good = {f"big-{number}": model(f"big-{number}") for number in range(30)}
    body = json.dumps({"acme": {"models": {**odd, **good}}}).encode()
    found = published(body, URL)
    assert len(found.models["acme"]) + found.left_out == len({**odd, **good})
    packed(found, address=URL, now_ms=1, mark=None, packaged_date=None)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_a_catalogue_or_refused(noise: bytes, at: int) -> None:
    body = document(model())
    for damaged in (noise, body[:at] + noise + body[at:], body[:at] + noise + body[at + len(noise) :]):
        try:
            packed(published(damaged, URL), address=URL, now_ms=1, mark=None, packaged_date=None)
        except ModelCallError as error:
            code = error.code
        else:
            code = "LLM_BAD_RESPONSE"
        assert code == "LLM_BAD_RESPONSE"
