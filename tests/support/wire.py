"""An `Answer` as the bytes of each wire format: a list of server-sent events, or one JSON body.

`ANTHROPIC`, `CHAT` and `RESPONSES` name the formats; `events()` puts the terminal event last, so that the
peer can leave it out.  Written from the public documentation of the three APIs, not from our own reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.steps import Answer, Call, Say, Think

ANTHROPIC = "anthropic-messages"
CHAT = "openai-completions"
RESPONSES = "openai-responses"

_ANTHROPIC_FINISH = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
_CHAT_FINISH = {"refusal": "content_filter"}


def api_of(path: str) -> str | None:
    """The wire format of a request path, with or without a version prefix."""
    bare = path.partition("?")[0].rstrip("/")
    for suffix, api in (("/messages", ANTHROPIC), ("/chat/completions", CHAT), ("/responses", RESPONSES)):
        if bare.endswith(suffix):
            return api
    return None


def events(api: str, answer: Answer, request: dict[str, Any]) -> list[bytes]:
    """Server-sent events of `answer`; the terminal event, or the error in its place, is the last."""
    makers = {ANTHROPIC: _anthropic, CHAT: _chat, RESPONSES: _responses}
    return list(makers[api](answer, request))


def body(api: str, answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request that did not ask for a stream."""
    makers = {ANTHROPIC: _anthropic_body, CHAT: _chat_body, RESPONSES: _responses_body}
    return makers[api](answer, request)


def finish_of(answer: Answer) -> str:
    if answer.finish is not None:
        return answer.finish
    return "tool_calls" if any(isinstance(part, Call) for part in answer.parts) else "stop"


