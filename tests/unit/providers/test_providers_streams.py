"""Every stream under fixtures/streams becomes what it must, wherever the network cuts it or breaks it off."""

from __future__ import annotations

import asyncio
import gzip
import random
import re
import zlib
from itertools import pairwise
from typing import Any

import pytest

from mcode_exec.errors import RETRIED_CODES, ModelCallError
from mcode_exec.providers.client import RetryPolicy, Timeouts
from mcode_exec.providers.codings import Inflater
from mcode_exec.records.history import TextBlock, ThinkingBlock, ToolCallBlock
from mcode_exec.records.model import Answer
from tests.support.streams import EXPECTED, STREAMS, Outcome, check_facts, comparable, outcome_of
from tests.unit.providers.byte_peer import BytePeer, Call, endpoint, http, run, stream_head

NAMES = sorted(EXPECTED)
APIS = {"an": "anthropic-messages", "oa": "openai-completions", "re": "openai-responses"}


def body_of(name: str) -> bytes:
    return (STREAMS / name).read_bytes()


def check(outcome: Outcome, expected: dict[str, Any]) -> None:
    if "error" in expected:
        assert isinstance(outcome, ModelCallError), outcome
        assert outcome.code == expected["error"]
        assert expected.get("message", "") in outcome.message
        assert outcome.message.isprintable()
        return
    assert isinstance(outcome, Answer), outcome
    texts = [block.text for block in outcome.content if isinstance(block, TextBlock)]
    thoughts = [block for block in outcome.content if isinstance(block, ThinkingBlock)]
    calls = [block for block in outcome.content if isinstance(block, ToolCallBlock)]
    assert "".join(texts) == expected.get("text", "")
    for key, value in (
        ("thinking", "".join(block.text for block in thoughts)),
        ("signatures", [block.signature for block in thoughts]),
        ("encrypted", [block.encrypted for block in thoughts]),
        ("forms", [block.form for block in thoughts]),
        ("usage", [outcome.usage.input_tokens, outcome.usage.output_tokens]),
        ("cache_read", outcome.usage.cache_read_tokens),
    ):
        assert value == expected.get(key, value), key
    assert [[call.name, call.arguments] for call in calls] == expected.get("calls", [])
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        assert call.broken_arguments == expected.get("broken")
    assert outcome.finish_reason == expected.get("finish", "tool_calls" if calls else outcome.finish_reason)


def test_every_file_says_what_it_becomes_and_where_it_is_from() -> None:
    files = {path.name for path in STREAMS.iterdir() if path.suffix in (".sse", ".json")}
    assert files - {"expected.json"} == set(NAMES)
    for name, expected in EXPECTED.items():
        assert expected["api"] == APIS.get(name[:2], "openai-completions")
        assert re.match(r"\S.{9,}", expected["origin"]), name


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_becomes_what_it_must(name: str) -> None:
    outcome, facts = asyncio.run(outcome_of([body_of(name)], EXPECTED[name]["api"]))
    check(outcome, EXPECTED[name])
    if isinstance(outcome, Answer):
        check_facts(outcome, facts)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_cut_at_any_byte_becomes_the_same(name: str) -> None:
    body, api = body_of(name), EXPECTED[name]["api"]

    async def main() -> None:
        whole = await outcome_of([body], api)
        size = len(body)
        cuts = [[0, at, size] for at in range(1, size, 1 if size < 10_000 else size // 50)]
        cuts.append(list(range(size + 1)))
        source = random.Random(name)
        cuts += [sorted({0, size, *source.choices(range(size + 1), k=9)}) for _ in range(10)]
        for places in cuts:
            outcome, facts = await outcome_of([body[a:b] for a, b in pairwise(places)], api)
            assert comparable(outcome) == comparable(whole[0]), places[:12]
            assert facts == whole[1], places[:12]

    asyncio.run(main())


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_broken_off_at_any_byte_is_that_answer_or_none(name: str) -> None:
    """A call whose arguments were cut, or half a text, never counts: another attempt is made instead."""
    body, api = body_of(name), EXPECTED[name]["api"]

    async def main() -> None:
        whole, _ = await outcome_of([body], api)
        for at in range(0, len(body), 1 if len(body) < 10_000 else len(body) // 50):
            outcome, facts = await outcome_of([body[:at]], api)
            if isinstance(outcome, Answer):  # only usage that follows the finish reason may be missing
                assert comparable(outcome)[:2] == comparable(whole)[:2], at
                check_facts(outcome, facts)
            elif isinstance(whole, Answer):
                assert outcome.code in RETRIED_CODES, (at, outcome)

    asyncio.run(main())


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_over_a_socket_is_asked_for_again_exactly_when_that_may_help(name: str) -> None:
    expected = EXPECTED[name]
    kind = "text/event-stream" if name.endswith(".sse") else "text/html"
    call = Call(retry=RetryPolicy(max_retries=1), timeouts=Timeouts(idle_s=2.0))
    outcome, peer, _ = run([[http(body_of(name), kind=kind)]], api=expected["api"], call=call)
    check(outcome, expected)
    assert len(peer.requests) == (2 if expected.get("error") in RETRIED_CODES else 1)


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize(
    ("coding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate)],
)
def test_a_coding_is_undone_wherever_it_is_cut_and_its_end_is_missed(coding: str, compress: Any) -> None:
    body = body_of("oa-call-in-pieces.sse")
    data = compress(body)
    for at in range(len(data)):
        inflater = Inflater(coding)
        begin = inflater.decode(data[:at])
        assert body.startswith(begin)
        assert inflater.is_cut == (at > 0)
        assert begin + inflater.decode(data[at:]) == body
        assert not inflater.is_cut
    inflater = Inflater(coding)
    assert b"".join(inflater.decode(data[at : at + 1]) for at in range(len(data))) == body


@pytest.mark.parametrize("name", ["oa-call-in-pieces.sse", "an-call-in-pieces.sse", "re-call-in-pieces.sse"])
def test_a_compressed_stream_broken_off_is_that_answer_or_none(name: str) -> None:
    data = gzip.compress(body_of(name))
    head = stream_head("content-encoding: gzip\r\n")

    async def ask_all(peer: BytePeer, call: Call) -> list[Any]:
        outcomes: list[Any] = []
        for _ in peer.scripts:
            try:
                outcomes.append(await call.ask(endpoint(peer.base_url, EXPECTED[name]["api"])))
            except ModelCallError as error:
                outcomes.append(error)
        return outcomes

    cuts = [*range(0, len(data), 7), len(data)]
    scripts = [[head + data[:at], "close"] for at in cuts]
    outcomes, _, _ = run(scripts, ask_all, call=Call(retry=RetryPolicy(max_retries=0)))
    check(outcomes.pop(), EXPECTED[name])
    for outcome in outcomes:
        if isinstance(outcome, Answer):
            check(outcome, EXPECTED[name])
        else:
            assert outcome.code == "LLM_UPSTREAM_ERROR"
