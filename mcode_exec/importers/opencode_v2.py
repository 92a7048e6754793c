"""Messages of OpenCode's second session format: one row is one message, its content within.

A compaction that is complete holds its summary and what is kept as it was: the
rows before it are no longer sent to a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import structs

from mcode_exec.importers import losses as lost
from mcode_exec.importers.building import Item, Transcript
from mcode_exec.importers.opencode_messages import meta_of
from mcode_exec.importers.values import bytes_of_data_url, list_of, moment_of, object_of, text_of
from mcode_exec.records.history import INTERRUPTED, Block, FileBlock, ImageBlock

#: rows that say nothing to a model
_SILENT = frozenset(("agent-switched", "model-switched", "location-switched", "idle", "system"))


def items_of(rows: Iterable[tuple[str, str, int, dict[str, Any]]], transcript: Transcript) -> Iterator[Item]:
    """What (id, type, creation time, data) say, in their order."""
    for row_id, kind, moment, data in rows:
        at_ms = moment_of(object_of(data.get("time")).get("created")) or moment
        if kind == "user":
            yield from transcript.user(row_id, at_ms, _said(data, transcript))
        elif kind == "assistant":
            yield from _answered(row_id, at_ms, data, transcript)
        elif kind in ("synthetic", "skill"):
            text = transcript.text(data.get("text") or data.get("content"), synthetic=True)
            yield from transcript.user(row_id, at_ms, (text,))
        elif kind == "shell":
            yield from transcript.user(row_id, at_ms, (transcript.text(_shell(data), synthetic=True),))
        elif kind == "compaction":
            if data.get("status") == "completed":
                yield from transcript.summary(row_id, at_ms, _summary(data))
        elif kind not in _SILENT:
            transcript.losses.count(lost.UNSUPPORTED_PART)
    yield from transcript.flush()


def _said(data: dict[str, Any], transcript: Transcript) -> Iterator[Block | None]:
    yield transcript.text(data.get("text"))
    for file in list_of(data.get("files")):
        yield _file(object_of(file), transcript)


def _file(file: dict[str, Any], transcript: Transcript) -> Block:
    url = text_of(file.get("uri")) or text_of(file.get("url")) or text_of(file.get("data")) or ""
    found = bytes_of_data_url(url)
    name = text_of(file.get("name")) or text_of(file.get("filename"))
    return transcript.attachment(None if found is None else found[1], name, text_of(file.get("mime")))


def _answered(row_id: str, at_ms: int, data: dict[str, Any], transcript: Transcript) -> Iterator[Item]:
    meta = meta_of(data)
    unbilled = structs.replace(meta, usage=None, cost_usd=None, finish_reason=None)
    results: list[tuple[str, dict[str, Any]]] = []
    is_empty = True
    for number, one in enumerate(list_of(data.get("content"))):
        part = object_of(one)
        kind = text_of(part.get("type"))
        if kind == "tool":
            is_empty = False
            state = object_of(part.get("state"))
            call_key = text_of(part.get("id")) or f"tool {number}"
            arguments = state.get("input", part.get("input", {}))
            yield from transcript.call(
                row_id, at_ms, call_key, text_of(part.get("name")) or "unknown", arguments, unbilled
            )
            results.append((call_key, state))
            continue
        _settle(results, transcript)
        if kind == "text":
            is_empty = False
            yield from transcript.answer(row_id, at_ms, transcript.text(part.get("text")), unbilled)
        elif kind == "reasoning":
            is_empty = False
            signed = object_of(
                object_of(part.get("providerMetadata") or part.get("metadata")).get("anthropic")
            )
            block = transcript.thinking(
                part.get("text"),
                signature=text_of(signed.get("signature")),
                encrypted=text_of(signed.get("redactedData")),
                provider_id=meta.provider_id,
            )
            yield from transcript.answer(row_id, at_ms, block, unbilled)
        else:
            transcript.losses.count(lost.UNSUPPORTED_PART)
    _settle(results, transcript)
    if transcript.open_key == row_id:
        transcript.bill(meta)
    if is_empty:
        transcript.losses.count(lost.FAILED_ANSWER if data.get("error") else lost.EMPTY_MESSAGE)
    yield from transcript.flush()


def _settle(results: list[tuple[str, dict[str, Any]]], transcript: Transcript) -> None:
    for call_key, state in results:
        status = state.get("status")
        if status == "completed":
            text, images = _content(state.get("content", state.get("output")), transcript)
            transcript.result(call_key, text, images=images)
        elif status == "error":
            error = state.get("error")
            message = text_of(error) or text_of(object_of(error).get("message"))
            text, _ = _content(state.get("content"), transcript)
            transcript.result(call_key, message or text or "it failed", is_error=True)
        else:
            transcript.result(call_key, INTERRUPTED, is_interrupted=True)
    results.clear()


def _content(content: Any, transcript: Transcript) -> tuple[str, list[ImageBlock | FileBlock]]:
    """Text and images of what a tool gave."""
    if isinstance(content, str):
        return content, []
    texts: list[str] = []
    images: list[ImageBlock | FileBlock] = []
    for one in list_of(content):
        part = object_of(one)
        text = text_of(part.get("text"))
        if text is not None:
            texts.append(text)
            continue
        block = _file(part, transcript)
        if isinstance(block, ImageBlock | FileBlock):
            images.append(block)
    return "\n".join(texts), images


def _shell(data: dict[str, Any]) -> str:
    command, output = text_of(data.get("command")) or "", text_of(data.get("output")) or ""
    return f"The user ran this command:\n{command}\n\nIt printed:\n{output}" if command else ""


def _summary(data: dict[str, Any]) -> str:
    """The summary, and behind it the newest words as they were kept."""
    recent = data.get("recent")
    kept = recent if isinstance(recent, str) else ""
    return "\n\n".join(text for text in (text_of(data.get("summary")) or "", kept) if text.strip())
