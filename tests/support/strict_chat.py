"""What a strict Chat Completions provider says of a request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.support.strict_anthropic import TOOL_NAME


def check_chat(body: dict[str, Any]) -> Iterator[str]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        yield "Invalid 'messages': empty array. Expected an array with minimum length 1."
        return
    if body.get("stream_options") is not None and not body.get("stream"):
        yield "The 'stream_options' parameter is only allowed when 'stream' is enabled."
    yield from _chat_tools(body.get("tools"))
    for at, message in enumerate(messages):
        yield from _chat_message(at, message)
    yield from _chat_roles(messages)
    yield from _chat_pairs(messages)


def _chat_tools(tools: Any) -> Iterator[str]:
    if tools is None:
        return
    if not isinstance(tools, list) or not tools:
        yield "[] is too short - 'tools'"
        return
    for at, tool in enumerate(tools):
        function = tool.get("function") or {}
        if tool.get("type") != "function" or not TOOL_NAME.fullmatch(str(function.get("name") or "")):
            yield f"Invalid 'tools[{at}].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'."


def _chat_text(content: Any) -> str | None:
    """All text of a content, with a mark for what is no text; None if it is neither string nor list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = (part for part in content if isinstance(part, dict))
    return "".join(str(part.get("text", "")) if part.get("type") == "text" else "\ufffc" for part in parts)


def _chat_message(at: int, message: dict[str, Any]) -> Iterator[str]:
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        yield f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user' and 'tool'."
    text = _chat_text(content)
    if role == "assistant" and calls is not None:
        yield from _chat_calls(at, calls)
    if role == "assistant" and calls and content is None:
        return
    if text is None:
        yield f"Invalid value for 'messages[{at}].content': expected a string or list, got another type."
    elif role != "tool" and not text.strip() and not (role == "assistant" and calls and content == ""):
        yield f"Invalid 'messages[{at}].content': chat content is empty"
    if isinstance(content, list):
        if not content:
            yield f"Invalid 'messages[{at}].content': empty array. Expected an array with minimum length 1."
        for part in content:
            if isinstance(part, dict) and part.get("type") == "text" and not part.get("text"):
                yield f"Invalid 'messages[{at}].content': text content blocks must be non-empty"


def _chat_calls(at: int, calls: Any) -> Iterator[str]:
    if not isinstance(calls, list) or not calls:
        yield f"Invalid 'messages[{at}].tool_calls': empty array. Expected an array with minimum length 1."
        return
    for position, call in enumerate(calls):
        where = f"messages[{at}].tool_calls[{position}]"
        function = call.get("function") or {}
        if call.get("type") != "function" or not function.get("name"):
            yield f"Missing required parameter: '{where}.function.name'."
        if not call.get("id") or len(str(call["id"])) > 40:
            yield f"Invalid '{where}.id': expected a string with length 1 to 40"
        yield from check_arguments(f"{where}.function.arguments", function.get("arguments"))


def _chat_roles(messages: list[dict[str, Any]]) -> Iterator[str]:
    roles = [message.get("role") for message in messages]
    while roles and roles[0] in ("system", "developer"):
        roles.pop(0)
    if not roles or roles[0] != "user":
        yield "The first message after the system message must have the role 'user'."
    if roles and roles[-1] not in ("user", "tool"):
        yield "The last message must have the role 'user' or 'tool'."
    for before, after in pairwise(roles):
        if after in ("system", "developer"):
            yield "System messages must stand at the beginning."
        if before == after and before != "tool":
            yield (
                "After the optional system message, conversation roles must alternate "
                f"user/assistant/user/assistant: found '{before}' twice in a row"
            )


def _chat_pairs(messages: list[dict[str, Any]]) -> Iterator[str]:
    seen: set[Any] = set()
    awaited: list[Any] = []
    for at, message in enumerate([*messages, {"role": "end"}]):
        if message.get("role") == "tool":
            one = message.get("tool_call_id")
            if one in awaited:
                awaited.remove(one)
            elif one in seen:
                yield f"Duplicate value for 'tool_call_id' of '{one}' in message[{at}]"
            else:
                yield (
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
                    f"message with 'tool_calls' (messages[{at}], tool_call_id '{one}')."
                )
            continue
        if awaited:
            yield (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to "
                "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
                f"{', '.join(map(str, awaited))}"
            )
        awaited = [call.get("id") for call in message.get("tool_calls") or []]
        for one in awaited:
            if one in seen or awaited.count(one) > 1:
                yield f"Duplicate tool call id '{one}' in message[{at}]"
        seen.update(awaited)


def check_arguments(where: str, arguments: Any) -> Iterator[str]:
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (TypeError, ValueError):
        is_object = False
    if not is_object:
        yield f"Invalid '{where}': expected the text of a JSON object."
