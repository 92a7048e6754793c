"""Answers of the chat completions format: chunks of choices, whatever order and form their pieces have.

Complete with a finish reason or `[DONE]`, whichever comes.
"""

from __future__ import annotations

from typing import Any

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.assembly import CallPart, ThinkingPart, check_count
from mcode_exec.providers.counting import chat_usage, merge_counts
from mcode_exec.providers.payload import (
    arguments_text,
    as_list,
    as_object,
    as_text,
    parse_arguments,
)
from mcode_exec.providers.payload import (
    encode as encode_json,
)
from mcode_exec.providers.wire import AnswerReader
from mcode_exec.records.usage import Usage

#: what a delta may hold beside `content`; most hold none of it
_BESIDE_CONTENT = frozenset(
    ("reasoning", "reasoning_content", "reasoning_details", "refusal", "tool_calls", "function_call")
)


class Reader(AnswerReader):
    """Complete with a finish reason or `[DONE]`, whichever comes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._calls: list[CallPart] = []
        self._by_index: dict[int, CallPart] = {}
        #: each with its texts, which come in pieces
        self._details: list[tuple[dict[str, Any], dict[str, list[str]]]] = []
        self._details_part: ThinkingPart | None = None

    def take(self, kind: str, value: dict[str, Any]) -> bool:
        self._take(value, "delta")
        # chunks have no type; what has neither choices nor usage tells nothing of an answer
        return "choices" in value or ("usage" in value and "type" not in value)

    def brings(self, kind: str, value: dict[str, Any]) -> bool:
        if self.has_new_counts():
            return True
        choices = value.get("choices")
        if not self.events:
            # what begins the answer is empty; what Azure's filters say of the prompt stands even before it
            return bool(choices) or "prompt_filter_results" in value
        return any(_is_saying(choice) for choice in as_list(choices))

    def take_done(self) -> bool:
        self.is_complete = self.is_terminal = True
        return True

    def feed_body(self, body: dict[str, Any]) -> bool:
        self.check(body)
        if "choices" not in body:
            return False
        self._take(body, "message")
        self.is_complete = self.is_terminal = True
        return True

    def _take(self, chunk: dict[str, Any], key: str) -> None:
        if "error" in chunk or "base_resp" in chunk or chunk.get("object") == "error":
            self.check(chunk)
        was_complete = self.is_complete
        choices = as_list(chunk.get("choices"))
        for choice in choices:
            if not isinstance(choice, dict) or choice.get("index"):
                continue
            if choice.get("error"):
                self.fail(choice, chunk.get("usage"))
            if isinstance(choice.get("text"), str) and "delta" not in choice and "message" not in choice:
                raise _older_format()
            delta = choice.get(key)
            if not isinstance(delta, dict):
                # MiniMax says the whole message once more when all of it has been told
                delta = as_object(choice.get("message")) if self.draft.is_empty else {}
            if "message" in choice and not self.draft.is_empty and _repeats(delta, choice["message"]):
                delta = {}  # the same in the delta's place
            if delta:
                self._take_delta(delta)
            label = choice.get("finish_reason")
            if label and isinstance(label, str):
                self.label = label
                self.is_complete = True
                merge_counts(self.counts, choice.get("usage"))  # as Moonshot counts
        if "usage" in chunk and isinstance(chunk["usage"], dict):
            merge_counts(self.counts, chunk["usage"])
            # a usage chunk of its own after the finish reason is the last word
            self.is_terminal = was_complete and not choices
        if "x_groq" in chunk:
            merge_counts(self.counts, as_object(chunk["x_groq"]).get("usage"))

    def _take_delta(self, delta: dict[str, Any]) -> None:
        is_more = not _BESIDE_CONTENT.isdisjoint(delta)
        if is_more:
            self._take_reasoning(delta)
        content = delta.get("content")
        if isinstance(content, str):
            if content:
                self.draft.add_text(content)
        elif content:
            self._take_parts(as_list(content))
        if is_more:
            self._take_rest(delta)

    def _take_rest(self, delta: dict[str, Any]) -> None:
        if refusal := as_text(delta.get("refusal")):
            self.refusals.append(refusal)
        calls = as_list(delta.get("tool_calls"))
        if not calls and isinstance(delta.get("function_call"), dict):
            calls = [{"index": 0, "function": delta["function_call"]}]
        if calls:
            self._take_calls(calls)

    def _take_parts(self, parts: list[Any]) -> None:
        """Content in parts, as Mistral sends it."""
        for part in map(as_object, parts):
            if part.get("type") == "thinking":
                for piece in as_list(part.get("thinking")):
                    self.draft.add_thinking(as_text(as_object(piece).get("text")), "reasoning_content")
            else:
                self.draft.add_text(as_text(part.get("text")))

    def _take_reasoning(self, delta: dict[str, Any]) -> None:
        details = as_list(delta.get("reasoning_details"))
        if details:
            self._take_details(details)
        elif text := as_text(delta.get("reasoning_content")):
            self.draft.add_thinking(text, "reasoning_content")
        elif text := as_text(delta.get("reasoning")):
            self.draft.add_thinking(text, "reasoning")

    def _take_details(self, details: list[Any]) -> None:
        """Details are kept as they came, the pieces of one joined, and sent back whole."""
        if self._details_part is None:
            self._details_part = ThinkingPart("reasoning_details")
            self.draft.place(self._details_part)
        for detail in details:
            if not isinstance(detail, dict):
                continue
            last, texts = self._details[-1] if self._details else ({}, {})
            is_same = (
                last.get("type") == detail.get("type") and last.get("index") == detail.get("index")
            ) and detail.get("type") != "reasoning.encrypted"
            if not is_same:
                last, texts = {}, {}
                check_count(len(self._details))
                self._details.append((last, texts))
            for key, value in detail.items():
                if key in ("text", "summary") and isinstance(value, str):
                    last.setdefault(key, "")
                    texts.setdefault(key, []).append(value)
                elif value is not None or key not in last:
                    last[key] = value
            text = as_text(detail.get("text")) or as_text(detail.get("summary"))
            self.draft.think(self._details_part, text)

    def _take_calls(self, deltas: list[Any]) -> None:
        taken: list[CallPart] = []
        for delta in deltas:
            if not isinstance(delta, dict):
                continue
            function = as_object(delta.get("function"))
            name = as_text(function.get("name"))
            arguments = arguments_text(function.get("arguments"))
            call = self._call_of(delta, name, arguments, taken)
            taken.append(call)
            if name and not (call.name and call.pieces):
                _take_name(call, name)
            if isinstance(delta.get("extra_content"), dict) and call.index < 0:
                self._keep_extra(delta["extra_content"])
            if call.name or arguments:
                self.draft.add_arguments(call, arguments)

    def _keep_extra(self, extra: dict[str, Any]) -> None:
        """Gemini signs its calls, and wants the signature back with the call it stands before."""
        part = ThinkingPart("extra_content")
        part.encrypted = encode_json(extra).decode()
        self.draft.place(part)

    def _call_of(self, delta: dict[str, Any], name: str, arguments: str, taken: list[CallPart]) -> CallPart:
        """The call that a piece belongs to: a new id begins a new call, whatever the index says."""
        wire_id = as_text(delta.get("id"))
        index = delta.get("index")
        call: CallPart | None
        if isinstance(index, int) and not isinstance(index, bool):
            call = self._by_index.get(index)
            if call is not None and _begins_anew(call, wire_id, name, arguments):
                call = None
        elif wire_id:
            index = None
            call = next((c for c in reversed(self._calls) if c.wire_id == wire_id and c not in taken), None)
            if call is None and self._calls and not taken and _goes_on(self._calls[-1], name, arguments):
                call = self._calls[-1]
        else:
            index = None
            call = self._calls[-1] if self._calls and not name and not taken else None
        if call is None:
            check_count(len(self._calls))
            call = CallPart(wire_id)
            self._calls.append(call)
        elif wire_id and not call.wire_id:
            call.wire_id = wire_id
        if index is not None:
            self._by_index[index] = call
        return call

    def finish(self) -> Any:
        if self._details_part is not None:
            details = [
                detail | {key: "".join(pieces) for key, pieces in texts.items()}
                for detail, texts in self._details
            ]
            self._details_part.encrypted = encode_json(details).decode()
        for call in self._calls:  # a call with neither name nor arguments was one nevertheless
            if call.index < 0:
                self.draft.add_arguments(call, "")
        return super().finish()

    def usage(self) -> Usage:
        return chat_usage(self.counts)


def _take_name(call: CallPart, name: str) -> None:
    """A name may come whole, once more, grown by a piece, or in pieces: until the arguments begin."""
    if name.startswith(call.name):
        call.name = name
    else:
        call.name += name


def _is_saying(choice: Any) -> bool:
    """Whether there is more in a choice than its place, and who speaks."""
    if not isinstance(choice, dict):
        return False
    said = as_object(choice.get("delta")) or as_object(choice.get("message"))
    return bool(choice.get("finish_reason")) or any(value for key, value in said.items() if key != "role")


def _older_format() -> ModelCallError:
    """The API before chat completions, to which some base URLs lead."""
    return ModelCallError(
        "LLM_BAD_RESPONSE",
        "the provider answered in the format of text completions, which is another API than the "
        "chat completions that were asked for; is the base URL right?",
        http_status=200,
    )


def _repeats(delta: dict[str, Any], message: Any) -> bool:
    """Whether a delta is no piece but the whole message, as it stands beside it."""
    content = as_object(message).get("content")
    return bool(content) and delta.get("content") == content


def _begins_anew(call: CallPart, wire_id: str, name: str, arguments: str) -> bool:
    """Whether a piece at a call's index is another call after all."""
    if wire_id and call.wire_id:
        return wire_id != call.wire_id and not _goes_on(call, name, arguments)
    if not name or not call.name or not arguments or not call.pieces:
        return False
    return _is_whole(call)


def _goes_on(call: CallPart, name: str, arguments: str) -> bool:
    """Whether a piece with an id of its own is of the call before all the same: some give each piece a new one."""
    if not name:
        return bool(arguments) and bool(call.name) and not _is_whole(call)
    is_begin = not call.pieces or arguments.lstrip().startswith("{")
    return name == call.name and not is_begin and not _is_whole(call)


def _is_whole(call: CallPart) -> bool:
    if not call.pieces or not call.pieces[-1].rstrip().endswith("}"):
        return False  # those that repeat the name with every piece have it looked at once, not once a piece
    text = call.arguments_text
    return bool(text.strip()) and parse_arguments(text)[0] is not None
