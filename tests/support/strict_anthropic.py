"""What a strict Anthropic Messages provider says of a request."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")


def check_anthropic(body: dict[str, Any]) -> Iterator[str]:
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool):
        yield "max_tokens: Field required"
    elif limit < 1:
        yield "max_tokens: must be greater than or equal to 1"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    yield from _anthropic_system(body.get("system"))
    yield from _anthropic_roles(messages)
    blocks = [list(_anthropic_blocks(message)) for message in messages]
    for at, message in enumerate(messages):
        yield from _anthropic_content(at, message)
        for position, block in enumerate(blocks[at]):
            yield from _anthropic_block(f"messages.{at}.content.{position}", message.get("role"), block)
    yield from _anthropic_pairs(blocks)
    yield from _anthropic_tools(body.get("tools"), blocks)
    yield from _cache_marks(body)


def _anthropic_system(system: Any) -> Iterator[str]:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        yield "system: Input should be a valid string or list"
        return
    for block in system:
        if not isinstance(block, dict) or not str(block.get("text") or "").strip():
            yield "system: text content blocks must be non-empty"


def _anthropic_roles(messages: list[Any]) -> Iterator[str]:
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    for at, role in enumerate(roles):
        if role not in ("user", "assistant"):
            yield f"messages.{at}.role: Input should be 'user' or 'assistant'"
    if roles[0] != "user":
        yield 'messages: first message must use the "user" role'
    if roles[-1] != "user":
        yield (
            "This model does not support assistant message prefill. "
            "The conversation must end with a user message."
        )
    for before, after in pairwise(roles):
        if before == after:
            yield (
                'messages: roles must alternate between "user" and "assistant", '
                f'but found multiple "{after}" roles in a row'
            )


def _anthropic_blocks(message: Any) -> Iterator[dict[str, Any]]:
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield block


def _anthropic_content(at: int, message: Any) -> Iterator[str]:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, str | list):
        yield f"messages.{at}.content: Input should be a valid string or list"
    elif not content:
        yield f"messages.{at}: all messages must have non-empty content"
    elif isinstance(content, str):
        if not content.strip():
            yield "messages: text content blocks must contain non-whitespace text"
    elif any(not isinstance(block, dict) for block in content):
        yield f"messages.{at}.content: Input should be a valid dictionary"


def _anthropic_block(where: str, role: Any, block: dict[str, Any]) -> Iterator[str]:
    kind = block.get("type")
    if kind == "text":
        if not isinstance(block.get("text"), str):
            yield f"{where}.text.text: Field required"
        elif not block["text"]:
            yield "messages: text content blocks must be non-empty"
        elif not block["text"].strip():
            yield "messages: text content blocks must contain non-whitespace text"
    elif kind == "tool_use":
        if role != "assistant":
            yield f"{where}: `tool_use` blocks can only be in `assistant` messages"
        if not isinstance(block.get("input"), dict):
            yield f"{where}.tool_use.input: Input should be a valid dictionary"
        if not _CALL_ID.fullmatch(str(block.get("id") or "")):
            yield f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if not TOOL_NAME.fullmatch(str(block.get("name") or "")):
            yield f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
    elif kind == "tool_result":
        if role != "user":
            yield f"{where}: `tool_result` blocks can only be in `user` messages"
        yield from _anthropic_result_content(where, block.get("content"))
    elif kind == "thinking":
        if role != "assistant":
            yield f"{where}: `thinking` blocks can only be in `assistant` messages"
        if not isinstance(block.get("signature"), str) or not block["signature"]:
            yield f"{where}.thinking.signature: Field required"
        if not isinstance(block.get("thinking"), str):
            yield f"{where}.thinking.thinking: Field required"
    elif kind not in ("redacted_thinking", "image", "document"):
        yield f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags"


def _anthropic_result_content(where: str, content: Any) -> Iterator[str]:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        yield f"{where}.tool_result.content: Input should be a valid string or list"
        return
    for block in content:
        if block.get("type") == "text" and not str(block.get("text") or "").strip():
            yield "messages: text content blocks must be non-empty"


def _anthropic_pairs(messages: list[list[dict[str, Any]]]) -> Iterator[str]:
    calls = [[block.get("id") for block in blocks if block.get("type") == "tool_use"] for blocks in messages]
    for repeated, count in Counter(one for ids in calls for one in ids).items():
        if count > 1:
            yield f"messages: `tool_use` ids must be unique: {repeated}"
    for at, blocks in enumerate(messages):
        expected = calls[at - 1] if at else []
        kinds = [block.get("type") for block in blocks]
        results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        if results and kinds[: len(results)] != ["tool_result"] * len(results):
            yield f"messages.{at}: `tool_result` blocks must come first in the content of a message"
        for position, one in enumerate(results):
            if one not in expected:
                yield (
                    f"messages.{at}.content.{position}: unexpected `tool_use_id` found in `tool_result` "
                    f"blocks: {one}. Each `tool_result` block must have a corresponding `tool_use` block "
                    "in the previous message."
                )
        for repeated, count in Counter(results).items():
            if count > 1:
                yield (
                    f"messages.{at}.content: each tool_use must have a single result. "
                    f"Found multiple `tool_result` blocks with id: {repeated}"
                )
        following = messages[at + 1] if at + 1 < len(messages) else []
        answered = {block.get("tool_use_id") for block in following if block.get("type") == "tool_result"}
        missing = [str(one) for one in calls[at] if one not in answered]
        if missing:
            yield (
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block "
                "in the next message."
            )


def _anthropic_tools(tools: Any, messages: list[list[dict[str, Any]]]) -> Iterator[str]:
    kinds = {block.get("type") for blocks in messages for block in blocks}
    if kinds & {"tool_use", "tool_result"} and not tools:
        yield "Requests which have `tool_use` or `tool_result` blocks in `messages` must define `tools`"
    if tools is None:
        return
    if not isinstance(tools, list):
        yield "tools: Input should be a valid list"
        return
    names = [tool.get("name") if isinstance(tool, dict) else None for tool in tools]
    for at, tool in enumerate(tools):
        if not TOOL_NAME.fullmatch(str(names[at] or "")):
            yield f"tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
        if not isinstance(tool, dict) or (tool.get("input_schema") or {}).get("type") != "object":
            yield f"tools.{at}.custom.input_schema.type: Field required"
    if len(set(names)) != len(names):
        yield "tools: Tool names must be unique."


def _cache_marks(body: dict[str, Any]) -> Iterator[str]:
    if "cache_control" in body:
        yield "cache_control: Extra inputs are not permitted"
    found = json.dumps(body).count('"cache_control": {')
    if found > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {found}."
    for at, message in enumerate(body["messages"]):
        for position, block in enumerate(_anthropic_blocks(message)):
            where = f"messages.{at}.content.{position}"
            if "cache_control" not in block:
                continue
            if block.get("type") in ("thinking", "redacted_thinking"):
                yield f"{where}.{block['type']}.cache_control: Extra inputs are not permitted"
            elif block.get("type") == "text" and not block.get("text"):
                yield f"{where}: cache_control cannot be set for empty text blocks"
