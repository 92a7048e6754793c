"""Messages and parts of OpenCode, the form that its JSON trees, its database and its exports share.

A step is one answer: text that follows calls belongs to the next one.  Step,
snapshot and patch scaffolding says nothing to a model and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import structs

from mcode_exec.importers import losses as lost
from mcode_exec.importers.building import Item, Transcript
from mcode_exec.importers.values import (
    bytes_of_data_url,
    cost_of,
    count_of,
    list_of,
    moment_of,
    object_of,
    text_of,
)
from mcode_exec.records.history import INTERRUPTED, Block, FileBlock, ImageBlock, StepMeta
from mcode_exec.records.usage import Usage

#: what a request for a recap is said as
RECAP = "What have we done so far? Give a recap from which the work can go on."
_SCAFFOLDING = frozenset(("step-start", "step-finish", "snapshot", "patch", "agent", "retry"))
_CLEARED = "(the output of this earlier call was cleared)"

#: (part id, part)
Parts = Iterable[tuple[str, dict[str, Any]]]


class Cut:
    """Where in a session its newest compaction begins what a model still sees, and what was taken back."""

    def __init__(self, starts_at: str | None = None, reverted_from: str | None = None) -> None:
        #: message id; None: nothing was compacted
        self.starts_at = starts_at
        #: message id; it and all after it were taken back
        self.reverted_from = reverted_from


def is_finished_summary(message: dict[str, Any]) -> bool:
    """Whether an assistant message is the summary of a compaction that came to its end."""
    return message.get("summary") is True and message.get("finish") is not None and not message.get("error")


def tail_start(parts: Parts) -> str | None:
    """The message from which a compaction keeps everything as it is, if it says one."""
    return next(
        (text_of(part.get("tail_start_id")) for _, part in parts if part.get("type") == "compaction"), None
    )


def items_of(
    messages: Iterable[tuple[str, int, dict[str, Any], Parts]], cut: Cut, transcript: Transcript
) -> Iterator[Item]:
    """What (id, creation time, message, parts) say, in their order."""
    is_reverted = False
    for message_id, at_ms, message, parts in messages:
        if message_id == cut.starts_at:
            yield from transcript.boundary()
        if message_id == cut.reverted_from:
            is_reverted = True
        if is_reverted:
            transcript.losses.count(lost.REVERTED)
            continue
        role = message.get("role")
        if role == "user":
            yield from transcript.user(message_id, at_ms, _said(parts, transcript))
        elif role == "assistant":
            yield from _answered(message_id, at_ms, message, parts, transcript)
        else:
            transcript.losses.count(lost.UNKNOWN_ROLE)
    yield from transcript.flush()


def _said(parts: Parts, transcript: Transcript) -> Iterator[Block | None]:
    for _, part in parts:
        kind = text_of(part.get("type"))
        if kind == "text":
            if part.get("ignored") is not True:
                yield transcript.text(part.get("text"), synthetic=part.get("synthetic") is True)
        elif kind == "file":
            yield _file(part, transcript)
        elif kind == "compaction":
            yield transcript.text(RECAP, synthetic=True)
        elif kind == "subtask":
            yield transcript.text(part.get("prompt"))
        elif kind not in _SCAFFOLDING:
            transcript.losses.count(lost.UNSUPPORTED_PART)


def _file(part: dict[str, Any], transcript: Transcript) -> Block | None:
    """A file part: its bytes if they are in it; a path is not followed, whatever it says."""
    mime, url = text_of(part.get("mime")), text_of(part.get("url")) or ""
    if mime is not None and mime.startswith("text/") and not url.startswith("data:"):
        return None  # its text, as far as the model saw it, stands in a part of its own
    found = bytes_of_data_url(url)
    return transcript.attachment(None if found is None else found[1], text_of(part.get("filename")), mime)


def _answered(
    message_id: str, at_ms: int, message: dict[str, Any], parts: Parts, transcript: Transcript
) -> Iterator[Item]:
    meta = meta_of(message)
    provider_id = meta.provider_id
    unbilled = structs.replace(meta, usage=None, cost_usd=None, finish_reason=None)
    results: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    is_empty = True
    for part_id, part in parts:
        kind = text_of(part.get("type"))
        if kind == "tool":
            is_empty = False
            state = object_of(part.get("state"))
            call_key = text_of(part.get("callID")) or part_id
            name = text_of(part.get("tool")) or "unknown"
            yield from transcript.call(message_id, at_ms, call_key, name, state.get("input", {}), unbilled)
            results.append((call_key, state, part))
            continue
        if kind in ("text", "reasoning", "step-start", "file"):
            _settle(results, transcript)
        if kind == "text":
            if part.get("ignored") is not True:
                is_empty = False
                yield from transcript.answer(message_id, at_ms, transcript.text(part.get("text")), unbilled)
        elif kind == "reasoning":
            is_empty = False
            block = _thinking(part, provider_id, transcript)
            yield from transcript.answer(message_id, at_ms, block, unbilled)
        elif kind == "compaction" or kind not in _SCAFFOLDING:
            transcript.losses.count(lost.UNSUPPORTED_PART)
    _settle(results, transcript)
    if transcript.open_key == message_id:
        transcript.bill(meta)
    if is_empty:
        transcript.losses.count(lost.FAILED_ANSWER if message.get("error") else lost.EMPTY_MESSAGE)
    yield from transcript.flush()


def _thinking(part: dict[str, Any], provider_id: str | None, transcript: Transcript) -> Block | None:
    signed = object_of(object_of(part.get("metadata")).get("anthropic"))
    return transcript.thinking(
        part.get("text"),
        signature=text_of(signed.get("signature")),
        encrypted=text_of(signed.get("redactedData")),
        provider_id=provider_id,
    )


def _settle(results: list[tuple[str, dict[str, Any], dict[str, Any]]], transcript: Transcript) -> None:
    """Give the calls of a step their results, now that all of them are known."""
    for call_key, state, _ in results:
        add_result(call_key, state, transcript)
    results.clear()


def add_result(call_key: str, state: dict[str, Any], transcript: Transcript) -> None:
    """The result that the state of a tool part holds."""
    status = state.get("status")
    time = object_of(state.get("time"))
    start, end = moment_of(time.get("start")), moment_of(time.get("end"))
    duration = end - start if start is not None and end is not None and end >= start else None
    title = text_of(state.get("title"))
    if status == "completed":
        output = text_of(state.get("output")) or ""
        if time.get("compacted"):
            transcript.losses.count(lost.CLEARED_OUTPUT)
            output = _CLEARED
        transcript.result(
            call_key, output, at_ms=end, duration_ms=duration, title=title,
            images=images_of(state.get("attachments"), transcript),
        )  # fmt: skip
    elif status == "error":
        transcript.result(
            call_key,
            text_of(state.get("error")) or "it failed",
            is_error=True,
            is_interrupted=object_of(state.get("metadata")).get("interrupted") is True,
            at_ms=end,
            duration_ms=duration,
            title=title,
        )
    else:
        transcript.result(call_key, INTERRUPTED, is_interrupted=True, title=title)


def images_of(attachments: Any, transcript: Transcript) -> Iterator[ImageBlock | FileBlock | None]:
    for part in list_of(attachments):
        block = _file(object_of(part), transcript)
        yield block if isinstance(block, ImageBlock | FileBlock) else None


def meta_of(message: dict[str, Any]) -> StepMeta:
    """What an assistant message says of its model, usage and cost, as it was stored."""
    model = object_of(message.get("model"))
    return StepMeta(
        provider_id=text_of(message.get("providerID")) or text_of(model.get("providerID")),
        model_id=text_of(message.get("modelID")) or text_of(model.get("modelID")) or text_of(model.get("id")),
        agent=text_of(message.get("agent")),
        finish_reason=text_of(message.get("finish")),
        usage=usage_of(message.get("tokens")),
        cost_usd=cost_of(message.get("cost")),
    )


def usage_of(tokens: Any) -> Usage | None:
    """Tokens in our classes; OpenCode's are disjoint like ours."""
    if not isinstance(tokens, dict):
        return None
    cache = object_of(tokens.get("cache"))
    return Usage(
        input_tokens=count_of(tokens.get("input")),
        output_tokens=count_of(tokens.get("output")),
        reasoning_tokens=count_of(tokens.get("reasoning")),
        cache_read_tokens=count_of(cache.get("read")),
        cache_write_tokens=count_of(cache.get("write")),
    )
