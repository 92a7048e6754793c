"""The OpenAI responses format, without state on the provider's side (`store: false`).

Encrypted reasoning is asked for, kept, and sent back before the calls it led to.
"""

from __future__ import annotations

from typing import Any

from mcode_exec.providers.payload import (
    clean,
)
from mcode_exec.providers.payload import (
    encode as encode_json,
)
from mcode_exec.providers.responses_answers import Reader
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
    """The request; what may change from step to step stands behind the input."""
    body: dict[str, Any] = {"model": request.model.ref.model_id, "stream": True, "store": False}
    if request.cache_key is not None and endpoint.host == OPENAI_HOST:
        body["prompt_cache_key"] = request.cache_key
    if request.model.reasons or request.effort not in (None, "none"):
        body["include"] = ["reasoning.encrypted_content"]
    if request.effort is not None:
        body["reasoning"] = {"effort": request.effort, "summary": "auto"}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.system.strip():
        body["instructions"] = clean(request.system)
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in request.tools
        ]
    items: list[dict[str, Any]] = []
    for side in exchanges(request.messages, endpoint.provider_id):
        if isinstance(side, AssistantSide):
            items += _assistant(side)
        else:
            items += _user(side)
    body["input"] = items
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens
    return WireRequest("/responses", [], encode_json(body))


def _user(side: UserSide) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [
        {"type": "function_call_output", "call_id": result.call_id, "output": result.content}
        for result in side.results
    ]
    parts: list[dict[str, Any]] = []
    for result in side.results:
        if result.images:
            parts.append({"type": "input_text", "text": f"(from {result.name})"})
            parts += [_attachment(image) for image in result.images]
    for block in side.said:
        if isinstance(block, TextBlock):
            parts.append({"type": "input_text", "text": block.text})
        else:
            parts.append(_attachment(block))
    if parts:
        items.append({"type": "message", "role": "user", "content": parts})
    return items


def _attachment(block: ImageBlock | FileBlock) -> dict[str, Any]:
    if block.data is None:
        return {"type": "input_text", "text": missing_note(block)}
    url = f"data:{block.mime};base64,{block.data}"
    if isinstance(block, ImageBlock):
        return {"type": "input_image", "image_url": url}
    return {"type": "input_file", "filename": block.filename or "file", "file_data": url}


def _assistant(side: AssistantSide) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for block in side.blocks:
        if isinstance(block, ToolCallBlock):
            items.append(
                {
                    "type": "function_call",
                    "call_id": block.id,
                    "name": tool_name(block.name),
                    "arguments": encode_json(block.arguments).decode(),
                }
            )
        elif isinstance(block, ThinkingBlock) and block.form == "responses":
            items += _reasoning(block)
        elif isinstance(block, TextBlock):
            items.append(_said(clean(block.text)))
        elif block.form == "think-tag":
            items.append(_said(span(block.text, block.signature)))
    # Reasoning that led to nothing (the output limit cut it) is refused without the item it belongs to.
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return items


def _said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _reasoning(block: ThinkingBlock) -> list[dict[str, Any]]:
    if not block.encrypted:  # without state over there, an id alone names nothing
        return []
    summary = [{"type": "summary_text", "text": clean(block.text)}] if block.text.strip() else []
    item: dict[str, Any] = {"type": "reasoning", "summary": summary, "encrypted_content": block.encrypted}
    if block.signature and block.signature.startswith("rs"):
        # an id of another make is refused, and the encrypted content says all without it
        item["id"] = block.signature
    return [item]
