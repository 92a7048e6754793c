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

from mcode_exec.providers.assembly import CallPart, TextPart, ThinkingPart
from mcode_exec.providers.counting import merge_counts, messages_usage
from mcode_exec.providers.payload import (
    arguments_text,
    as_key,
    as_object,
    as_text,
    clean,
)
from mcode_exec.providers.payload import (
    encode as encode_json,
)
from mcode_exec.providers.think_tags import span
from mcode_exec.providers.transcript import (
    AssistantSide,
    Result,
    UserSide,
    exchanges,
    missing_note,
    tool_name,
)
from mcode_exec.providers.wire import AnswerReader, Endpoint, WireRequest
from mcode_exec.records.history import (
    FileBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mcode_exec.records.model import ModelRequest
from mcode_exec.records.usage import Usage

VERSION = "2023-06-01"
_CACHED = {"type": "ephemeral"}
#: breakpoints of the conversation: a request may hold four in all
_MOVING_MARKS = 2
_MIN_BUDGET = 1024
#: effort -> thinking budget, tokens
_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 12_000, "high": 24_000, "xhigh": 32_000, "max": 48_000}
#: levels that an adaptive Claude has another word for
_ADAPTIVE_WORDS = {"minimal": "low"}


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
    thinking = _thinking(request, limit)
    body.update(thinking)
    if request.temperature is not None and not thinking:
        body["temperature"] = request.temperature
    base = endpoint.base_url.rstrip("/")
    path = "/messages" if base.endswith("/v1") else "/v1/messages"
    return WireRequest(path, [("anthropic-version", VERSION)], encode_json(body))


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
    version = _adaptive_version(request.model.ref.model_id)
    if version is not None:
        word = _ADAPTIVE_WORDS.get(effort, effort)
        if word == "xhigh" and version < (4, 7):
            word = "high"
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": word}}
    budget = min(_BUDGETS[effort], limit - 1024)
    if budget < _MIN_BUDGET:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _adaptive_version(model_id: str) -> tuple[int, ...] | None:
    """The version of a Claude that chooses its budget itself and takes an effort: from 4.6 on."""
    if not model_id.startswith("claude-"):
        return None
    numbers = [
        int(part) for part in model_id.split("-") if part.isascii() and part.isdigit() and len(part) < 4
    ]
    version = tuple(numbers[:2])
    return version if version >= (4, 6) else None


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


class Reader(AnswerReader):
    """Complete with `message_stop`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._blocks: dict[Any, TextPart | ThinkingPart | CallPart | None] = {}
        self._inputs: dict[Any, Any] = {}
        #: what a block began with, until it is known whether its first delta says it once more (MiniMax)
        self._begun: dict[Any, str] = {}

    def take(self, kind: str, value: dict[str, Any]) -> bool:
        if value.get("error"):
            self.fail(value)
        return self._take(kind, value)

    def feed_body(self, body: dict[str, Any]) -> bool:
        self.check(body)
        if not isinstance(body.get("content"), list):
            return False
        self._take("message_start", {"message": {"usage": body.get("usage")}})
        for index, block in enumerate(body["content"]):
            self._take("content_block_start", {"index": index, "content_block": block})
            self._take("content_block_stop", {"index": index})
        self._take("message_delta", {"delta": {"stop_reason": body.get("stop_reason")}})
        self._take("message_stop", {})
        return True

    def _take(self, kind: Any, value: dict[str, Any]) -> bool:
        index = as_key(value.get("index"))
        if kind == "content_block_delta":
            self._grow(index, as_object(value.get("delta")))
        elif kind == "content_block_start":
            self._open(index, as_object(value.get("content_block")))
        elif kind == "content_block_stop":
            self._close(index)
        elif kind == "message_start":
            merge_counts(self.counts, as_object(value.get("message")).get("usage"))
        elif kind == "message_delta":
            merge_counts(self.counts, value.get("usage"))
            self.label = as_text(as_object(value.get("delta")).get("stop_reason")) or self.label
        elif kind == "message_stop":
            self.is_complete = self.is_terminal = True
        else:
            return False
        return True

    def _open(self, index: Any, block: dict[str, Any]) -> None:
        if index in self._blocks:  # an end that never came
            self._close(index)
        kind = block.get("type")
        if kind == "text":
            self._blocks[index] = TextPart()
            self._begin(index, as_text(block.get("text")))
        elif kind in ("thinking", "redacted_thinking"):
            part = self._blocks[index] = ThinkingPart("thinking")
            if kind == "redacted_thinking":
                part.encrypted = as_text(block.get("data"))
                self.draft.place(part)
            self._begin(index, as_text(block.get("thinking")))
            self._sign(part, as_text(block.get("signature")))
        elif kind == "tool_use":
            call = self._blocks[index] = CallPart(as_text(block.get("id")))
            call.name = as_text(block.get("name"))
            self._inputs[index] = block.get("input")
            self.draft.add_arguments(call, "")
        else:
            self._blocks[index] = None

    def _begin(self, index: Any, text: str) -> None:
        if text:
            self._begun[index] = text

    def _say_begun(self, index: Any, part: TextPart | ThinkingPart, piece: str) -> None:
        """Say what a block began with, unless `piece`, which follows, says it once more."""
        begun = self._begun.pop(index)
        if piece.startswith(begun):
            return
        if isinstance(part, TextPart):
            self.draft.add_text(begun)
        else:
            self.draft.think(part, begun)

    def _sign(self, part: ThinkingPart, signature: str) -> None:
        if signature and part.signatures != [signature]:
            part.signatures.append(signature)
            self.draft.place(part)

    def _grow(self, index: Any, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        if index not in self._blocks:  # a start that never came
            self._open(index, _BLOCK_OF_DELTA.get(str(kind), {}))
        part = self._blocks[index]
        if isinstance(part, TextPart):
            text = as_text(delta.get("text"))
            if self._begun and index in self._begun:
                self._say_begun(index, part, text)
            self.draft.add_text(text)
        elif isinstance(part, ThinkingPart):
            text = as_text(delta.get("thinking"))
            if self._begun and index in self._begun:
                self._say_begun(index, part, text)
            self.draft.think(part, text)
            self._sign(part, as_text(delta.get("signature")))
        elif isinstance(part, CallPart):
            self.draft.add_arguments(part, as_text(delta.get("partial_json")))

    def _close(self, index: Any) -> None:
        part = self._blocks.pop(index, None)
        given = self._inputs.pop(index, None)
        if index in self._begun and isinstance(part, TextPart | ThinkingPart):
            self._say_begun(index, part, "")
        if isinstance(part, TextPart):
            self.draft.end_text()
        elif isinstance(part, CallPart) and given and not part.arguments_text.strip():
            self.draft.add_arguments(part, arguments_text(given))

    def finish(self) -> Any:
        for index in list(self._blocks):
            self._close(index)
        return super().finish()

    def usage(self) -> Usage:
        return messages_usage(self.counts)


_BLOCK_OF_DELTA = {
    "text_delta": {"type": "text"},
    "thinking_delta": {"type": "thinking"},
    "input_json_delta": {"type": "tool_use"},
}
