"""Codex's rollouts: what was sent to the model and came back, one item a line.

Items are the truth, events are not; what the program itself says to the model
(developer messages, the environment) is left out.  The newest compaction
replaces what stands before it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from msgspec import structs

from mcode_exec.importers import losses as lost
from mcode_exec.importers.building import Item, Transcript
from mcode_exec.importers.json_lines import modified_ms, open_lines, read_lines, state_of
from mcode_exec.importers.source import Unusable
from mcode_exec.importers.values import (
    UnreadableError,
    bytes_of_data_url,
    count_of,
    list_of,
    moment_of,
    object_of,
    read_object,
    text_of,
)
from mcode_exec.records.history import Block, FileBlock, ImageBlock, StepMeta
from mcode_exec.records.imported import ForeignSession
from mcode_exec.records.usage import Usage

_NAME = re.compile(r"rollout-.*-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl")
#: beginnings of user items that the program writes itself
_CONTEXT = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>")
#: items that say nothing to a model
_SILENT = frozenset(("compaction", "ghost_snapshot"))
_ARCHIVED = "archived_sessions"


class CodexRollout:
    """One `rollout-….jsonl`."""

    kind = "codex rollout"

    def __init__(self, path: str) -> None:
        """Raises: UnusableSourceError."""
        self.path = path
        self._file: BinaryIO = open_lines(path)
        #: number of the line with the newest compaction
        self._compacted_at: int | None = None
        self._provider_id = "openai"
        self._has_usage_records = False

    def close(self) -> None:
        self._file.close()

    def sessions(self) -> Iterator[ForeignSession | Unusable]:
        fingerprint = state_of(self.path)
        meta: dict[str, Any] = {}
        newest_ms: int | None = None
        for number, (_, line) in enumerate(read_lines(self._file)):
            if line is None:
                continue
            kind = text_of(line.get("type"))
            newest_ms = moment_of(line.get("timestamp")) or newest_ms
            if kind == "session_meta" and not meta:
                meta = object_of(line.get("payload"))
            elif kind is None and number == 0:
                meta = line
            elif kind == "compacted":
                self._compacted_at = number
            elif kind == "token_usage_record":
                self._has_usage_records = True
        found = _NAME.fullmatch(os.path.basename(self.path))
        source_id = found[1] if found else text_of(meta.get("id")) or text_of(meta.get("session_id"))
        if source_id is None:
            yield Unusable(
                origin="codex",
                source_id=os.path.basename(self.path),
                source=self.path,
                why="it does not say which session it is",
            )
            return
        self._provider_id = text_of(meta.get("model_provider")) or "openai"
        created_ms = moment_of(meta.get("timestamp")) or newest_ms or modified_ms(self.path)
        is_archived = f"/{_ARCHIVED}/" in self.path
        updated_ms = max(newest_ms or created_ms, created_ms)
        yield ForeignSession(
            origin="codex",
            source_id=source_id,
            source=self.path,
            workspace=text_of(meta.get("cwd")),
            created_ms=created_ms,
            updated_ms=updated_ms,
            fingerprint=fingerprint,
            archived_ms=updated_ms if is_archived else None,
            version=text_of(meta.get("cli_version")),
        )

    def items(self, session: ForeignSession, transcript: Transcript) -> Iterator[Item]:
        reading = _Reading(transcript, self._provider_id, has_usage_records=self._has_usage_records)
        for number, (_, line) in enumerate(read_lines(self._file)):
            if line is None:
                transcript.losses.count(lost.UNREADABLE)
                continue
            payload = line.get("payload")
            at_ms = moment_of(line.get("timestamp")) or session.created_ms
            if isinstance(payload, dict):
                yield from reading.line(number, str(line.get("type")), payload, at_ms, self._compacted_at)
            elif number and line.get("type"):  # old versions wrote items bare
                yield from reading.item(f"line {number}", line, at_ms)
        yield from transcript.flush()


class _Reading:
    """One pass over a rollout."""

    def __init__(self, transcript: Transcript, provider_id: str, *, has_usage_records: bool) -> None:
        self._transcript = transcript
        self._provider_id = provider_id
        self._has_usage_records = has_usage_records
        self._model_id: str | None = None
        #: what the answer is called that is being put together: Codex does not say which items are of one
        self._key = ""

    def line(
        self, number: int, kind: str, payload: dict[str, Any], at_ms: int, compacted_at: int | None
    ) -> Iterator[Item]:
        if kind == "response_item":
            yield from self.item(f"line {number}", payload, at_ms)
        elif kind == "turn_context":
            self._model_id = text_of(payload.get("model")) or self._model_id
        elif kind == "token_usage_record":
            self._bill(payload.get("usage"))
        elif kind == "event_msg":
            if payload.get("type") == "token_count" and not self._has_usage_records:
                self._bill(object_of(payload.get("info")).get("last_token_usage"))
        elif kind == "compacted" and number == compacted_at:
            yield from self._compacted(number, payload, at_ms)

    def item(self, key: str, item: dict[str, Any], at_ms: int) -> Iterator[Item]:
        kind = text_of(item.get("type"))
        transcript = self._transcript
        if kind == "message":
            yield from self._message(key, item, at_ms)
        elif kind == "reasoning":
            text = "\n\n".join(_texts(item.get("summary")) or _texts(item.get("content")))
            yield from transcript.answer(self._answer(key), at_ms, transcript.thinking(text), self._meta())
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            yield from self._call(key, kind, item, at_ms)
        elif kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
            self._result(item, at_ms)
        elif kind not in _SILENT:
            transcript.losses.count(lost.UNSUPPORTED_PART)

    def _answer(self, key: str) -> str:
        """The key of the answer that goes on, or of a new one."""
        if self._transcript.open_key is None or self._transcript.open_key != self._key:
            self._key = key
        return self._key

    def _meta(self) -> StepMeta:
        billed = self._transcript.open_meta
        meta = StepMeta(provider_id=self._provider_id, model_id=self._model_id)
        return meta if billed is None else structs.replace(meta, usage=billed.usage)

    def _message(self, key: str, item: dict[str, Any], at_ms: int) -> Iterator[Item]:
        role = item.get("role")
        transcript = self._transcript
        if role == "assistant":
            for text in _texts(item.get("content")):
                yield from transcript.answer(self._answer(key), at_ms, transcript.text(text), self._meta())
        elif role == "user":
            blocks = list(self._said(item.get("content")))
            if blocks:
                yield from transcript.user(key, at_ms, blocks)
        elif role not in ("developer", "system"):
            transcript.losses.count(lost.UNKNOWN_ROLE)

    def _said(self, content: Any) -> Iterator[Block | None]:
        for one in list_of(content):
            part = object_of(one)
            kind = text_of(part.get("type"))
            text = text_of(part.get("text"))
            if kind == "input_text" and text is not None:
                if not text.lstrip().startswith(_CONTEXT):
                    yield self._transcript.text(text)
            elif kind == "input_image":
                yield self._image(part)
            else:
                self._transcript.losses.count(lost.UNSUPPORTED_PART)

    def _image(self, part: dict[str, Any]) -> Block:
        found = bytes_of_data_url(text_of(part.get("image_url")) or "")
        return self._transcript.attachment(None if found is None else found[1], None, "an image")

    def _call(self, key: str, kind: str, item: dict[str, Any], at_ms: int) -> Iterator[Item]:
        call_key = text_of(item.get("call_id")) or text_of(item.get("id")) or key
        arguments: Any
        if kind == "function_call":
            name, arguments = text_of(item.get("name")) or "unknown", item.get("arguments")
            if isinstance(arguments, str):
                try:
                    arguments = read_object(arguments or "{}")
                except UnreadableError:
                    pass  # kept as it came
        elif kind == "custom_tool_call":
            name, arguments = text_of(item.get("name")) or "unknown", {"input": item.get("input")}
        else:
            name, arguments = "local_shell", object_of(item.get("action"))
        yield from self._transcript.call(self._answer(key), at_ms, call_key, name, arguments, self._meta())

    def _result(self, item: dict[str, Any], at_ms: int) -> None:
        output = item.get("output")
        is_error = False
        if isinstance(output, dict):
            is_error = output.get("success") is False
            output = output.get("content")
        text = output if isinstance(output, str) else "\n".join(_texts(output))
        images: list[ImageBlock | FileBlock] = []
        for one in list_of(output):
            part = object_of(one)
            if part.get("type") == "input_image":
                kept = self._image(part)
                if isinstance(kept, ImageBlock | FileBlock):
                    images.append(kept)
        self._transcript.result(
            text_of(item.get("call_id")) or "", text, is_error=is_error, at_ms=at_ms, images=images
        )

    def _bill(self, usage: Any) -> None:
        found = _usage(usage)
        meta = self._transcript.open_meta
        if found is not None and meta is not None:
            self._transcript.bill(structs.replace(meta, usage=found))

    def _compacted(self, number: int, payload: dict[str, Any], at_ms: int) -> Iterator[Item]:
        transcript = self._transcript
        kept: list[Block | None] = []
        for one in list_of(payload.get("replacement_history")):
            item = object_of(one)
            if item.get("type") == "message" and item.get("role") == "user":
                kept += [
                    transcript.text(block.text, synthetic=True)
                    for block in self._said(item.get("content"))
                    if block is not None and hasattr(block, "text")
                ]
        message = text_of(payload.get("message"))
        if message:
            yield from transcript.summary(f"line {number}", at_ms, message)
        else:
            yield from transcript.boundary()
        if any(block is not None for block in kept):
            yield from transcript.user(f"line {number}/kept", at_ms, kept)


def _texts(content: Any) -> list[str]:
    return [text for one in list_of(content) if (text := text_of(object_of(one).get("text"))) is not None]


def _usage(usage: Any) -> Usage | None:
    """Codex counts cached tokens as input and reasoning as output; our classes are disjoint."""
    if not isinstance(usage, dict):
        return None
    given, cached = count_of(usage.get("input_tokens")), count_of(usage.get("cached_input_tokens")) or 0
    written = count_of(usage.get("cache_write_input_tokens")) or 0
    made, reasoned = count_of(usage.get("output_tokens")), count_of(usage.get("reasoning_output_tokens")) or 0
    return Usage(
        input_tokens=None if given is None else max(given - cached - written, 0),
        output_tokens=None if made is None else max(made - reasoned, 0),
        reasoning_tokens=reasoned,
        cache_read_tokens=cached,
        cache_write_tokens=written,
    )
