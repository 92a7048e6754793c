"""Every stream under fixtures/streams becomes what it must, wherever the network cuts it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcode_exec.errors import RETRIED_CODES, ModelCallError
from mcode_exec.providers.client import RetryPolicy, Timeouts
from mcode_exec.providers.reading import assembled, judged, read_answer
from mcode_exec.providers.sending import wire_module
from mcode_exec.records.history import TextBlock, ThinkingBlock, ToolCallBlock
from mcode_exec.records.model import Answer, AttemptDiscarded, ModelFact, TextDelta, ThinkingDelta
from tests.unit.providers.byte_peer import Call, http, request, run

STREAMS = Path(__file__).parents[3] / "fixtures" / "streams"
EXPECTED: dict[str, dict[str, Any]] = msgspec.json.decode((STREAMS / "expected.json").read_bytes())


class CutBody:
    """A 200 answer whose body comes in given pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self._pieces = pieces

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


async def outcome_of(pieces: list[bytes], api: str) -> tuple[Answer | ModelCallError, list[ModelFact]]:
    facts: list[ModelFact] = []
    reader = wire_module(api).Reader(facts.append, "acme", [], 0)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(None) as timer:
            await read_answer(CutBody(pieces), reader, timer, idle_s=60.0)
        answer = judged(assembled(reader, []), request(), may_be_empty=False)
    except ModelCallError as error:
        return error, facts
    return answer, facts


def check(outcome: Answer | ModelCallError, expected: dict[str, Any]) -> None:
    if "error" in expected:
        assert isinstance(outcome, ModelCallError), outcome
        assert outcome.code == expected["error"]
        assert expected.get("message", "") in outcome.message
        assert outcome.message.isprintable()
        return
    assert isinstance(outcome, Answer), outcome
    texts = [block.text for block in outcome.content if isinstance(block, TextBlock)]
    thinking = [block.text for block in outcome.content if isinstance(block, ThinkingBlock)]
    calls = [block for block in outcome.content if isinstance(block, ToolCallBlock)]
    assert "".join(texts) == expected.get("text", "")
    if "thinking" in expected:
        assert "".join(thinking) == expected["thinking"]
    assert [[call.name, call.arguments] for call in calls] == expected.get("calls", [])
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        assert call.broken_arguments == expected.get("broken")
    assert outcome.finish_reason == expected.get("finish", "tool_calls" if calls else outcome.finish_reason)
    if "usage" in expected:
        assert [outcome.usage.input_tokens, outcome.usage.output_tokens] == expected["usage"]
    if "cache_read" in expected:
        assert outcome.usage.cache_read_tokens == expected["cache_read"]


def check_facts(answer: Answer, facts: list[ModelFact]) -> None:
    """The deltas that were not discarded add up to the blocks they point at."""
    last = max((at for at, fact in enumerate(facts) if isinstance(fact, AttemptDiscarded)), default=-1)
    said: dict[int, str] = {}
    for fact in facts[last + 1 :]:
        if isinstance(fact, TextDelta | ThinkingDelta):
            said[fact.index] = said.get(fact.index, "") + fact.text
    for index, text in said.items():
        block = answer.content[index]
        assert isinstance(block, TextBlock | ThinkingBlock)
        assert block.text == text


def comparable(outcome: Answer | ModelCallError) -> object:
    if isinstance(outcome, ModelCallError):
        return outcome.code, outcome.message
    blocks = [
        msgspec.structs.replace(block, id="") if isinstance(block, ToolCallBlock) else block
        for block in outcome.content
    ]
    return blocks, outcome.finish_reason, outcome.usage


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_stream_becomes_what_it_must(name: str) -> None:
    body, expected = (STREAMS / name).read_bytes(), EXPECTED[name]
    outcome, facts = asyncio.run(outcome_of([body] if body else [], expected["api"]))
    check(outcome, expected)
    if isinstance(outcome, Answer):
        check_facts(outcome, facts)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_stream_cut_at_any_byte_becomes_the_same(name: str) -> None:
    body, expected = (STREAMS / name).read_bytes(), EXPECTED[name]

    async def main() -> None:
        whole, _ = await outcome_of([body] if body else [], expected["api"])
        for at in range(1, len(body), 1 if len(body) < 3000 else len(body) // 50):
            outcome, _ = await outcome_of([body[:at], body[at:]], expected["api"])
            assert comparable(outcome) == comparable(whole), at
        singles = [body[at : at + 1] for at in range(len(body))]
        outcome, facts = await outcome_of(singles, expected["api"])
        assert comparable(outcome) == comparable(whole)
        if isinstance(outcome, Answer):
            check_facts(outcome, facts)

    asyncio.run(main())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_stream_over_a_socket_is_asked_for_again_exactly_when_that_may_help(name: str) -> None:
    body, expected = (STREAMS / name).read_bytes(), EXPECTED[name]
    kind = "text/event-stream" if name.endswith(".sse") else "text/html"
    call = Call(retry=RetryPolicy(max_retries=1), timeouts=Timeouts(idle_s=2.0))
    outcome, peer, _ = run([[http(body, kind=kind)]], api=expected["api"], call=call)
    check(outcome, expected)
    assert len(peer.requests) == (2 if expected.get("error") in RETRIED_CODES else 1)
