"""The answers under fixtures/streams, and a body in memory that the real reader reads them from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.reading import assembled, judged, read_answer
from mcode_exec.providers.sending import wire_module
from mcode_exec.records.history import Message, TextBlock, ThinkingBlock, ToolCallBlock
from mcode_exec.records.model import (
    Answer,
    AttemptDiscarded,
    ModelFact,
    ModelInfo,
    ModelRef,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolSchema,
)

STREAMS = Path(__file__).parents[2] / "fixtures" / "streams"
#: file -> what it must become
EXPECTED: dict[str, dict[str, Any]] = msgspec.json.decode((STREAMS / "expected.json").read_bytes())

#: a call of a turn that has a tool: so markup of calls in a text matters
REQUEST = ModelRequest(
    model=ModelInfo(
        ref=ModelRef(provider_id="acme", model_id="big-1"),
        context_tokens=100_000,
        output_tokens=8_000,
        price=None,
        source="config",
    ),
    system="",
    tools=(ToolSchema(name="bash", description="Run a command.", parameters={"type": "object"}),),
    messages=(Message(role="user", content=(TextBlock(text="hi"),)),),
)

Outcome = Answer | ModelCallError


class PieceBody:
    """A 200 answer whose body comes in given pieces and then ends."""

    def __init__(self, pieces: Iterable[bytes], kind: bytes) -> None:
        self.headers = [(b"content-type", kind)]
        self._pieces = iter([piece for piece in pieces if piece])

    async def read(self) -> bytes:
        return next(self._pieces, b"")


async def outcome_of(
    pieces: Iterable[bytes], api: str, kind: bytes = b"text/plain"
) -> tuple[Outcome, list[ModelFact]]:
    """What a body of the content type `kind` becomes, and the facts that were told on the way."""
    facts: list[ModelFact] = []
    reader = wire_module(api).Reader(facts.append, "acme", [], 0)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(None) as timer:
            await read_answer(PieceBody(pieces, kind), reader, timer, idle_s=60.0)
        return judged(assembled(reader, []), REQUEST, may_be_empty=False), facts
    except ModelCallError as error:
        return error, facts


def comparable(outcome: Outcome) -> tuple[object, ...]:
    """All of an outcome but the ids that are made anew each time."""
    if isinstance(outcome, ModelCallError):
        return outcome.code, outcome.message, outcome.details.get("usage")
    blocks = [
        msgspec.structs.replace(block, id="") if isinstance(block, ToolCallBlock) else block
        for block in outcome.content
    ]
    return blocks, outcome.finish_reason, outcome.usage


def check_facts(answer: Answer, facts: list[ModelFact]) -> None:
    """The deltas that were not discarded add up to the blocks they point at, and to all of them."""
    last = max((at for at, fact in enumerate(facts) if isinstance(fact, AttemptDiscarded)), default=-1)
    said: dict[tuple[type, int], str] = {}
    for fact in facts[last + 1 :]:
        if isinstance(fact, TextDelta | ThinkingDelta | ToolCallDelta):
            piece = fact.arguments if isinstance(fact, ToolCallDelta) else fact.text
            said[type(fact), fact.index] = said.get((type(fact), fact.index), "") + piece
    for index, block in enumerate(answer.content):
        if isinstance(block, ToolCallBlock):
            told = said.pop((ToolCallDelta, index))
            assert block.broken_arguments in (None, told)
        elif isinstance(block, TextBlock):
            assert said.pop((TextDelta, index)) == block.text
        else:
            assert isinstance(block, ThinkingBlock)
            assert said.pop((ThinkingDelta, index), "") == block.text
    assert not said
