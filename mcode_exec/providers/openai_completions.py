"""The OpenAI chat completions format, and the many that imitate it.

What differs between the providers that speak it stands in chat_dialects.py.  Reasoning
comes as `reasoning_content`, `reasoning`, `reasoning_details` or in `<think>`
tags, and goes back to the same provider the way it came.
"""

from __future__ import annotations

from typing import Any

from mcode_exec.providers.chat_answers import Reader
from mcode_exec.providers.chat_dialects import cache_fields, dialect_of, effort_fields, parameters
from mcode_exec.providers.payload import (
    clean,
    decode,
)
from mcode_exec.providers.payload import (
    encode as encode_json,
)
from mcode_exec.providers.think_tags import span
from mcode_exec.providers.transcript import (
    AssistantSide,
    UserSide,
    exchanges,
    missing_note,
    tool_name,
)
from mcode_exec.providers.wire import OPENAI_HOST, Endpoint, WireRequest
from mcode_exec.records.history import FileBlock, ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock
from mcode_exec.records.model import ModelRequest

__all__ = ["Reader", "encode"]


def encode(request: ModelRequest, endpoint: Endpoint) -> WireRequest:
    """The request; what may change from step to step stands behind the messages."""
    dialect = dialect_of(endpoint)
    body: dict[str, Any] = {
        "model": request.model.ref.model_id,
        "stream": True,
        "stream_options": {"include_usage": True},
        **cache_fields(request.model.ref.model_id, dialect),
    }
    if request.cache_key is not None and endpoint.host == OPENAI_HOST:
        body["prompt_cache_key"] = request.cache_key
    if request.effort is not None:
        body |= effort_fields(request.effort, dialect)
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": parameters(tool, dialect),
                },
            }
            for tool in request.tools
        ]
    body["messages"] = _messages(request, endpoint)
    limit = request.max_output_tokens
    if limit is None and dialect.states_limit and request.model.source != "default":
        limit = request.model.output_tokens
    if limit is not None:
        body[dialect.limit_field] = limit
    return WireRequest("/chat/completions", [], encode_json(body))


def _messages(request: ModelRequest, endpoint: Endpoint) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if request.system.strip():
        messages.append({"role": "system", "content": clean(request.system)})
    for side in exchanges(request.messages, endpoint.provider_id):
        if isinstance(side, AssistantSide):
            messages.append(_assistant(side))
        else:
            messages.extend(_user(side))
    return messages


def _user(side: UserSide) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": result.call_id, "content": result.content} for result in side.results
    ]
    parts: list[dict[str, Any]] = []
    for result in side.results:
        if result.images:
            parts.append({"type": "text", "text": f"(from {result.name})"})
            parts += [_attachment(image) for image in result.images]
    for block in side.said:
        if isinstance(block, TextBlock):
            parts.append({"type": "text", "text": block.text})
        else:
            parts.append(_attachment(block))
    if parts and all(part["type"] == "text" for part in parts):
        messages.append({"role": "user", "content": "\n\n".join(part["text"] for part in parts)})
    elif parts:
        messages.append({"role": "user", "content": parts})
    return messages


def _attachment(block: ImageBlock | FileBlock) -> dict[str, Any]:
    if block.data is None:
        return {"type": "text", "text": missing_note(block)}
    url = f"data:{block.mime};base64,{block.data}"
    if isinstance(block, ImageBlock):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": block.filename or "file", "file_data": url}}


def _assistant(side: AssistantSide) -> dict[str, Any]:
    said: list[str] = []
    calls: list[dict[str, Any]] = []
    extra: dict[str, Any] = {}
    for block in side.blocks:
        if isinstance(block, TextBlock):
            said.append(clean(block.text))
        elif isinstance(block, ThinkingBlock):
            _put_thinking(block, said, extra)
        else:
            calls.append(_call(block, extra.pop("extra_content", None)))
    extra.pop("extra_content", None)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(said) or None, **extra}
    if calls:
        message["tool_calls"] = calls
    return message


def _put_thinking(block: ThinkingBlock, said: list[str], extra: dict[str, Any]) -> None:
    if block.form == "think-tag":
        said.append(span(block.text, block.signature))
    elif block.form in ("reasoning_content", "reasoning"):
        extra[block.form] = extra.get(block.form, "") + block.text
    elif block.form == "reasoning_details" and block.encrypted:
        extra["reasoning_details"] = extra.get("reasoning_details", []) + decode(block.encrypted)
    elif block.form == "extra_content" and block.encrypted:
        extra["extra_content"] = decode(block.encrypted)


def _call(block: ToolCallBlock, extra_content: Any) -> dict[str, Any]:
    call: dict[str, Any] = {
        "id": block.id,
        "type": "function",
        "function": {
            "name": tool_name(block.name),
            "arguments": encode_json(block.arguments).decode(),
        },
    }
    if extra_content is not None:
        call["extra_content"] = extra_content
    return call
