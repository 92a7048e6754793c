"""What must hold for any bytes at all: of server-sent events, and of answers in each wire format."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from typing import Any, get_args

import msgspec

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.assembly import MAX_BLOCKS
from mcode_exec.providers.sending import wire_module
from mcode_exec.providers.sse import SseEvent, SseParser
from mcode_exec.providers.wire import Endpoint
from mcode_exec.records.history import Message, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock
from mcode_exec.records.model import Answer, FinishReason, ModelFact, WireFormat
from tests.fuzz import mutations
from tests.support.streams import REQUEST, Outcome, check_facts, comparable, outcome_of

APIS: tuple[WireFormat, ...] = ("anthropic-messages", "openai-completions", "openai-responses")


def by_the_standard(data: bytes) -> list[SseEvent]:
    """The events of a whole stream, as the HTML standard tells it step by step: slow, simple, another way than ours."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    events: list[SseEvent] = []
    name = ""
    values: list[bytes] = []
    for line in re.split(rb"\r\n|\r|\n", data)[:-1]:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if values:
                events.append(SseEvent(name, b"\n".join(values)))
            name, values = "", []
        elif field == b"data":
            values.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return events


def check_sse(data: bytes) -> None:
    """The parser follows the standard, however the bytes are cut, and keeps no more than it was given."""
    expected = by_the_standard(data)
    source = random.Random(len(data))
    for pieces in ([data], mutations.cuts(source, data), [data[at : at + 1] for at in range(len(data))]):
        parser = SseParser()
        assert [event for piece in pieces for event in parser.feed(piece)] == expected


def check_answer(api: str) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        asyncio.run(_check_answer(data, api))

    return check


async def _check_answer(data: bytes, api: str) -> None:
    source = random.Random(len(data))
    kind = source.choice([b"text/event-stream", b"application/json", b""])
    outcome, facts = await outcome_of([data], api, kind)
    ways = [mutations.cuts(source, data), mutations.cuts(source, data)]
    if len(data) < 4000:
        ways.append([data[at : at + 1] for at in range(len(data))])
    for pieces in ways:
        again, told = await outcome_of(pieces, api, kind)
        assert comparable(again) == comparable(outcome)
        assert told == facts
    _check_bounds(data, facts)
    if isinstance(outcome, ModelCallError):
        assert outcome.message.isprintable()
        assert len(outcome.message) <= 500
    else:
        _check_blocks(outcome)
        check_facts(outcome, facts)
        _check_next_request(outcome, api)
    _check_usage(outcome)


def _check_bounds(data: bytes, facts: list[ModelFact]) -> None:
    """What is told is no more than twice what came: text may be told again once, as reasoning."""
    told = sum(len(getattr(fact, "text", "")) + len(getattr(fact, "arguments", "")) for fact in facts)
    assert told <= 2 * len(data) + 100
    assert len(facts) <= len(data) + 100


def _check_blocks(answer: Answer) -> None:
    assert len(answer.content) <= MAX_BLOCKS
    assert answer.finish_reason in get_args(FinishReason)
    calls = [block for block in answer.content if isinstance(block, ToolCallBlock)]
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        assert isinstance(call.arguments, dict)
        assert "\0" not in call.name
    for block in answer.content:
        msgspec.json.encode(block)  # valid UTF-8 all through
        if isinstance(block, TextBlock | ThinkingBlock):
            assert "\0" not in block.text


def _check_usage(outcome: Outcome) -> None:
    usage = outcome.usage if isinstance(outcome, Answer) else outcome.details.get("usage")
    if usage is None:
        return
    for count in msgspec.structs.asdict(usage).values():
        assert count is None or (type(count) is int and count >= 0)


def _check_next_request(answer: Answer, api: str) -> None:
    """Whatever was taken for an answer can be sent back, and is JSON."""
    calls = [block for block in answer.content if isinstance(block, ToolCallBlock)]
    results = tuple(ToolResultBlock(call_id=call.id, name=call.name, content="ok") for call in calls)
    said = (Message(role="assistant", content=answer.content), Message(role="tool", content=results))
    messages = REQUEST.messages + (said if calls else said[:1])
    endpoint = Endpoint(provider_id="acme", api=api, base_url="http://localhost/v1", api_key=None)  # type: ignore[arg-type]
    request = wire_module(api).encode(msgspec.structs.replace(REQUEST, messages=messages), endpoint)  # type: ignore[arg-type]
    sent: Any = msgspec.json.decode(request.body)
    assert isinstance(sent, dict)


TARGETS: dict[str, Callable[[bytes], None]] = {"sse": check_sse, **{api: check_answer(api) for api in APIS}}
