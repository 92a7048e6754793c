"""Whatever a stream says, reading it ends in an answer or in a failure of a known class."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.payload import TextJoiner, clean, parse_arguments
from mcode_exec.providers.reading import assembled, judged, read_answer
from mcode_exec.providers.sending import wire_module
from mcode_exec.providers.sse import SseEvent
from mcode_exec.providers.think_tags import ThinkSplitter
from mcode_exec.records.history import Message
from mcode_exec.records.model import ModelFact
from tests.unit.providers.byte_peer import request

KEYS = {
    "openai-completions": [
        "choices",
        "delta",
        "message",
        "index",
        "finish_reason",
        "content",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "reasoning_details",
        "reasoning_content",
        "text",
        "type",
        "error",
        "base_resp",
        "status_code",
        "refusal",
        "function_call",
        "extra_content",
        "prompt_tokens_details",
    ],
    "anthropic-messages": [
        "type",
        "index",
        "content_block",
        "delta",
        "message",
        "usage",
        "input_tokens",
        "output_tokens",
        "stop_reason",
        "text",
        "thinking",
        "signature",
        "partial_json",
        "data",
        "input",
        "name",
        "id",
        "error",
    ],
    "openai-responses": [
        "type",
        "output_index",
        "item_id",
        "item",
        "delta",
        "response",
        "output",
        "status",
        "usage",
        "incomplete_details",
        "reason",
        "error",
        "name",
        "arguments",
        "call_id",
        "content",
        "summary",
        "text",
        "encrypted_content",
        "id",
        "summary_index",
    ],
}
WORDS = {
    "openai-completions": ["stop", "length", "read", "{}", "", "a", "content_filter", "\ud800", "\0"],
    "anthropic-messages": [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "text_delta",
        "thinking_delta",
        "input_json_delta",
        "signature_delta",
        "end_turn",
        "max_tokens",
        "{}",
        "a",
    ],
    "openai-responses": [
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.function_call_arguments.delta",
        "response.reasoning_summary_text.delta",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.refusal.delta",
        "message",
        "function_call",
        "reasoning",
        "output_text",
        "summary_text",
        "completed",
        "{}",
        "a",
    ],
}


def events(api: str) -> st.SearchStrategy[list[object]]:
    leaves = st.none() | st.booleans() | st.integers(-1, 3) | st.floats() | st.sampled_from(WORDS[api])
    values = st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS[api]), inner, max_size=5)
        ),
        max_leaves=15,
    )
    return st.lists(st.dictionaries(st.sampled_from(KEYS[api]), values, max_size=5), max_size=6)


@pytest.mark.parametrize("api", sorted(KEYS))
def test_no_stream_breaks_its_reader(api: str) -> None:
    @settings(max_examples=100, deadline=None)
    @given(events(api), st.booleans())
    def check(stream: list[object], is_body: bool) -> None:
        facts: list[ModelFact] = []
        reader = wire_module(api).Reader(facts.append, "acme", [], 0)  # type: ignore[arg-type]
        try:
            for value in stream:
                if is_body:
                    reader.feed_body(msgspec.json.decode(json.dumps(clean_of(value), allow_nan=False)))
                else:
                    reader.feed(SseEvent("", json.dumps(value).encode()))
            answer = judged(assembled(reader, []), request(), may_be_empty=True)
        except ModelCallError as failure:
            assert failure.message.isprintable()  # noqa: PT017
            return
        # it can be kept and sent
        kept = msgspec.json.decode(
            msgspec.json.encode(Message(role="assistant", content=answer.content)), type=Message
        )
        assert kept.content == answer.content
        wire_module(api).encode(request(kept), endpoint_of(api))  # type: ignore[arg-type]

    check()


STREAMS = Path(__file__).parents[3] / "fixtures" / "streams"


def good_events(api: str) -> list[object]:
    prefix = {"openai-completions": "oa-", "anthropic-messages": "an-", "openai-responses": "re-"}[api]
    found: list[object] = []
    for path in sorted(STREAMS.glob(f"{prefix}*.sse")):
        for line in path.read_bytes().replace(b"\r", b"\n").split(b"\n"):
            if line.startswith(b"data: {") and line.endswith(b"}"):
                try:
                    found.append(json.loads(line[6:]))
                except ValueError:
                    continue
    return found


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def replaced(value: object, path: tuple[object, ...], new: object) -> object:
    if not path:
        return new
    if isinstance(value, dict):
        return {key: replaced(item, path[1:], new) if key == path[0] else item for key, item in value.items()}
    assert isinstance(value, list)
    return [replaced(item, path[1:], new) if at == path[0] else item for at, item in enumerate(value)]


ODD = [None, True, -1, 10**30, 1.5, "", "x", "\ud800", [], [None], [[]], {}, {"x": 1}, [{}], {"type": []}]


@pytest.mark.parametrize("api", sorted(KEYS))
def test_no_wrong_value_anywhere_breaks_a_reader(api: str) -> None:
    for event in good_events(api):
        for place in places(event):
            for odd in ODD:
                reader = wire_module(api).Reader(lambda _fact: None, "acme", [], 0)  # type: ignore[arg-type]
                wrong = replaced(event, place, odd)
                try:
                    reader.feed(SseEvent("", json.dumps(wrong).encode()))
                    reader.feed(SseEvent("", json.dumps(event).encode()))
                    answer = assembled(reader, [])
                except ModelCallError as failure:
                    assert failure.message.isprintable()  # noqa: PT017
                    continue
                msgspec.json.encode(answer)


def endpoint_of(api: str) -> object:
    from tests.unit.providers.byte_peer import endpoint

    return endpoint("http://h/v1", api)


def clean_of(value: object) -> object:
    if isinstance(value, float):
        return None
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean_of(item) for item in value]
    if isinstance(value, dict):
        return {key: clean_of(item) for key, item in value.items()}
    return value


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=6))
def test_no_bytes_break_the_reading(pieces: list[bytes]) -> None:
    class Body:
        headers: list[tuple[bytes, bytes]] = [(b"content-type", b"text/event-stream")]  # noqa: RUF012

        async def read(self) -> bytes:
            while pieces:
                if data := pieces.pop(0):
                    return data
            return b""

    async def main() -> None:
        reader = wire_module("openai-completions").Reader(lambda _fact: None, "acme", [], 0)
        async with asyncio.timeout(None) as timer:
            await read_answer(Body(), reader, timer, idle_s=5.0)

    with pytest.raises(ModelCallError):
        asyncio.run(main())


tagged = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "think>", "a", " ", "\n", "`", "```\n", "漢", "</", ">"]),
    max_size=14,
).map("".join)


@given(tagged, st.lists(st.integers(0, 60), max_size=8))
def test_think_spans_are_the_same_wherever_they_are_cut(text: str, cuts: list[int]) -> None:
    def split(pieces: list[str]) -> list[tuple[str, str]]:
        splitter = ThinkSplitter()
        out: list[tuple[str, str]] = []
        for found in [*(one for piece in pieces for one in splitter.feed(piece)), *splitter.finish()]:
            if out and out[-1][0] == found[0] and found[0] in ("text", "thinking"):
                out[-1] = (found[0], out[-1][1] + found[1])
            else:
                out.append(found)
        return out

    places = sorted({cut for cut in cuts if cut < len(text)} | {0, len(text)})
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert split(pieces) == split([text]) == split(list(text))
    shown = "".join(part for _, part in split([text]))
    # nothing is lost but the opening tags, which are written anew
    assert shown.replace("<think>", "") == text.replace("<think>", "")


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "text",
    [
        "<",
        "<think>",
        "<think></think>",
        "`<think>`",
        "</think>",
        "a </think> b ",
        '"a</think> ""',
        "</think>  ",
        "a<b ",
        "< think>",
    ],
)
def test_a_large_answer_full_of_tags_is_read_in_linear_time(text: str) -> None:
    splitter = ThinkSplitter()
    pieces = splitter.feed(text * 20_000) + splitter.finish()
    assert pieces


@given(st.text(), st.integers(0, 20))
def test_text_in_pieces_is_cleaned_as_a_whole(text: str, at: int) -> None:
    joiner = TextJoiner()
    joined = joiner.feed(text[:at]) + joiner.feed(text[at:]) + joiner.finish()
    assert joined == clean(text)
    joined.encode()
    assert "\0" not in joined


@given(st.text())
def test_arguments_are_an_object_or_nothing(text: str) -> None:
    value, is_exact = parse_arguments(text)
    assert isinstance(value, dict) if is_exact else value is None or "\ufffd" in str(value)


def test_hostile_arguments_are_taken_for_what_they_are() -> None:
    assert parse_arguments('{"a":"\\ud83d\\ude42"}') == ({"a": "🙂"}, True)
    assert parse_arguments('{"a":"x\ny\ufffd"}') == ({"a": "x\ny\ufffd"}, True)
    assert parse_arguments('{"a":"x\\u0000y"}') == ({"a": "x\ufffdy"}, False)
    assert parse_arguments('{"a":"\\ud83d"}') == ({"a": "\ufffd"}, False)
    assert parse_arguments('{"a":' * 100_000) == (None, False)
    assert parse_arguments('{"a":' * 900 + "1" + "}" * 900) == (None, False)
    assert parse_arguments('{"n":123456789012345678901234567890}') == (
        {"n": 123456789012345678901234567890},
        True,
    )
    assert parse_arguments('{"a":Infinity}') == (None, False)
