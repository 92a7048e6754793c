"""What each provider is sent: fields, limits, effort, images, reasoning, names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcode_exec.providers.sending import wire_module
from mcode_exec.records.history import (
    FileBlock,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mcode_exec.tools import registry
from tests.unit.providers.byte_peer import BASH, endpoint, info, request

APIS = ("anthropic-messages", "openai-completions", "openai-responses")


def sent(api: str, *messages: Message, provider_id: str = "acme", **fields: Any) -> dict[str, Any]:
    where = endpoint("http://h/v1", api, provider_id=provider_id)
    body = wire_module(api).encode(request(*messages, **fields), where).body  # type: ignore[arg-type]
    decoded: dict[str, Any] = msgspec.json.decode(body)
    return decoded


def user(*blocks: Any) -> Message:
    return Message(role="user", content=tuple(TextBlock(text=b) if isinstance(b, str) else b for b in blocks))


def answer(*blocks: Any) -> Message:
    return Message(role="assistant", content=blocks)


def results(*blocks: Any) -> Message:
    return Message(role="tool", content=blocks)


@pytest.mark.parametrize(
    ("provider_id", "field"),
    [("openai", "max_completion_tokens"), ("acme", "max_tokens"), ("openrouter", "max_tokens")],
)
def test_the_output_limit_has_the_providers_own_name(provider_id: str, field: str) -> None:
    body = sent("openai-completions", provider_id=provider_id, max_output_tokens=77)
    assert body[field] == 77
    assert not {"max_tokens", "max_completion_tokens"} - {field} & set(body)
    assert field not in sent("openai-completions", provider_id=provider_id)


def test_providers_with_small_defaults_are_told_the_models_limit() -> None:
    assert sent("openai-completions", provider_id="minimax")["max_tokens"] == 8000
    assert "max_tokens" not in sent("openai-completions", provider_id="minimax", model=info(source="default"))
    assert sent("anthropic-messages")["max_tokens"] == 8000
    assert sent("anthropic-messages", max_output_tokens=100)["max_tokens"] == 100
    assert sent("openai-responses", max_output_tokens=100)["max_output_tokens"] == 100


def test_effort_is_asked_for_as_each_format_has_it() -> None:
    assert sent("openai-completions", effort="low")["reasoning_effort"] == "low"
    assert sent("openai-completions", provider_id="openrouter", effort="low")["reasoning"] == {
        "effort": "low"
    }
    assert sent("openai-responses", effort="high")["reasoning"] == {"effort": "high", "summary": "auto"}
    thinking = sent("anthropic-messages", effort="low", temperature=0.5)
    assert thinking["thinking"] == {"type": "enabled", "budget_tokens": 4096}
    assert "temperature" not in thinking
    newer = sent("anthropic-messages", model=info("claude-opus-4-6"), effort="high")
    assert newer["thinking"] == {"type": "adaptive"}
    assert newer["output_config"] == {"effort": "high"}
    for model, level, word in (
        ("claude-opus-4-6", "minimal", "low"),
        ("claude-opus-4-6", "xhigh", "high"),
        ("claude-opus-4-7", "xhigh", "xhigh"),
        ("claude-sonnet-5", "max", "max"),
    ):
        asked = sent("anthropic-messages", model=info(model), effort=level)
        assert asked["output_config"] == {"effort": word}
    assert "thinking" not in sent("anthropic-messages")
    small = sent("anthropic-messages", effort="high", max_output_tokens=1500)
    assert "thinking" not in small


@pytest.mark.parametrize(
    ("provider_id", "level", "field"),
    [
        ("gemini", "xhigh", {"reasoning_effort": "high"}),
        ("gemini", "none", {"reasoning_effort": "none"}),
        ("deepseek", "none", {"thinking": {"type": "disabled"}}),
        ("deepseek", "medium", {"reasoning_effort": "medium"}),
        ("openai", "xhigh", {"reasoning_effort": "xhigh"}),
        ("minimax", "high", {}),
    ],
)
def test_a_level_of_effort_goes_in_the_providers_own_word(
    provider_id: str, level: str, field: dict[str, Any]
) -> None:
    names = {"reasoning_effort", "reasoning", "thinking"}
    body = sent("openai-completions", provider_id=provider_id, effort=level)
    assert {name: body[name] for name in names & set(body)} == field


def encoded(api: str, base_url: str, **fields: Any) -> dict[str, Any]:
    where = endpoint(base_url, api, provider_id="mine")
    body: dict[str, Any] = msgspec.json.decode(wire_module(api).encode(request(**fields), where).body)  # type: ignore[arg-type]
    return body


def test_a_known_provider_is_known_by_its_address_too() -> None:
    cap: dict[str, Any] = {"max_output_tokens": 9, "effort": "low"}
    assert encoded("openai-completions", "https://api.openai.com/v1", **cap)["max_completion_tokens"] == 9
    assert encoded("openai-completions", "https://openrouter.ai/api/v1", **cap)["reasoning"] == {
        "effort": "low"
    }
    assert encoded("openai-completions", "https://api.minimax.io/v1")["max_tokens"] == 8000
    assert encoded("openai-completions", "https://api.openai.com.evil.example/v1", **cap)["max_tokens"] == 9


def test_a_claude_behind_openrouter_is_asked_to_cache() -> None:
    def field(model: str, provider_id: str) -> Any:
        return sent("openai-completions", provider_id=provider_id, model=info(model)).get("cache_control")

    assert field("anthropic/claude-sonnet-4.6", "openrouter") == {"type": "ephemeral"}
    assert field("openai/gpt-5", "openrouter") is None
    assert field("anthropic/claude-sonnet-4.6", "acme") is None


@pytest.mark.parametrize("api", APIS)
def test_the_session_is_named_to_the_prompt_cache_of_openai_alone(api: str) -> None:
    own = encoded(api, "https://API.openai.com:443/v1", cache_key="mvs_1")
    assert own.get("prompt_cache_key") == (None if api == "anthropic-messages" else "mvs_1")
    assert "prompt_cache_key" not in encoded(api, "https://api.openai.com/v1")
    assert "mvs_1" not in str(encoded(api, "https://gateway.example/v1", cache_key="mvs_1"))


def test_no_tools_and_no_system_leave_no_empty_fields() -> None:
    for api in APIS:
        body = sent(api, tools=(), system=" ")
        assert not {"tools", "system", "instructions"} & set(body)
    assert [m["role"] for m in sent("openai-completions", system="")["messages"]] == ["user"]


def test_cache_breakpoints_stand_on_tools_system_and_the_last_two_user_messages() -> None:
    conversation: list[Message] = [user("one")]
    for _ in range(3):
        body = sent("anthropic-messages", *conversation, tools=(BASH, BASH))
        assert "cache_control" not in body
        marked = [
            (at, position)
            for at, message in enumerate(body["messages"])
            for position, block in enumerate(message["content"])
            if "cache_control" in block
        ]
        ends = [(at, len(m["content"]) - 1) for at, m in enumerate(body["messages"]) if m["role"] == "user"]
        assert marked == ends[-2:]
        assert ["cache_control" in tool for tool in body["tools"]] == [False, True]
        assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
        thought = ThinkingBlock(text="hm", signature="s", form="thinking", provider_id="acme")
        conversation += [answer(thought, CALL), results(RESULT, IMAGE)]


#: taken by every provider: OpenAI's without `strict`, Anthropic, and the grammars of llama.cpp
COMMON = {"type", "properties", "required", "additionalProperties", "description", "minimum", "enum", "items"}


def keywords(schema: dict[str, Any]) -> set[str]:
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return set(schema).union(*(keywords(one) for one in inner))


def test_the_schemas_of_our_tools_hold_only_what_every_provider_takes() -> None:
    tools = registry.schemas(registry.tool_names())
    assert set().union(*(keywords(tool.parameters) for tool in tools)) <= COMMON
    for provider_id in ("acme", "gemini"):
        body = sent("openai-completions", provider_id=provider_id, tools=tools)
        told = [tool["function"]["parameters"] for tool in body["tools"]]
        # Gemini refuses the whole request over a keyword it does not know
        refused = {"additionalProperties"} if provider_id == "gemini" else set()
        assert set().union(*map(keywords, told)) == COMMON - refused
        assert [set(one["properties"]) for one in told] == [
            set(tool.parameters["properties"]) for tool in tools
        ]


def test_a_schema_is_narrowed_at_every_depth_and_names_of_properties_are_no_keywords() -> None:
    schema: dict[str, Any] = {
        "$schema": "x",
        "type": "object",
        "properties": {
            "const": {
                "type": "array",
                "uniqueItems": True,
                "items": {"type": "integer", "exclusiveMinimum": 0},
            },
            "b": {"anyOf": [{"type": "string", "$comment": "c"}, {"type": "integer", "maximum": 3}]},
        },
    }
    tool = msgspec.structs.replace(BASH, parameters=schema)
    body = sent("openai-completions", provider_id="gemini", tools=(tool,))
    assert body["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "const": {"type": "array", "items": {"type": "integer"}},
            "b": {"anyOf": [{"type": "string"}, {"type": "integer", "maximum": 3}]},
        },
    }


IMAGE = ImageBlock(digest="d1", mime="image/png", filename="a.png", data="aWNv")
CALL = ToolCallBlock(id="call_1", name="read", arguments={"file_path": "a.png"})
RESULT = ToolResultBlock(call_id="call_1", name="read", content="An image.")


def test_an_image_that_a_tool_read_reaches_the_model() -> None:
    conversation = (user("look"), answer(CALL), results(RESULT, IMAGE))
    block = sent("anthropic-messages", *conversation)["messages"][2]["content"][0]
    assert block["type"] == "tool_result"
    assert block["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "aWNv"}
    messages = sent("openai-completions", *conversation)["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "user"]
    assert messages[-1]["content"][1]["image_url"] == {"url": "data:image/png;base64,aWNv"}
    items = sent("openai-responses", *conversation)["input"]
    assert [item["type"] for item in items] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert items[-1]["content"][1] == {"type": "input_image", "image_url": "data:image/png;base64,aWNv"}


def test_a_file_goes_as_each_format_takes_it() -> None:
    file = FileBlock(digest="d2", mime="application/pdf", filename="a.pdf", data="cGRm")
    anthropic = sent("anthropic-messages", user(file))["messages"][0]["content"][0]
    assert anthropic["type"] == "document"
    chat = sent("openai-completions", user(file))["messages"][1]["content"][0]
    assert chat["file"] == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}
    items = sent("openai-responses", user(file))["input"][0]["content"][0]
    assert (items["type"], items["filename"]) == ("input_file", "a.pdf")


def test_think_tags_go_back_as_the_model_wrote_them() -> None:
    thought = ThinkingBlock(text="\nhm\n", signature="</think>\n\n", form="think-tag", provider_id="minimax")
    messages = sent(
        "openai-completions",
        user("one"),
        answer(thought, TextBlock(text="Answer"), CALL),
        results(RESULT),
        provider_id="minimax",
    )["messages"]
    assert messages[2]["content"] == "<think>\nhm\n</think>\n\nAnswer"
    foreign = sent("openai-completions", user("one"), answer(thought, TextBlock(text="Answer")), user("two"))
    assert foreign["messages"][2]["content"] == "Answer"


@pytest.mark.parametrize("form", ["reasoning_content", "reasoning"])
def test_reasoning_goes_back_in_the_field_it_came_in(form: str) -> None:
    thought = ThinkingBlock(text="hm", form=form, provider_id="acme")
    message = sent("openai-completions", user("one"), answer(thought, CALL), results(RESULT))["messages"][2]
    assert message[form] == "hm"
    assert message["content"] is None
    assert message["tool_calls"][0]["function"]["arguments"] == '{"file_path":"a.png"}'


def test_reasoning_details_and_signatures_of_calls_go_back_untouched() -> None:
    details = ThinkingBlock(
        text="I see",
        encrypted='[{"type":"reasoning.text","text":"I see","signature":"s"}]',
        form="reasoning_details",
        provider_id="acme",
    )
    signed = ThinkingBlock(
        text="",
        encrypted='{"google":{"thought_signature":"c2ln"}}',
        form="extra_content",
        provider_id="acme",
    )
    conversation = (user("one"), answer(details, signed, CALL), results(RESULT))
    message = sent("openai-completions", *conversation)["messages"][2]
    assert message["reasoning_details"] == [{"type": "reasoning.text", "text": "I see", "signature": "s"}]
    assert message["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "c2ln"}}


@pytest.mark.parametrize("api", APIS)
def test_a_name_that_the_model_made_up_cannot_spoil_the_history(api: str) -> None:
    for name, wire in (("functions.bash:0", "functions_bash_0"), ("", "unknown"), ("é" * 90, "_" * 64)):
        call = msgspec.structs.replace(CALL, name=name)
        text = msgspec.json.encode(sent(api, user("x"), answer(call), results(RESULT))).decode()
        assert f'"name":"{wire}"' in text


@pytest.mark.parametrize("api", APIS)
def test_hostile_text_is_sent_as_valid_text(api: str) -> None:
    result = ToolResultBlock(call_id="call_1", name="bash", content="a\0b\ud800c")
    call = msgspec.structs.replace(CALL, arguments={"command": "\ud83d"})
    text = msgspec.json.encode(sent(api, user("x\0"), answer(call), results(result))).decode()
    assert "a\ufffdb\ufffdc" in text
    assert "\\u0000" not in text


@pytest.mark.parametrize("api", APIS)
def test_a_history_that_begins_with_an_answer_begins_with_the_user(api: str) -> None:
    body = sent(api, answer(TextBlock(text="said")), user("go on"))
    entries = body.get("messages") or body["input"]
    roles = [entry["role"] for entry in entries if entry["role"] != "system"]
    assert roles == ["user", "assistant", "user"]


def test_an_error_of_a_tool_is_marked_where_the_format_can() -> None:
    failed = msgspec.structs.replace(RESULT, is_error=True)
    block = sent("anthropic-messages", user("x"), answer(CALL), results(failed))["messages"][2]["content"][0]
    assert block["is_error"] is True


def test_the_anthropic_path_fits_both_ways_to_write_the_address() -> None:
    for base, path in (
        ("https://h", "/v1/messages"),
        ("https://h/v1/", "/messages"),
        ("https://h/a", "/v1/messages"),
    ):
        call = wire_module("anthropic-messages").encode(request(), endpoint(base, "anthropic-messages"))
        assert call.path == path


def test_reasoning_that_led_to_nothing_does_not_go_back_over_responses() -> None:
    thought = ThinkingBlock(
        text="hm", signature="rs_1", encrypted="b64", form="responses", provider_id="acme"
    )
    cut = sent("openai-responses", user("go"), answer(TextBlock(text="so"), thought), user("on"))
    assert [item["type"] for item in cut["input"]] == ["message", "message", "message"]
    whole = sent("openai-responses", user("go"), answer(thought, TextBlock(text="so")), user("on"))
    assert [item["type"] for item in whole["input"]] == ["message", "reasoning", "message", "message"]
    assert whole["input"][1]["id"] == "rs_1"


def test_an_id_of_another_make_is_left_out_of_reasoning() -> None:
    thought = ThinkingBlock(text="hm", signature="x1", encrypted="b64", form="responses", provider_id="acme")
    body = sent("openai-responses", user("go"), answer(thought, TextBlock(text="so")), user("on"))
    assert "id" not in body["input"][1]