def usage_of(answer: Answer, request: dict[str, Any]) -> dict[str, int] | None:
    if answer.usage is None:
        return None
    said = sum(len(_text(part)) for part in answer.parts)
    estimate = {"input": len(json.dumps(request)) // 4, "output": said // 4 + 1}
    return {"reasoning": 0, "cache_read": 0, "cache_write": 0, **estimate, **answer.usage}


def arguments_text(call: Call) -> str:
    return (
        call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    )


def _text(part: Say | Think | Call) -> str:
    return arguments_text(part) if isinstance(part, Call) else part.text


def _pieces(text: str, answer: Answer) -> Iterator[str]:
    size = answer.piece or max(12, len(text) // 40 + 1)
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _sse(data: Any, event: str | None = None) -> bytes:
    head = f"event: {event}\n" if event else ""
    # surrogates cannot be UTF-8: they travel as escapes, as real servers send them
    dumped = json.dumps(data, ensure_ascii=False)
    try:
        return f"{head}data: {dumped}\n\n".encode()
    except UnicodeEncodeError:
        return f"{head}data: {json.dumps(data)}\n\n".encode()


# Anthropic Messages


def _anthropic_usage(answer: Answer, request: dict[str, Any]) -> dict[str, int] | None:
    usage = usage_of(answer, request)
    if usage is None:
        return None
    return {
        "input_tokens": usage["input"],
        "cache_creation_input_tokens": usage["cache_write"],
        "cache_read_input_tokens": usage["cache_read"],
        "output_tokens": usage["output"] + usage["reasoning"],
    }


def _anthropic_block(part: Say | Think | Call) -> tuple[dict[str, Any], str, str]:
    """The empty block as it starts, and the delta type and field that fill it."""
    if isinstance(part, Say):
        return {"type": "text", "text": ""}, "text_delta", "text"
    if isinstance(part, Think):
        return {"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking"
    return (
        {"type": "tool_use", "id": part.id, "name": part.name, "input": {}},
        "input_json_delta",
        "partial_json",
    )


def _anthropic(answer: Answer, request: dict[str, Any]) -> Iterator[bytes]:
    usage = _anthropic_usage(answer, request)
    message: dict[str, Any] = {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": request.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    if usage is not None:
        message["usage"] = {**usage, "output_tokens": 1}
    yield _sse({"type": "message_start", "message": message}, "message_start")
    yield _sse({"type": "ping"}, "ping")
    for index, part in enumerate(answer.parts):
        block, kind, field = _anthropic_block(part)
        start = {"type": "content_block_start", "index": index, "content_block": block}
        yield _sse(start, "content_block_start")
        for piece in _pieces(_text(part), answer):
            delta = {"type": "content_block_delta", "index": index, "delta": {"type": kind, field: piece}}
            yield _sse(delta, "content_block_delta")
        if isinstance(part, Think) and part.signature:
            signed = {"type": "signature_delta", "signature": part.signature}
            yield _sse(
                {"type": "content_block_delta", "index": index, "delta": signed}, "content_block_delta"
            )
        yield _sse({"type": "content_block_stop", "index": index}, "content_block_stop")
    if answer.error:
        kind, text = answer.error
        yield _sse({"type": "error", "error": {"type": kind, "message": text}}, "error")
        return
    finish = finish_of(answer)
    ended: dict[str, Any] = {
        "type": "message_delta",
        "delta": {"stop_reason": _ANTHROPIC_FINISH.get(finish, finish), "stop_sequence": None},
    }
    if usage is not None:
        ended["usage"] = {"output_tokens": usage["output_tokens"]}
    # one terminal piece: what breaks off before the end has no stop reason either
    yield _sse(ended, "message_delta") + _sse({"type": "message_stop"}, "message_stop")


def _anthropic_body(answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for part in answer.parts:
        block, _, field = _anthropic_block(part)
        if isinstance(part, Call):
            block["input"] = json.loads(arguments_text(part) or "{}")
        else:
            block[field] = part.text
        if isinstance(part, Think):
            block["signature"] = part.signature
        content.append(block)
    finish = finish_of(answer)
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": request.get("model"),
        "content": content,
        "stop_reason": _ANTHROPIC_FINISH.get(finish, finish),
        "stop_sequence": None,
        "usage": _anthropic_usage(answer, request),
    }


# Chat Completions


def _chat_usage(answer: Answer, request: dict[str, Any]) -> dict[str, Any] | None:
    usage = usage_of(answer, request)
    if usage is None:
        return None
    prompt = usage["input"] + usage["cache_read"] + usage["cache_write"]
    completion = usage["output"] + usage["reasoning"]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": usage["cache_read"]},
        "completion_tokens_details": {"reasoning_tokens": usage["reasoning"]},
    }


def _chat_thinking(part: Think, piece: str, first: bool, last: bool) -> dict[str, Any]:
    if part.form == "think-tag":
        return {"content": ("<think>" if first else "") + piece + ("</think>" if last else "")}
    if part.form == "reasoning_details":
        return {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": piece}]}
    return {part.form: piece}


def _chat_deltas(answer: Answer) -> Iterator[dict[str, Any]]:
    number = 0
    for part in answer.parts:
        pieces = list(_pieces(_text(part), answer))
        if isinstance(part, Say):
            yield from ({"content": piece} for piece in pieces)
        elif isinstance(part, Think):
            for at, piece in enumerate(pieces):
                yield _chat_thinking(part, piece, at == 0, at == len(pieces) - 1)
        else:
            opening = {"name": part.name, "arguments": ""}
            yield {"tool_calls": [{"index": number, "id": part.id, "type": "function", "function": opening}]}
            for piece in pieces:
                yield {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}
            number += 1


def _chat(answer: Answer, request: dict[str, Any]) -> Iterator[bytes]:
    base = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": request.get("model"),
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _sse({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for delta in _chat_deltas(answer):
        yield chunk(delta)
    if answer.error:
        kind, text = answer.error
        yield _sse({"error": {"message": text, "type": kind, "code": kind}})
        return
    finish = finish_of(answer)
    ending = chunk({}, _CHAT_FINISH.get(finish, finish))
    usage = _chat_usage(answer, request)
    if usage is not None and (request.get("stream_options") or {}).get("include_usage"):
        ending += _sse({**base, "choices": [], "usage": usage})
    # one terminal piece: a finish reason alone completes a stream for a reader
    yield ending + b"data: [DONE]\n\n"


def _chat_body(answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    said = "".join(part.text for part in answer.parts if isinstance(part, Say))
    message: dict[str, Any] = {"role": "assistant", "content": said or None}
    calls = [part for part in answer.parts if isinstance(part, Call)]
    if calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": arguments_text(c)}}
            for c in calls
        ]
    finish = finish_of(answer)
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1700000000,
        "model": request.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": _CHAT_FINISH.get(finish, finish)}],
        "usage": _chat_usage(answer, request),
    }


# Responses


def _responses_item(part: Say | Think | Call, key: str, *, is_done: bool) -> dict[str, Any]:
    state = "completed" if is_done else "in_progress"
    if isinstance(part, Say):
        text = [{"type": "output_text", "text": part.text, "annotations": []}] if is_done else []
        return {
            "id": f"msg_{key}",
            "type": "message",
            "role": "assistant",
            "status": state,
            "content": text,
        }
    if isinstance(part, Think):
        summary = [{"type": "summary_text", "text": part.text}] if is_done else []
        item = {"id": f"rs_{key}", "type": "reasoning", "summary": summary}
        return {**item, "encrypted_content": part.signature} if is_done else item
    return {
        "id": f"fc_{part.id}",
        "type": "function_call",
        "call_id": part.id,
        "name": part.name,
        "arguments": arguments_text(part) if is_done else "",
        "status": state,
    }


def _item_key(request: dict[str, Any], index: int) -> str:
    """Item ids stay unique in a session because its input grows from request to request."""
    asked = request.get("input")
    return f"{len(asked) if isinstance(asked, list) else 0}_{index}"


def _responses_object(answer: Answer, request: dict[str, Any], state: str) -> dict[str, Any]:
    done = state != "in_progress"
    finish = finish_of(answer)
    reasons = {"length": "max_output_tokens", "refusal": "content_filter"}
    usage = usage_of(answer, request) if done else None
    output = [
        _responses_item(part, _item_key(request, index), is_done=True)
        for index, part in enumerate(answer.parts)
    ]
    return {
        "id": "resp_scripted",
        "object": "response",
        "created_at": 1700000000,
        "model": request.get("model"),
        "status": state,
        "error": None,
        "incomplete_details": {"reason": reasons.get(finish, finish)} if state == "incomplete" else None,
        "output": output if done else [],
        "usage": None
        if usage is None
        else {
            "input_tokens": usage["input"] + usage["cache_read"] + usage["cache_write"],
            "input_tokens_details": {"cached_tokens": usage["cache_read"]},
            "output_tokens": usage["output"] + usage["reasoning"],
            "output_tokens_details": {"reasoning_tokens": usage["reasoning"]},
            "total_tokens": sum(usage.values()),
        },
    }


def _responses_state(answer: Answer) -> str:
    return "completed" if finish_of(answer) in ("stop", "tool_calls") else "incomplete"


def _responses_part(
    part: Say | Think | Call, index: int, key: str, answer: Answer
) -> Iterator[dict[str, Any]]:
    item = _responses_item(part, key, is_done=False)
    at = {"item_id": item["id"], "output_index": index}
    yield {"type": "response.output_item.added", "output_index": index, "item": item}
    if isinstance(part, Say):
        at["content_index"] = 0
        empty = {"type": "output_text", "text": "", "annotations": []}
        yield {"type": "response.content_part.added", **at, "part": empty}
        for piece in _pieces(part.text, answer):
            yield {"type": "response.output_text.delta", **at, "delta": piece}
        yield {"type": "response.output_text.done", **at, "text": part.text}
        yield {"type": "response.content_part.done", **at, "part": {**empty, "text": part.text}}
    elif isinstance(part, Think):
        at["summary_index"] = 0
        yield {
            "type": "response.reasoning_summary_part.added",
            **at,
            "part": {"type": "summary_text", "text": ""},
        }
        for piece in _pieces(part.text, answer):
            yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **at, "text": part.text}
    else:
        for piece in _pieces(arguments_text(part), answer):
            yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
        yield {"type": "response.function_call_arguments.done", **at, "arguments": arguments_text(part)}
    yield {
        "type": "response.output_item.done",
        "output_index": index,
        "item": _responses_item(part, key, is_done=True),
    }


def _responses(answer: Answer, request: dict[str, Any]) -> Iterator[bytes]:
    facts: list[dict[str, Any]] = [
        {"type": "response.created", "response": _responses_object(answer, request, "in_progress")},
        {"type": "response.in_progress", "response": _responses_object(answer, request, "in_progress")},
    ]
    for index, part in enumerate(answer.parts):
        facts.extend(_responses_part(part, index, _item_key(request, index), answer))
    if answer.error:
        kind, text = answer.error
        failed = _responses_object(answer, request, "failed")
        facts.append(
            {"type": "response.failed", "response": {**failed, "error": {"code": kind, "message": text}}}
        )
    else:
        state = _responses_state(answer)
        facts.append({"type": f"response.{state}", "response": _responses_object(answer, request, state)})
    for number, fact in enumerate(facts):
        yield _sse({**fact, "sequence_number": number}, fact["type"])


def _responses_body(answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    return _responses_object(answer, request, _responses_state(answer))
