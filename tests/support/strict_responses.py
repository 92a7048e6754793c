"""What a strict Responses provider says of a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.support.strict_anthropic import TOOL_NAME
from tests.support.strict_chat import check_arguments


def check_responses(body: dict[str, Any]) -> Iterator[str]:
    items = body.get("input")
    if isinstance(items, str):
        if not items.strip():
            yield "Invalid 'input': empty string."
        return
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        yield "Invalid 'input': expected a string or a non-empty array."
        return
    for at, item in enumerate(items):
        yield from _response_item(at, item)
    yield from _response_order(items)
    yield from _response_pairs(items)
    for repeated, count in Counter(item["id"] for item in items if item.get("id")).items():
        if count > 1:
            yield f"Duplicate item found with id {repeated}. Remove duplicate items from your input."


def _kind(item: dict[str, Any]) -> Any:
    return item.get("type") or ("message" if "role" in item else None)


def _response_item(at: int, item: dict[str, Any]) -> Iterator[str]:
    kind = _kind(item)
    prefix = {"message": "msg", "function_call": "fc", "reasoning": "rs"}.get(kind)
    if prefix and item.get("id") and not str(item["id"]).startswith(prefix):
        yield f"Invalid 'input[{at}].id': '{item['id']}'. Expected an ID that begins with '{prefix}'."
    if kind == "message":
        yield from _response_message(at, item)
    elif kind == "function_call":
        if not TOOL_NAME.fullmatch(str(item.get("name") or "")):
            yield f"Missing required parameter: 'input[{at}].name'."
        yield from check_arguments(f"input[{at}].arguments", item.get("arguments"))
        if not item.get("call_id") or len(str(item["call_id"])) > 64:
            yield f"Invalid 'input[{at}].call_id': expected a string with length 1 to 64"
    elif kind == "function_call_output":
        if not isinstance(item.get("output"), str | list):
            yield f"Missing required parameter: 'input[{at}].output'."
    elif kind == "reasoning":
        if not isinstance(item.get("summary"), list):
            yield f"Missing required parameter: 'input[{at}].summary'."
    elif kind != "item_reference":
        yield f"Invalid value: '{kind}' in 'input[{at}].type'."


def _response_message(at: int, item: dict[str, Any]) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        yield f"Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer' and 'user'."
    if not isinstance(content, str | list) or not content:
        yield f"Invalid 'input[{at}].content': expected a non-empty string or array."
        return
    allowed = (
        ("output_text", "refusal") if role == "assistant" else ("input_text", "input_image", "input_file")
    )
    parts = [{"type": allowed[0], "text": content}] if isinstance(content, str) else content
    for position, part in enumerate(parts):
        if part.get("type") not in allowed:
            yield (
                f"Invalid value: '{part.get('type')}' in 'input[{at}].content[{position}].type'. "
                f"Supported values are: {', '.join(allowed)}."
            )
        elif part["type"].endswith("_text") and not str(part.get("text") or "").strip():
            yield f"Invalid 'input[{at}].content[{position}].text': empty string."


def _response_order(items: list[dict[str, Any]]) -> Iterator[str]:
    talk = [item for item in items if item.get("role") not in ("system", "developer")]
    if not talk or talk[0].get("role") != "user":
        yield "The first input item must be a message of the user."
    if talk and not (talk[-1].get("role") == "user" or _kind(talk[-1]) == "function_call_output"):
        yield "The last input item must be a message of the user or a function call output."
    for before, after in pairwise(talk):
        if before.get("role") == after.get("role") == "user":
            yield "Input messages must alternate: found 'user' twice in a row"
        is_followed = _kind(after) in ("reasoning", "message", "function_call")
        if _kind(before) == "reasoning" and (not is_followed or after.get("role") == "user"):
            yield _lonely(before)


def _lonely(item: dict[str, Any]) -> str:
    return f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."


def _response_pairs(items: list[dict[str, Any]]) -> Iterator[str]:
    seen: set[Any] = set()
    awaited: list[Any] = []
    for item in [*items, {"role": "user", "type": "message"}]:
        one = item.get("call_id")
        if _kind(item) == "function_call":
            if one in seen:
                yield f"Duplicate function call with call_id {one}."
            seen.add(one)
            awaited.append(one)
        elif _kind(item) == "function_call_output":
            if one in awaited:
                awaited.remove(one)
            elif one in seen:
                yield f"Duplicate function call output for call_id {one}."
            else:
                yield f"No tool call found for function call output with call_id {one}."
        elif item.get("role") == "user":
            yield from (f"No tool output found for function call {late}." for late in awaited)
            awaited = []
