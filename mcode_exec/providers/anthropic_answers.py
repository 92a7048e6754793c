"""Answers of the Anthropic messages format: blocks that are begun, grow and end."""

from __future__ import annotations

from typing import Any

from mcode_exec.providers.assembly import CallPart, TextPart, ThinkingPart, check_count
from mcode_exec.providers.counting import merge_counts, messages_usage
from mcode_exec.providers.payload import (
    arguments_text,
    as_key,
    as_object,
    as_text,
)
from mcode_exec.providers.wire import AnswerReader
from mcode_exec.records.usage import Usage


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

    def brings(self, kind: str, value: dict[str, Any]) -> bool:
        if self.has_new_counts() or not self.events:
            return True
        if kind in ("content_block_delta", "message_delta"):
            delta = as_object(value.get("delta"))
            return any(said for key, said in delta.items() if key != "type")
        return kind != "message_start"

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
        check_count(len(self._blocks))
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
            self.draft.add_arguments(part, arguments_text(delta.get("partial_json")))

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
