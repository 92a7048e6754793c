"""What a complete answer survives, and what says of itself that it is not complete; calls in odd pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.sse import MAX_EVENT_BYTES
from mcode_exec.records.history import TextBlock, ToolCallBlock
from mcode_exec.records.model import TextDelta
from mcode_exec.records.usage import Usage
from tests.unit.providers.byte_peer import chat, http, run, sse

FINISHED = sse(chat({"content": "hey"}), chat({}, "stop"))
USAGE = sse({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}, "[DONE]")
BROKEN = {
    "no JSON": "{bad",
    "a comma too many": '{"choices":[],"usage":{"prompt_tokens":1,}}',
    "too deep": "[" * 1000 + "]" * 1000,
    "too many values": "[" + "1," * 1_000_001 + "1]",
    "a number without end": '{"choices":[],"usage":{"prompt_tokens":' + "9" * 10_000 + "}}",
    "an event above the limit": "x" * (MAX_EVENT_BYTES + 1),
    "another API": '{"choices":[{"index":0,"text":"hey"}]}',
    "words beside a code": '{"code":500,"message":"x"}',
}


@pytest.mark.parametrize("what", BROKEN)
def test_an_answer_with_its_finish_reason_stands_whatever_follows_and_usage_that_is_broken_is_null(
    what: str,
) -> None:
    answer, peer, _ = run([[http(FINISHED + sse(BROKEN[what]))]])
    assert not isinstance(answer, Exception), answer
    assert (answer.content, answer.finish_reason) == ((TextBlock(text="hey"),), "stop")
    assert answer.usage == Usage()
    assert len(peer.requests) == 1


@pytest.mark.parametrize("what", ["no JSON", "too deep", "too many values"])
def test_usage_behind_a_broken_event_counts(what: str) -> None:
    answer, _, _ = run([[http(FINISHED + sse(BROKEN[what]) + USAGE)]])
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (9, 2)


@pytest.mark.parametrize("what", BROKEN)
def test_the_same_before_the_finish_reason_is_a_failure(what: str) -> None:
    if what == "a number without end":  # it is JSON, and only the number is none
        return
    failure, _, _ = run([[http(sse(chat({"content": "hey"})) + sse(BROKEN[what]) + FINISHED)]])
    assert isinstance(failure, ModelCallError)


def item(kind: str, status: str) -> dict[str, Any]:
    if kind == "function_call":
        return {"type": kind, "id": "i", "call_id": "a", "name": "bash", "arguments": "{}", "status": status}
    content = [{"type": "output_text", "text": "hey"}]
    return {"type": kind, "id": "i", "role": "assistant", "content": content, "status": status}


@pytest.mark.parametrize("kind", ["function_call", "message"])
@pytest.mark.parametrize("said_by", ["item", "response", "body"])
@pytest.mark.parametrize("status", ["incomplete", "INCOMPLETE", "failed", "cancelled", "completed"])
def test_a_call_or_message_that_says_it_is_incomplete_is_cut_off(
    kind: str, said_by: str, status: str
) -> None:
    output = [item(kind, status if said_by != "item" else "completed")]
    whole = {"id": "r", "object": "response", "status": "completed", "output": output}
    done = item(kind, status if said_by == "item" else "completed")
    events = sse(
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": whole},
    )
    reply = http(json.dumps(whole).encode(), kind="application/json") if said_by == "body" else http(events)
    outcome, peer, _ = run([[reply]], api="openai-responses")
    if status == "completed":
        assert not isinstance(outcome, Exception), outcome
        assert len(outcome.content) == 1
    else:
        assert isinstance(outcome, ModelCallError)
        assert (outcome.code, len(peer.requests)) == ("LLM_UPSTREAM_ERROR", 6)
        assert "broke its answer off (incomplete" in outcome.message


def test_a_name_in_endless_pieces_is_cut_and_costs_no_more_than_its_limit() -> None:
    ((name, _),) = named(*((f"{number}{'a' * 5000}", "") for number in range(50)), (None, "{}"))
    assert len(name) == 256


def named(*pieces: tuple[str | None, str], with_id: bool = True, legacy: bool = False) -> tuple[Any, ...]:
    """The calls of a chat answer whose pieces bring these names and arguments."""
    events: list[object] = []
    for name, arguments in pieces:
        function = {"arguments": arguments} | ({} if name is None else {"name": name})
        piece = {"index": 0, "function": function} | ({"id": "a"} if with_id else {})
        events.append(chat({"function_call": function} if legacy else {"tool_calls": [piece]}))
    answer, _, _ = run([[http(sse(*events, chat({}, "tool_calls"), "[DONE]"))]])
    return tuple((call.name, call.arguments) for call in answer.content if isinstance(call, ToolCallBlock))


ARGUMENTS = '{"command":"ls"}'


@pytest.mark.parametrize(
    "pieces",
    [
        (("bash", ARGUMENTS),),
        (("ba", ""), ("sh", ""), (None, ARGUMENTS)),
        (("ba", ""), ("sh", ARGUMENTS)),
        (("b", ""), ("a", ""), ("s", ""), ("h", ""), ("", ARGUMENTS)),
        (("ba", ""), ("bash", ARGUMENTS)),
        ((None, ""), ("bash", ""), (None, ARGUMENTS)),
        ((None, ARGUMENTS[:5]), ("bash", ARGUMENTS[5:])),
        (("bash", ""), ("bash", ARGUMENTS[:5]), ("bash", ARGUMENTS[5:])),
        (("bash", ARGUMENTS[:5]), (None, ARGUMENTS[5:])),
    ],
)
@pytest.mark.parametrize("how", [{}, {"with_id": False}, {"legacy": True}])
def test_the_name_of_a_call_may_come_whole_again_late_grown_or_in_pieces(pieces: Any, how: Any) -> None:
    assert named(*pieces, **how) == (("bash", {"command": "ls"}),)


GIVEN = {"command": "ls"}
WHOLE_CALLS = {
    "anthropic-messages": [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "bash"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": GIVEN}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ],
    "openai-completions": [
        chat({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "bash", "arguments": GIVEN}}]}),
        chat({}, "tool_calls"),
        "[DONE]",
    ],
    "openai-responses": [
        {"type": "response.output_item.added", "output_index": 0,
         "item": {"type": "function_call", "id": "i", "call_id": "a", "name": "bash", "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": GIVEN},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("api", WHOLE_CALLS)
def test_arguments_that_come_as_an_object_where_text_belongs_are_those_of_the_call(api: str) -> None:
    answer, _, _ = run([[http(sse(*WHOLE_CALLS[api]))]], api=api)
    (call,) = answer.content
    assert (call.name, call.arguments, call.broken_arguments) == ("bash", GIVEN, None)


def _event(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": 0, **more}


MESSAGE = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hello world!"}]}
CALL = {"type": "function_call", "id": "f", "call_id": "a", "name": "bash", "arguments": ARGUMENTS}
THOUGHT = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "I think."}]}
DELTAS = {
    "message": (MESSAGE, "output_text", ["Hello", " world!"]),
    "call": (CALL, "function_call_arguments", [ARGUMENTS[:4], ARGUMENTS[4:]]),
    "reasoning": (THOUGHT, "reasoning_summary_text", ["I ", "think."]),
}


@pytest.mark.parametrize("kind", DELTAS)
@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("whole_by", ["done", "item", "response"])
def test_what_deltas_did_not_bring_is_taken_from_what_is_told_whole(
    kind: str, count: int, whole_by: str
) -> None:
    item, name, deltas = DELTAS[kind]
    if whole_by == "done" and kind == "reasoning":
        whole_by = "item"
    opened = {**item, "arguments": ""} if kind == "call" else {"type": item["type"], "id": item["id"]}
    events = [
        _event("output_item.added", item=opened),
        *(_event(f"{name}.delta", item_id=item["id"], delta=delta) for delta in deltas[:count]),
    ]
    if whole_by == "done":
        events.append(_event(f"{name}.done", item_id=item["id"], text="Hello world!", arguments=ARGUMENTS))
    if whole_by == "item":
        events.append(_event("output_item.done", item=item))
    output = [item] if whole_by == "response" else []
    if kind == "reasoning":
        events += [
            {**_event("output_text.delta", delta="so"), "output_index": 1},
            {**_event("output_item.done", item={"type": "message", "id": "m"}), "output_index": 1},
        ]
    events.append(
        {"type": "response.completed", "response": {"id": "x", "status": "completed", "output": output}}
    )
    answer, _, call = run([[http(sse(*events))]], api="openai-responses")
    assert not isinstance(answer, Exception), answer
    block = answer.content[0]
    if kind == "message":
        assert answer.content == (TextBlock(text="Hello world!"),)
        assert "".join(fact.text for fact in call.facts if isinstance(fact, TextDelta)) == "Hello world!"
    elif kind == "call":
        assert (block.name, block.arguments) == ("bash", {"command": "ls"})
    else:
        assert block.text == "I think."
