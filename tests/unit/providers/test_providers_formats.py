"""The same conversation through the three wire formats: same blocks, same facts, valid requests."""

from __future__ import annotations

from typing import Any

import pytest

from mcode_exec.records.history import Message, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock
from mcode_exec.records.model import TextDelta, ThinkingDelta, ToolCallDelta
from mcode_exec.records.usage import Usage
from tests.unit.providers.byte_peer import http, info, request, run, sse

APIS = ("anthropic-messages", "openai-completions", "openai-responses")


def completions() -> bytes:
    def delta(**fields: Any) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}

    return sse(
        delta(role="assistant", content=None),
        delta(reasoning_content="Let me "),
        delta(reasoning_content="look."),
        delta(content="I look "),
        delta(content="around."),
        delta(tool_calls=[{"index": 0, "id": "call_0", "function": {"name": "bash", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"comm'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": 'and":"ls"}'}}]),
        delta(
            tool_calls=[
                {"index": 1, "id": "call_0", "function": {"name": "bash", "arguments": '{"command":"pwd"}'}}
            ]
        ),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 150,
                "completion_tokens": 30,
                "prompt_tokens_details": {"cached_tokens": 50},
            },
        },
        "[DONE]",
    )


def messages() -> bytes:
    def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"type": "content_block_start", "index": index, "content_block": start},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]

    return sse(
        {
            "type": "message_start",
            "message": {
                "usage": {"input_tokens": 100, "cache_read_input_tokens": 50, "output_tokens": 1},
            },
        },
        {"type": "ping"},
        *block(
            0,
            {"type": "thinking", "thinking": ""},
            {"type": "thinking_delta", "thinking": "Let me "},
            {"type": "thinking_delta", "thinking": "look."},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        *block(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "I look "},
            {"type": "text_delta", "text": "around."},
        ),
        *block(
            2,
            {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"comm'},
            {"type": "input_json_delta", "partial_json": 'and":"ls"}'},
        ),
        *block(
            3,
            {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"command":"pwd"}'},
        ),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 30}},
        {"type": "message_stop"},
        name=True,
    )


def responses() -> bytes:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_0", "name": "bash", "arguments": ""}
    return sse(
        {"type": "response.created", "response": {}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "reasoning", "id": "rs_1"},
        },
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Let me "},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "look."},
        {"type": "response.output_item.done", "output_index": 0, "item": reasoning},
        {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message"}},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "I look "},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "around."},
        {"type": "response.output_item.added", "output_index": 2, "item": call},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"comm'},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": 'and":"ls"}'},
        {
            "type": "response.output_item.done",
            "output_index": 2,
            "item": {**call, "arguments": '{"command":"ls"}'},
        },
        {"type": "response.output_item.added", "output_index": 3, "item": call},
        {
            "type": "response.output_item.done",
            "output_index": 3,
            "item": {**call, "arguments": '{"command":"pwd"}'},
        },
        {
            "type": "response.completed",
            "response": {
                "status": "completed",
                "usage": {
                    "input_tokens": 150,
                    "output_tokens": 30,
                    "input_tokens_details": {"cached_tokens": 50},
                },
            },
        },
        name=True,
    )


STREAMS = {
    "anthropic-messages": messages,
    "openai-completions": completions,
    "openai-responses": responses,
}


@pytest.mark.parametrize("api", APIS)
def test_the_same_answer_gives_the_same_blocks_and_facts(api: str) -> None:
    answer, _, call = run([[http(STREAMS[api]())]], api=api)
    thinking, text, first, second = answer.content
    assert isinstance(thinking, ThinkingBlock)
    assert (thinking.text, thinking.provider_id) == ("Let me look.", "acme")
    assert text == TextBlock(text="I look around.")
    assert isinstance(first, ToolCallBlock)
    assert isinstance(second, ToolCallBlock)
    assert (first.name, first.arguments) == ("bash", {"command": "ls"})
    assert second.arguments == {"command": "pwd"}
    assert first.id != second.id
    assert answer.finish_reason == "tool_calls"
    assert answer.usage.input_tokens == 100
    assert answer.usage.cache_read_tokens == 50
    assert answer.usage.output_tokens == 30

    said: dict[tuple[type, int], str] = {}
    for fact in call.facts:
        piece = fact.arguments if isinstance(fact, ToolCallDelta) else fact.text
        said[type(fact), fact.index] = said.get((type(fact), fact.index), "") + piece
    assert said == {
        (ThinkingDelta, 0): "Let me look.",
        (TextDelta, 1): "I look around.",
        (ToolCallDelta, 2): '{"command":"ls"}',
        (ToolCallDelta, 3): '{"command":"pwd"}',
    }


