"""Whatever the records hold, what is sent is valid for the strictest reading of each wire format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcode_exec.providers.sending import wire_module
from mcode_exec.providers.wire import Endpoint
from mcode_exec.records.history import (
    INTERRUPTED,
    NOT_STARTED,
    FileBlock,
    HistoryRecord,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mcode_exec.records.model import ModelInfo, ModelRef, ModelRequest, ToolSchema
from mcode_exec.sessions.transcript import missing_results, transcript
from tests.support import strict
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES
from tests.unit.sessions.history_records import answer, record, result, user

TOOL = ToolSchema(name="bash", description="run", parameters={"type": "object", "properties": {}})
MODEL = ModelInfo(
    ref=ModelRef(provider_id="p", model_id="m"),
    context_tokens=1000,
    output_tokens=100,
    price=None,
    source="default",
)

texts = st.text(max_size=8)
ids = st.sampled_from(["call_a", "call_b", "call_c"])
blocks = st.one_of(
    st.builds(TextBlock, text=texts),
    st.builds(
        ThinkingBlock,
        text=texts,
        signature=st.none() | texts,
        encrypted=st.none() | texts,
        form=st.sampled_from([None, "think-tag", "reasoning_content", "thinking", "responses"]),
        provider_id=st.sampled_from([None, "anthropic", "q"]),
    ),
    st.builds(
        ToolCallBlock,
        id=ids,
        name=st.sampled_from(["bash", "tööl", ""]),
        arguments=st.dictionaries(texts, texts | st.integers() | st.none(), max_size=2),
        broken_arguments=st.none() | texts,
    ),
    st.builds(ToolResultBlock, call_id=ids, name=st.just("bash"), content=texts, is_error=st.booleans()),
    st.builds(ImageBlock, digest=st.just("d" * 64), mime=st.just("image/png"), data=st.just("AAAA")),
)
records = st.lists(
    st.builds(
        HistoryRecord,
        id=st.sampled_from([f"msg-{number}" for number in range(12)]),
        turn_id=st.just("t"),
        at_ms=st.just(1),
        message=st.builds(
            Message,
            role=st.sampled_from(["user", "assistant", "tool", "summary"]),
            content=st.lists(blocks, max_size=4).map(tuple),
        ),
    ),
    max_size=10,
)


def violations(api: str, messages: tuple[Message, ...]) -> list[str]:
    # the validators stand for the providers themselves: unsigned thinking goes back only to others, who made it
    endpoint = Endpoint(provider_id="anthropic", api=api, base_url="http://127.0.0.1:1/v1", api_key=None)  # type: ignore[arg-type]
    asked = (*messages, Message(role="user", content=(TextBlock(text="go on"),)))
    request = ModelRequest(model=MODEL, system="be brief", tools=(TOOL,), messages=asked)
    encoded = wire_module(api).encode(request, endpoint)  # type: ignore[arg-type]
    body, found = strict.parse(encoded.body)
    return found or strict.violations(api, body)


@pytest.mark.parametrize("api", [ANTHROPIC, CHAT, RESPONSES])
@settings(deadline=None, max_examples=60)
@given(records=records)
def test_any_records_make_a_request_that_a_strict_provider_takes(
    api: str, records: list[HistoryRecord]
) -> None:
    assert violations(api, transcript(records)) == []


@settings(deadline=None, max_examples=60)
@given(records=records)
def test_every_call_of_a_transcript_has_exactly_one_result_right_behind_it(
    records: list[HistoryRecord],
) -> None:
    messages = transcript(records)
    seen: list[str] = []
    for number, message in enumerate(messages):
        calls = [block.id for block in message.content if isinstance(block, ToolCallBlock)]
        results = [block.call_id for block in message.content if isinstance(block, ToolResultBlock)]
        if calls:
            behind = messages[number + 1]
            assert behind.role == "tool"
            answers = [block for block in behind.content if isinstance(block, ToolResultBlock)]
            assert [block.call_id for block in answers] == calls
            assert isinstance(behind.content[0], ToolResultBlock)
            # what a tool read stands behind its result, and nothing else does
            rest = [block for block in behind.content if not isinstance(block, ToolResultBlock)]
            assert all(isinstance(block, ImageBlock | FileBlock) for block in rest)
        if message.role == "tool":
            assert len(set(results)) == len(results)
            seen += results
    assert len(set(seen)) == len(seen)


@settings(deadline=None, max_examples=40)
@given(records=records)
def test_repair_leaves_nothing_to_repair(records: list[HistoryRecord]) -> None:
    mended = [*records, *missing_results(records, 5)]
    assert missing_results(mended, 6) == []


def test_what_was_cut_short_is_said_and_the_rest_is_kept() -> None:
    cut = [user(1), answer(2, "two", "call_a", "call_b"), result(3, "call_b", "done")]
    (missing,) = missing_results(cut, 9)
    (block,) = missing.message.content
    assert isinstance(block, ToolResultBlock)
    assert (block.call_id, block.content, block.status) == ("call_a", INTERRUPTED, "interrupted")
    messages = transcript([*cut, missing])
    assert [one.call_id for one in messages[-1].content] == ["call_a", "call_b"]  # type: ignore[union-attr]


def test_calls_behind_the_one_that_was_cut_short_changed_nothing_and_are_told_so() -> None:
    cut = [user(1), answer(2, "two", "call_a", "call_b", "call_c"), result(3, "call_a", "done")]
    blocks = [record.message.content[0] for record in missing_results(cut, 9)]
    assert [(one.call_id, one.content) for one in blocks if isinstance(one, ToolResultBlock)] == [
        ("call_b", INTERRUPTED),
        ("call_c", NOT_STARTED),
    ]


def test_a_history_that_ended_well_needs_no_repair() -> None:
    assert missing_results([user(1), answer(2, "x", "c"), result(3, "c"), answer(4, "y")], 9) == []
    assert missing_results([], 9) == []
    assert missing_results([user(1)], 9) == []


def test_a_record_that_was_appended_twice_counts_once() -> None:
    doubled = [user(1), answer(2, "x", "c"), answer(2, "x", "c"), result(3, "c"), result(3, "c")]
    assert len(transcript(doubled)) == 3


def test_reasoning_alone_and_blank_text_are_not_sent() -> None:
    blank = [
        user(1),
        record(2, "assistant", ThinkingBlock(text="hm")),
        record(3, "assistant", TextBlock(text=" \n")),
    ]
    assert [message.role for message in transcript(blank)] == ["user"]


def test_a_call_of_a_user_message_is_no_call() -> None:
    strange: list[Any] = [
        record(1, "user", TextBlock(text="x"), ToolCallBlock(id="c", name="bash", arguments={}))
    ]
    messages = transcript(strange)
    assert [message.role for message in messages] == ["user"]
    assert "tool_call" not in json.dumps([len(message.content) for message in messages])
