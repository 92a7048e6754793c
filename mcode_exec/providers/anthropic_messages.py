"""The Anthropic messages format, also spoken by MiniMax, llama.cpp and others.

Thinking goes back with its signature, redacted thinking as it came.  The four
cache breakpoints stand on the tools, the system prompt and the ends of the last
two messages of the user's side: the older of the two is where the last request
wrote its cache, however many blocks the step between them had.  They move, and
apart from them a request begins with the bytes of the one before.  None stands
at the top of the request, which only Anthropic's own address knows.
"""

from __future__ import annotations

from typing import Any

from mcode_exec.providers.anthropic_answers import Reader
from mcode_exec.providers.payload import clean
from mcode_exec.providers.payload import encode as encode_json
from mcode_exec.providers.think_tags import span
from mcode_exec.providers.thinking_budget import adaptive_word, budget
from mcode_exec.providers.transcript import (
    AssistantSide,
    Result,
    UserSide,
    exchanges,
    missing_note,
    tool_name,
)
from mcode_exec.providers.wire import Endpoint, WireRequest
from mcode_exec.records.history import (
    FileBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mcode_exec.records.model import ModelRequest

__all__ = ["Reader", "encode"]

VERSION = "2023-06-01"
_CACHED = {"type": "ephemeral"}
#: breakpoints of the conversation: a request may hold four in all
_MOVING_MARKS = 2
_UNTHOUGHT = "results come back to calls that were made without thinking, and no thinking may begin there"


def encode(request: ModelRequest, endpoint: Endpoint) -> WireRequest:
    """The request; what may change from step to step stands behind the messages."""
    body: dict[str, Any] = {"model": request.model.ref.model_id, "stream": True}
    tools: list[dict[str, Any]] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in request.tools
    ]
    if not tools and (past := _called_before(request)):
        # a history with calls is refused where no tool is defined
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in past]
        body["tool_choice"] = {"type": "none"}
    if tools:
        tools[-1]["cache_control"] = _CACHED
        body["tools"] = tools
    if request.system.strip():
        body["system"] = [{"type": "text", "text": clean(request.system), "cache_control": _CACHED}]
    messages = [
        _assistant(side, endpoint.provider_id) if isinstance(side, AssistantSide) else _user(side)
        for side in exchanges(request.messages, endpoint.provider_id)
    ]
    for message in [message for message in messages if message["role"] == "user"][-_MOVING_MARKS:]:
        message["content"][-1]["cache_control"] = _CACHED
    body["messages"] = messages
    limit = request.model.output_tokens
    if request.max_output_tokens is not None:
        limit = min(limit, request.max_output_tokens)
    body["max_tokens"] = max(limit, 1)
    thinking, left_out = _thinking(request, limit), None
    if "budget_tokens" in thinking.get("thinking", {}) and _goes_on_without_thought(messages):
        thinking, left_out = {}, _UNTHOUGHT
    body.update(thinking)
    if request.temperature is not None and not thinking:
        body["temperature"] = request.temperature
    base = endpoint.base_url.rstrip("/")
    path = "/messages" if base.endswith("/v1") else "/v1/messages"
    return WireRequest(path, [("anthropic-version", VERSION)], encode_json(body), left_out)


def _goes_on_without_thought(messages: list[dict[str, Any]]) -> bool:
    """Whether results come back to calls that were made without thinking, by another model or without an effort.

    Anthropic refuses a thinking budget there; the next question gets one.
    """
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":
        return False
    first = messages[-2]["content"][0]["type"]
    return first not in ("thinking", "redacted_thinking")


def _called_before(request: ModelRequest) -> list[str]:
    """The tools that the history has calls or results of."""
    return sorted(
        {
            tool_name(block.name)
            for message in request.messages
            for block in message.content
            if isinstance(block, ToolCallBlock | ToolResultBlock)
        }
    )


def _thinking(request: ModelRequest, limit: int) -> dict[str, Any]:
    effort = request.effort
    if effort is None:
        return {}
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    word = adaptive_word(request.model.ref.model_id, effort)
    if word is not None:
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": word}}
    tokens = budget(effort, limit)
    return {} if tokens is None else {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def _user(side: UserSide) -> dict[str, Any]:
    blocks = [_result(result) for result in side.results]
    for block in side.said:
        if isinstance(block, TextBlock):
            blocks.append({"type": "text", "text": block.text})
        else:
            blocks.append(_attachment(block))
    return {"role": "user", "content": blocks}


def _result(result: Result) -> dict[str, Any]:
    content: Any = result.content
    if result.images:
        content = [
            {"type": "text", "text": result.content},
            *(_attachment(image) for image in result.images),
        ]
    block = {"type": "tool_result", "tool_use_id": result.call_id, "content": content}
    if result.is_error:
        block["is_error"] = True
    return block


def _attachment(block: ImageBlock | FileBlock) -> dict[str, Any]:
    if block.data is None:
        return {"type": "text", "text": missing_note(block)}
    source = {"type": "base64", "media_type": block.mime, "data": block.data}
    return {"type": "image" if isinstance(block, ImageBlock) else "document", "source": source}


def _assistant(side: AssistantSide, provider_id: str) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    for block in side.blocks:
        if isinstance(block, TextBlock):
            blocks.append({"type": "text", "text": clean(block.text)})
        elif isinstance(block, ThinkingBlock):
            blocks += _thought(block, provider_id)
        else:
            blocks.append(
                {"type": "tool_use", "id": block.id, "name": tool_name(block.name), "input": block.arguments}
            )
    return {"role": "assistant", "content": blocks}


def _thought(block: ThinkingBlock, provider_id: str) -> list[dict[str, Any]]:
    if block.form == "think-tag":
        return [{"type": "text", "text": span(block.text, block.signature)}]
    if block.form != "thinking":
        return []
    if block.encrypted is not None:
        return [{"type": "redacted_thinking", "data": block.encrypted}]
    if not block.signature and (provider_id == "anthropic" or not block.text.strip()):
        return []  # Anthropic refuses thinking that it has not signed
    return [{"type": "thinking", "thinking": clean(block.text), "signature": block.signature or ""}]
