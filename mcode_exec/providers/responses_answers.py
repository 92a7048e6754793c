"""Answers of the OpenAI responses format: items, told apart by their places, ids or order."""

from __future__ import annotations

from typing import Any

from mcode_exec.providers.assembly import CallPart, ThinkingPart
from mcode_exec.providers.counting import merge_counts, responses_usage
from mcode_exec.providers.endings import INCOMPLETE, ending_of
from mcode_exec.providers.payload import (
    arguments_text,
    as_key,
    as_list,
    as_object,
    as_text,
)
from mcode_exec.providers.wire import AnswerReader
from mcode_exec.records.usage import Usage

#: say that there is an answer, some servers again and again
_STATES = frozenset(("response.created", "response.queued", "response.in_progress"))

#: words of an item that is none
_UNFINISHED = ("incomplete", "failed", "cancelled")


class Reader(AnswerReader):
    """Complete with `response.completed` or `response.incomplete`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._items: dict[Any, ThinkingPart | CallPart] = {}
        #: the text that deltas brought of the message under way, and of its part under way
        self._said: list[str] = []
        self._part: list[str] = []
        #: the items that were opened and that are whole, as they came
        self._opened: dict[Any, dict[str, Any]] = {}
        self._done: dict[Any, dict[str, Any]] = {}
        #: types of the items of which something was told
        self._told: set[str] = set()
        self._told_states: set[str] = set()
        self._key_of_id: dict[Any, int | str] = {}

    def take(self, kind: str, value: dict[str, Any]) -> bool:
        is_ours = kind.startswith("response.")
        if value.get("error") and not is_ours:
            self.fail(value)
        self._take(kind, value)
        return is_ours

    def brings(self, kind: str, value: dict[str, Any]) -> bool:
        if kind.endswith(".delta"):
            return not self.events or bool(value.get("delta"))
        if kind not in _STATES:
            return True
        told = len(self._told_states)
        self._told_states.add(kind)
        return len(self._told_states) > told

    def feed_body(self, body: dict[str, Any]) -> bool:
        self.check(body)
        if not isinstance(body.get("output"), list):
            return False
        self._complete(body, is_incomplete=body.get("status") in ("in_progress", "queued"))
        return True

    def _take(self, kind: str, value: dict[str, Any]) -> None:
        if kind == "response.output_text.delta":
            self._say(as_text(value.get("delta")))
            return
        if kind == "response.output_text.done":
            self._say(_rest("".join(self._part), as_text(value.get("text"))))
            self._part = []
            return
        key = self._key(value)
        if kind == "response.function_call_arguments.delta":
            self.draft.add_arguments(self._call(key), arguments_text(value.get("delta")))
        elif kind == "response.function_call_arguments.done":
            self._give_arguments(self._call(key), value)
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self.draft.think(self._thinking(key), as_text(value.get("delta")))
        elif kind == "response.reasoning_summary_part.added" and value.get("summary_index"):
            self.draft.think(self._thinking(key), "\n\n")
        elif kind == "response.refusal.delta":
            self.refusals.append(as_text(value.get("delta")))
        elif kind == "response.output_item.added":
            self._open(key, as_object(value.get("item")))
        elif kind == "response.output_item.done":
            self._finish_item(key, as_object(value.get("item")))
        elif kind == "response.completed":
            self._complete(as_object(value.get("response")))
        elif kind == "response.incomplete":
            self._complete(as_object(value.get("response")), is_incomplete=True)
        elif kind in ("response.failed", "response.cancelled"):
            self._fail_response(as_object(value.get("response")))

    def _say(self, text: str) -> None:
        self._said.append(text)
        self._part.append(text)
        self.draft.add_text(text)

    def _key(self, value: dict[str, Any]) -> int | str | None:
        """What an event's item is known by: its position, else its id (some servers send no position)."""
        item_id = as_key(value.get("item_id")) or as_key(as_object(value.get("item")).get("id"))
        index = as_key(value.get("output_index"))
        if index is None:
            return self._key_of_id.get(item_id, item_id)
        self._key_of_id[item_id] = index
        return index

    def _call(self, key: Any) -> CallPart:
        part = self._items.get(key)
        if not isinstance(part, CallPart):
            part = self._items[key] = CallPart()
        return part

    def _thinking(self, key: Any) -> ThinkingPart:
        part = self._items.get(key)
        if not isinstance(part, ThinkingPart):
            part = self._items[key] = ThinkingPart("responses")
        return part

    def _open(self, key: Any, item: dict[str, Any]) -> None:
        if key in self._done or self._opened.get(key, item) != item:
            self._forget(key)
        self._opened[key] = item
        kind = item.get("type")
        if kind == "function_call":
            call = self._call(key)
            call.name = as_text(item.get("name")) or call.name
            call.wire_id = as_text(item.get("call_id"))
            self.draft.add_arguments(call, "")
        elif kind == "reasoning":
            self.draft.place(self._thinking(key))

    def _forget(self, key: Any) -> None:
        """Another item has the place of one before it, as gateways number them."""
        for known in (self._items, self._opened, self._done):
            known.pop(key, None)

    def _give_arguments(self, call: CallPart, whole: dict[str, Any]) -> None:
        """What is told whole completes the deltas; they were told, and stand where it goes otherwise."""
        text = arguments_text(whole.get("arguments"))
        self.draft.add_arguments(call, _rest(call.arguments_text, text))

    def _finish_item(self, key: Any, item: dict[str, Any]) -> None:
        """Take from the whole item what its deltas did not bring."""
        before = self._done.get(key)
        if before is not None:
            if before == item or (before.get("id") and before.get("id") == item.get("id")):
                return
            self._forget(key)
        self._done[key] = item
        kind = item.get("type")
        self._told.add(as_text(kind))
        if kind == "function_call":
            call = self._call(key)
            call.name = as_text(item.get("name")) or call.name
            self._give_arguments(call, item)
        elif kind == "reasoning":
            self._finish_reasoning(self._thinking(key), item)
        elif kind == "message":
            self._finish_message(item)

    def _finish_reasoning(self, part: ThinkingPart, item: dict[str, Any]) -> None:
        texts = [as_text(as_object(piece).get("text")) for piece in as_list(item.get("summary"))]
        texts = texts or [as_text(as_object(piece).get("text")) for piece in as_list(item.get("content"))]
        self.draft.think(part, _rest("".join(part.pieces), "\n\n".join(texts)))
        part.encrypted = as_text(item.get("encrypted_content")) or None
        part.signatures = [as_text(item.get("id"))]
        if part.encrypted or part.pieces:
            self.draft.place(part)

    def _finish_message(self, item: dict[str, Any]) -> None:
        # messages come one after another, and some servers give their deltas no name
        said, self._said, self._part = "".join(self._said), [], []
        contents = [as_object(content) for content in as_list(item.get("content"))]
        whole = "".join(
            as_text(content.get("text")) for content in contents if content.get("type") == "output_text"
        )
        self.draft.add_text(_rest(said, whole))
        for content in contents:
            if content.get("type") == "refusal" and not any(self.refusals):
                self.refusals.append(as_text(content.get("refusal")))
        self.draft.end_text()

    def _complete(self, response: dict[str, Any], *, is_incomplete: bool = False) -> None:
        self._take_untold(as_list(response.get("output")))
        merge_counts(self.counts, response.get("usage"))
        status = as_text(response.get("status")) or "completed"
        if status in ("failed", "cancelled"):
            self._fail_response(response)
        reason = as_text(as_object(response.get("incomplete_details")).get("reason"))
        self.label = reason or status
        if (is_incomplete or status == "incomplete") and ending_of(reason or None) in ("stop", "unknown"):
            self.label = (
                f"{INCOMPLETE}: {reason or 'no reason was given'}"  # a limit is one, this is none we know
            )
        elif not is_incomplete and self._is_cut_off(as_list(response.get("output"))):
            self.label = f"{INCOMPLETE}: an item of the answer was not finished"
        self.is_complete = self.is_terminal = True

    def _is_cut_off(self, output: list[Any]) -> bool:
        """Whether a call or a message says of itself that it is none, whatever is said of the whole."""
        items = [*self._done.values(), *map(as_object, output)]
        return any(
            as_text(item.get("status")).lower() in _UNFINISHED
            and item.get("type") in ("function_call", "message")
            for item in items
        )

    def _take_untold(self, output: list[Any]) -> None:
        """What the stream did not bring: items of types that it told nothing of, and the ends of those it left open."""
        told = {
            "function_call" if isinstance(part, CallPart) else "reasoning" for part in self._items.values()
        }
        told |= self._told
        if self._said:
            told.add("message")
        for position, item in enumerate(map(as_object, output)):
            kind = as_text(item.get("type"))
            if kind not in told:
                self._finish_item(("whole", position), item)
            elif kind == "message":
                if self._said:  # its end was not told
                    self._finish_message(item)
            else:
                key = self._key_of_id.get(as_key(item.get("id")), as_key(item.get("id")))
                if key is not None and key in self._items and key not in self._done:
                    self._finish_item(key, item)

    def _fail_response(self, response: dict[str, Any]) -> None:
        error = response.get("error") or {"message": "the response failed"}
        self.fail({"error": error}, response.get("usage"))

    def usage(self) -> Usage:
        return responses_usage(self.counts)


def _rest(told: str, whole: str) -> str:
    """What of a whole text is left to be told; nothing of one that goes otherwise than what was told."""
    return whole[len(told) :] if whole.startswith(told) else ""