@pytest.mark.parametrize("api", APIS)
def test_the_next_request_begins_with_the_bytes_of_the_last(api: str) -> None:
    user = Message(role="user", content=(TextBlock(text="hi"),))
    outcome, peer, _ = run([[http(STREAMS[api]())]], api=api)
    calls = [block for block in outcome.content if isinstance(block, ToolCallBlock)]
    answered = Message(role="assistant", content=outcome.content)
    results = Message(
        role="tool",
        content=tuple(ToolResultBlock(call_id=call.id, name=call.name, content="") for call in calls),
    )
    _, second, _ = run([[http(STREAMS[api]())]], api=api, what=request(user, answered, results))
    before, after = peer.requests[0].body, second.requests[0].body
    # what stands behind the messages may change
    key = b'"input":[' if api == "openai-responses" else b'"messages":['
    end = before.index(b"]", before.index(b"hi", before.index(key)))
    assert after.startswith(before[:end])
    text = after.decode()
    assert text.count("(no output)") == 2
    assert "Let me look." in text
    for call in calls:
        assert text.count(call.id) == 2


def test_anthropic_alternates_and_puts_results_first() -> None:
    call = ToolCallBlock(id="call_1", name="bash", arguments={})
    conversation = (
        Message(role="summary", content=(TextBlock(text="Earlier: nothing."),)),
        Message(role="user", content=(TextBlock(text="one"),)),
        Message(role="user", content=(TextBlock(text="two"),)),
        Message(role="assistant", content=(TextBlock(text="  \n"), call)),
        Message(role="tool", content=(ToolResultBlock(call_id="call_1", name="bash", content=" \n"),)),
        Message(role="user", content=(TextBlock(text="three"),)),
        Message(role="assistant", content=(TextBlock(text=" "),)),
        Message(role="user", content=(TextBlock(text="four"),)),
    )
    _, peer, _ = run([[http(messages())]], api="anthropic-messages", what=request(*conversation))
    sent = peer.requests[0].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert "Notes made by a machine" in sent[0]["content"][0]["text"]
    assert [block["type"] for block in sent[1]["content"]] == ["tool_use"]
    assert [block["type"] for block in sent[2]["content"]] == ["tool_result", "text", "text"]
    assert sent[2]["content"][0]["content"] == "(no output)"


def test_signed_thinking_goes_back_to_its_provider_and_to_no_other() -> None:
    thought = ThinkingBlock(text="hm", signature="c2ln", form="thinking", provider_id="acme")
    conversation = (
        Message(role="user", content=(TextBlock(text="one"),)),
        Message(role="assistant", content=(thought, TextBlock(text="said"))),
        Message(role="user", content=(TextBlock(text="two"),)),
    )
    what = request(*conversation)
    _, peer, _ = run([[http(messages())]], api="anthropic-messages", what=what)
    assert peer.requests[0].json["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "hm",
        "signature": "c2ln",
    }
    _, peer, _ = run([[http(messages())]], api="anthropic-messages", what=what, provider_id="other")
    assert peer.requests[0].json["messages"][1]["content"] == [{"type": "text", "text": "said"}]


def test_encrypted_reasoning_of_responses_is_asked_for_and_sent_back() -> None:
    outcome, _, _ = run([[http(responses())]], api="openai-responses")
    conversation = (
        Message(role="user", content=(TextBlock(text="one"),)),
        Message(role="assistant", content=outcome.content[:2]),
        Message(role="user", content=(TextBlock(text="two"),)),
    )
    what = request(*conversation, model=info(reasons=True), effort="low")
    _, peer, _ = run([[http(responses())]], api="openai-responses", what=what)
    sent = peer.requests[0].json
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert sent["reasoning"]["effort"] == "low"
    assert sent["input"][1] == {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Let me look."}],
        "encrypted_content": "ZW5j",
        "id": "rs_1",
    }


def test_a_thinking_budget_is_left_out_where_results_of_unthought_calls_come_back() -> None:
    calls = (TextBlock(text="I look."), ToolCallBlock(id="call_1", name="list", arguments={}))
    thought = ThinkingBlock(text="hm", signature="c2ln", form="thinking", provider_id="acme")
    result = ToolResultBlock(call_id="call_1", name="list", content="a.txt")
    for content, has_budget in ((calls, False), ((thought, *calls), True)):
        what = request(
            Message(role="user", content=(TextBlock(text="go"),)),
            Message(role="assistant", content=content),
            Message(role="tool", content=(result,)),
            effort="low",
        )
        _, peer, _ = run([[http(messages())]], api="anthropic-messages", what=what)
        assert ("thinking" in peer.requests[0].json) is has_budget


def test_reasoning_is_asked_for_whole_where_only_the_effort_says_that_the_model_thinks() -> None:
    for effort, wanted in (("low", ["reasoning.encrypted_content"]), ("none", None), (None, None)):
        what = request(Message(role="user", content=(TextBlock(text="one"),)), effort=effort)
        _, peer, _ = run([[http(responses())]], api="openai-responses", what=what)
        assert peer.requests[0].json.get("include") == wanted


def test_usage_of_responses_and_anthropic_is_in_disjoint_classes() -> None:
    answer, _, _ = run([[http(messages())]], api="anthropic-messages")
    assert answer.usage == Usage(input_tokens=100, output_tokens=30, cache_read_tokens=50)
