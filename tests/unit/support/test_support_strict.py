"""The validators refuse what real providers refuse, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import strict
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES

USER = {"role": "user", "content": "hi"}


def anthropic(*messages: Any, **fields: Any) -> list[str]:
    tools = [{"name": "bash", "input_schema": {"type": "object"}}]
    body = {"model": "m", "max_tokens": 9, "tools": tools, "messages": list(messages), **fields}
    return strict.violations(ANTHROPIC, body)


def chat(*messages: Any, **fields: Any) -> list[str]:
    return strict.violations(CHAT, {"model": "m", "messages": list(messages), **fields})


def responses(*items: Any, **fields: Any) -> list[str]:
    return strict.violations(RESPONSES, {"model": "m", "input": list(items), **fields})


def tool_use(one: str = "t1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": one, "name": "bash", "input": {}, **fields}


def tool_result(one: str = "t1", content: Any = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": one, "content": content}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(what: str) -> dict[str, Any]:
    return {"type": "text", "text": what}


def test_a_valid_anthropic_history_passes() -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": "s"}
    assert not anthropic(
        USER,
        assistant(thinking, text("two"), tool_use("t1"), tool_use("t2")),
        user(tool_result("t2"), tool_result("t1", [text("ok")]), text("and now")),
        assistant(text("done")),
        USER,
        system=[{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        something_new=1,
    )


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ((), "at least one message"),
        ((assistant(text("a")), USER), 'first message must use the "user" role'),
        ((USER, assistant(text("a"))), "must end with a user message"),
        ((USER, USER), 'multiple "user" roles'),
        ((USER, assistant(text("a")), assistant(text("b")), USER), 'multiple "assistant" roles'),
        (({"role": "system", "content": "x"}, USER), "Input should be 'user' or 'assistant'"),
        ((USER, assistant(tool_use()), USER), "without `tool_result` blocks immediately after: t1"),
        ((USER, assistant(tool_use("t1"), tool_use("t2")), user(tool_result("t1"))), "after: t2"),
        ((user(tool_result()),), "unexpected `tool_use_id`"),
        (
            (USER, assistant(tool_use()), user(tool_result()), assistant(text("a")), user(tool_result())),
            "unexpected `tool_use_id`",
        ),
        ((USER, assistant(tool_use()), user(tool_result(), tool_result())), "must have a single result"),
        (
            (
                USER,
                assistant(tool_use()),
                user(tool_result()),
                assistant(tool_use()),
                user(tool_result()),
            ),
            "ids must be unique",
        ),
        ((USER, assistant(tool_use()), user(text("a"), tool_result())), "must come first"),
        ((user(text("")),), "must be non-empty"),
        ((user(text(" \n")),), "non-whitespace"),
        (({"role": "user", "content": ""},), "non-empty content"),
        (({"role": "user", "content": []},), "non-empty content"),
        (({"role": "user", "content": None},), "valid string or list"),
        (({"role": "user", "content": 3},), "valid string or list"),
        ((USER, assistant(tool_use(input="{}")), user(tool_result())), "valid dictionary"),
        ((USER, assistant(tool_use("a b")), user(tool_result("a b"))), "should match pattern"),
        ((USER, assistant(tool_use()), user(tool_result(content=[text("")]))), "must be non-empty"),
        ((USER, assistant({"type": "thinking", "thinking": "x"}, text("a")), USER), "thinking.signature"),
        ((user({"type": "reasoning"}),), "Input tag 'reasoning'"),
        ((user(tool_use()),), "can only be in `assistant`"),
    ],
)
def test_anthropic_refuses(messages: Any, words: str) -> None:
    assert any(words in one for one in anthropic(*messages)), anthropic(*messages)


def test_anthropic_wants_max_tokens_and_tools_for_tool_blocks_and_few_cache_marks() -> None:
    assert anthropic(USER, max_tokens=None) == ["max_tokens: Field required"]
    assert anthropic(USER, max_tokens=0)
    assert "must define `tools`" in anthropic(USER, assistant(tool_use()), user(tool_result()), tools=[])[0]
    marked = [{**text("x"), "cache_control": {"type": "ephemeral"}} for _ in range(5)]
    assert "maximum of 4 blocks" in anthropic(user(*marked))[0]
    assert anthropic(USER, system="") == []
    assert anthropic(USER, system=[text("")]) == ["system: text content blocks must be non-empty"]
    twice = [{"name": "a", "input_schema": {"type": "object"}}] * 2
    assert anthropic(USER, tools=twice) == ["tools: Tool names must be unique."]


def tool_call(one: str = "c1", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": one, "type": "function", "function": {"name": "bash", "arguments": arguments}}


def calls(*made: Any, content: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(made)}


def result(one: str = "c1", content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": one, "content": content}


SAID = {"role": "assistant", "content": "done"}


def test_a_valid_chat_history_passes() -> None:
    assert not chat(
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url"}]},
        calls(tool_call("c1"), tool_call("c2"), content="two"),
        result("c2"),
        result("c1", ""),
        SAID,
        USER,
        stream=True,
        stream_options={"include_usage": True},
        something_new=1,
    )


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ((), "minimum length 1"),
        ((SAID, USER), "first message"),
        ((USER, SAID), "last message"),
        ((USER, USER), "must alternate"),
        ((USER, SAID, SAID, USER), "must alternate"),
        ((USER, SAID, {"role": "system", "content": "x"}, USER), "at the beginning"),
        (({"role": "model", "content": "x"},), "Invalid value: 'model'"),
        ((USER, calls(tool_call()), USER), "did not have response messages: c1"),
        ((USER, calls(tool_call("c1"), tool_call("c2")), result("c1")), "did not have response messages: c2"),
        ((USER, result()), "must be a response to a preceeding"),
        ((USER, calls(tool_call()), result(), result()), "Duplicate value for 'tool_call_id'"),
        ((USER, calls(tool_call()), result(), calls(tool_call()), result()), "Duplicate tool call id"),
        ((USER, calls(tool_call("c1"), tool_call("c1")), result(), result()), "Duplicate tool call id"),
        ((USER, calls(tool_call(arguments="{")), result()), "text of a JSON object"),
        ((USER, calls(tool_call(arguments={})), result()), "text of a JSON object"),
        ((USER, calls(tool_call("c" * 41)), result("c" * 41)), "length 1 to 40"),
        ((USER, calls(), USER), "empty array"),
        ((USER, calls(tool_call()), result(content=None)), "expected a string or list"),
        (({"role": "user", "content": ""},), "chat content is empty"),
        (({"role": "user", "content": " \n"},), "chat content is empty"),
        (({"role": "user", "content": []},), "empty array"),
        (({"role": "user", "content": [{"type": "text", "text": ""}]},), "must be non-empty"),
        ((USER, {"role": "assistant", "content": None}, USER), "expected a string or list"),
        (({"role": "user", "content": {"text": "x"}},), "expected a string or list"),
    ],
)
def test_chat_refuses(messages: Any, words: str) -> None:
    assert any(words in one for one in chat(*messages)), chat(*messages)


def test_chat_refuses_empty_tools_and_stream_options_without_a_stream() -> None:
    assert chat(USER, tools=[]) == ["[] is too short - 'tools'"]
    assert "only allowed when 'stream'" in chat(USER, stream_options={})[0]


ASKED = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
ANSWERED = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}


def function_call(one: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": one, "name": "bash", "arguments": "{}", **fields}


def output(one: str = "c1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": one, "output": "ok"}


def test_a_valid_responses_input_passes() -> None:
    assert not responses(
        ASKED,
        THOUGHT,
        ANSWERED,
        function_call("c1", id="fc_1"),
        function_call("c2"),
        output("c2"),
        output("c1"),
        ANSWERED,
        {"role": "user", "content": "and now"},
        something_new=1,
    )
    assert not strict.violations(RESPONSES, {"model": "m", "input": "hi"})


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ((), "non-empty array"),
        ((ANSWERED, ASKED), "first input item"),
        ((ASKED, ANSWERED), "last input item"),
        ((ASKED, ASKED), "must alternate"),
        ((ASKED, function_call(), ASKED), "No tool output found for function call c1"),
        ((ASKED, output()), "No tool call found"),
        ((ASKED, function_call(), output(), output()), "Duplicate function call output"),
        ((ASKED, function_call(), output(), function_call(), output()), "Duplicate function call with"),
        ((ASKED, function_call(arguments="["), output()), "text of a JSON object"),
        ((ASKED, function_call(id="call_1"), output()), "begins with 'fc'"),
        ((ASKED, function_call("c" * 65), output("c" * 65)), "length 1 to 64"),
        ((ASKED, THOUGHT, ASKED), "without its required following item"),
        ((ASKED, THOUGHT, ANSWERED, ASKED, THOUGHT, ANSWERED, ASKED), "Duplicate item found"),
        (({"role": "user", "content": ""},), "non-empty string or array"),
        (({"role": "user", "content": [{"type": "input_text", "text": ""}]},), "empty string"),
        (({"role": "user", "content": [{"type": "output_text", "text": "x"}]},), "Supported values are"),
        (
            (ASKED, {"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}, ASKED),
            "Supported",
        ),
        ((ASKED, {"type": "tool"}), "Invalid value: 'tool'"),
    ],
)
def test_responses_refuses(items: Any, words: str) -> None:
    assert any(words in one for one in responses(*items)), responses(*items)


def test_bytes_that_reach_no_provider_are_refused() -> None:
    assert "not valid UTF-8" in strict.parse(b'{"a": "\xff"}')[1][0]
    assert "not valid JSON" in strict.parse(b"{")[1][0]
    assert "surrogate" in strict.parse(b'{"a": "\\ud83d"}')[1][0]
    assert "surrogate" in strict.parse(b'{"a\\udc00": 1}')[1][0]
    assert strict.parse('{"a": "\\ud83d\\ude00 漢"}'.encode()) == ({"a": "😀 漢"}, [])


def test_a_request_without_a_model_or_that_is_no_object_is_refused() -> None:
    assert strict.violations(CHAT, {"messages": [USER]}) == ["model: Field required"]
    assert strict.violations(CHAT, [USER])
