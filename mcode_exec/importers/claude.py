"""Claude Code's transcripts: lines that form a tree by `parentUuid`.

The conversation is the way from the newest leaf to the root.  Calls that ran
side by side hang beside that way: their lines are found by the message they
belong to, their results by the call.  A compaction begins a root of its own,
and says where it was logically cut off.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from msgspec import Struct

from mcode_exec.importers import losses as lost
from mcode_exec.importers.building import Boundary, Item, Transcript
from mcode_exec.importers.json_lines import modified_ms, open_lines, read_line_at, read_lines, state_of
from mcode_exec.importers.source import Unusable
from mcode_exec.importers.values import bytes_of_base64, count_of, list_of, moment_of, object_of, text_of
from mcode_exec.records.history import Block, FileBlock, ImageBlock, StepMeta
from mcode_exec.records.imported import ForeignSession
from mcode_exec.records.usage import Usage

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: who makes messages that no model said
_SYNTHETIC = "<synthetic>"


class _Node(Struct, gc=False):
    """One line of the tree: enough to find the way, nothing of what it says."""

    offset: int
    parent: str | None
    #: `user`, `assistant`, `boundary`, or `other` for what only links
    kind: str
    #: id of the API message that an assistant's line is a piece of
    message_id: str | None = None
    #: calls that a user's line answers
    answers: tuple[str, ...] = ()
    is_sidechain: bool = False


class _Read(Struct):
    """What one pass over the file has found."""

    nodes: dict[str, _Node]
    session_id: str | None = None
    workspace: str | None = None
    version: str | None = None
    title: str | None = None
    custom_title: str | None = None
    created_ms: int | None = None
    updated_ms: int | None = None
    leaf: str | None = None
    unreadable: int = 0


class ClaudeTranscript:
    """One `.jsonl` file of one session."""

    kind = "claude transcript"

    def __init__(self, path: str) -> None:
        """Raises: UnusableSourceError."""
        self.path = path
        self._file: BinaryIO = open_lines(path)
        self._read: _Read | None = None

    def close(self) -> None:
        self._file.close()

    def sessions(self) -> Iterator[ForeignSession | Unusable]:
        fingerprint = state_of(self.path)
        read = self._read = self._scan()
        name = os.path.basename(self.path).removesuffix(".jsonl")
        session_id = name if _UUID.fullmatch(name) else read.session_id
        if session_id is None:
            yield Unusable(
                origin="claude-code",
                source_id=name,
                source=self.path,
                why="it does not say which session it is",
            )
            return
        created_ms = read.created_ms or modified_ms(self.path)
        yield ForeignSession(
            origin="claude-code",
            source_id=session_id,
            source=self.path,
            workspace=read.workspace,
            created_ms=created_ms,
            updated_ms=max(read.updated_ms or created_ms, created_ms),
            fingerprint=fingerprint,
            title=read.custom_title or read.title,
            version=read.version,
        )

    def _scan(self) -> _Read:
        read = _Read(nodes={})
        for offset, line in read_lines(self._file):
            if line is None:
                read.unreadable += 1
                continue
            kind = text_of(line.get("type"))
            if kind == "custom-title":
                read.custom_title = (
                    text_of(line.get("customTitle")) or text_of(line.get("title")) or read.custom_title
                )
            elif kind == "ai-title":
                read.title = text_of(line.get("aiTitle")) or text_of(line.get("title")) or read.title
            elif kind == "summary":
                read.title = text_of(line.get("summary")) or read.title
            elif kind == "last-prompt":
                leaf = text_of(line.get("leafUuid"))
                if leaf in read.nodes:
                    read.leaf = leaf
            self._note(read, line, offset)
        return read

    @staticmethod
    def _note(read: _Read, line: dict[str, Any], offset: int) -> None:
        uuid = text_of(line.get("uuid"))
        if uuid is None or uuid in read.nodes:
            return
        message = object_of(line.get("message"))
        kind = text_of(line.get("type"))
        is_boundary = kind == "system" and line.get("subtype") == "compact_boundary"
        parent = text_of(line.get("parentUuid"))
        if parent is None and is_boundary:
            parent = text_of(line.get("logicalParentUuid"))
        content = list_of(message.get("content"))
        answers = tuple(
            call
            for block in content
            if object_of(block).get("type") == "tool_result"
            and (call := text_of(object_of(block).get("tool_use_id"))) is not None
        )
        node = _Node(
            offset=offset,
            parent=parent,
            kind="boundary" if is_boundary else str(kind) if kind in ("user", "assistant") else "other",
            message_id=text_of(message.get("id")),
            answers=answers,
            is_sidechain=line.get("isSidechain") is True,
        )
        read.nodes[uuid] = node
        if node.is_sidechain:
            return
        read.session_id = read.session_id or text_of(line.get("sessionId"))
        read.workspace = read.workspace or text_of(line.get("cwd"))
        read.version = text_of(line.get("version")) or read.version
        moment = moment_of(line.get("timestamp"))
        if moment is not None:
            read.created_ms = moment if read.created_ms is None else min(read.created_ms, moment)
            read.updated_ms = max(read.updated_ms or 0, moment)
        if node.kind in ("user", "assistant"):
            read.leaf = uuid

    def items(self, session: ForeignSession, transcript: Transcript) -> Iterator[Item]:
        read = self._read
        assert read is not None
        transcript.losses.count(lost.UNREADABLE, read.unreadable)
        way = _way(read)
        order = _with_side_lines(read, way)
        taken = set(order)
        for uuid, node in read.nodes.items():
            if node.kind in ("user", "assistant") and uuid not in taken:
                transcript.losses.count(lost.SIDECHAIN if node.is_sidechain else lost.OTHER_BRANCH)
        last_boundary = max(
            (at for at, uuid in enumerate(order) if read.nodes[uuid].kind == "boundary"), default=None
        )
        for at, uuid in enumerate(order):
            if at == last_boundary:
                yield from transcript.boundary()
            node = read.nodes[uuid]
            if node.kind not in ("user", "assistant"):
                continue
            line = read_line_at(self._file, node.offset)
            if line is None:
                transcript.losses.count(lost.UNREADABLE)
            elif node.kind == "user":
                yield from _said(uuid, line, transcript)
            else:
                yield from _answered(line, transcript)
        yield from transcript.flush()


def _way(read: _Read) -> list[str]:
    """From the root to the newest leaf; a cycle ends it."""
    way: list[str] = []
    seen: set[str] = set()
    uuid = read.leaf
    while uuid is not None and uuid in read.nodes and uuid not in seen:
        seen.add(uuid)
        way.append(uuid)
        uuid = read.nodes[uuid].parent
    way.reverse()
    return way


def _with_side_lines(read: _Read, way: list[str]) -> list[str]:
    """The way, with the pieces of its answers and the results of its calls that hang beside it."""
    on_way = set(way)
    pieces: dict[str, list[str]] = {}
    results: dict[str, list[str]] = {}
    for uuid, node in read.nodes.items():
        if uuid in on_way or node.is_sidechain:
            continue
        if node.kind == "assistant" and node.message_id is not None:
            pieces.setdefault(node.message_id, []).append(uuid)
        elif node.answers and node.parent is not None:
            results.setdefault(node.parent, []).append(uuid)
    if not pieces and not results:
        return way
    messages = {read.nodes[uuid].message_id for uuid in way} - {None}
    last_of = {read.nodes[uuid].message_id: uuid for uuid in way if read.nodes[uuid].kind == "assistant"}
    order: list[str] = []
    waiting: list[str] = []
    for uuid in way:
        node = read.nodes[uuid]
        order.append(uuid)
        waiting += results.pop(uuid, [])
        if node.kind == "assistant" and last_of.get(node.message_id) == uuid and node.message_id in messages:
            for piece in pieces.pop(node.message_id or "", []):
                order.append(piece)
                waiting += results.pop(piece, [])
            order += waiting
            waiting = []
    return order + waiting


def _said(uuid: str, line: dict[str, Any], transcript: Transcript) -> Iterator[Item]:
    message = object_of(line.get("message"))
    at_ms = moment_of(line.get("timestamp")) or 0
    content = message.get("content")
    if line.get("isCompactSummary") is True:
        text = content if isinstance(content, str) else "\n".join(_texts(content))
        yield from (item for item in transcript.summary(uuid, at_ms, text) if not isinstance(item, Boundary))
        return
    is_made = line.get("isMeta") is True
    if isinstance(content, str):
        yield from transcript.user(uuid, at_ms, (transcript.text(content, synthetic=is_made),))
        return
    blocks: list[Block | None] = []
    has_results = False
    for one in list_of(content):
        block = object_of(one)
        kind = text_of(block.get("type"))
        if kind == "tool_result":
            has_results = True
            _result(block, at_ms, transcript)
        elif kind == "text":
            blocks.append(transcript.text(block.get("text"), synthetic=is_made))
        elif kind in ("image", "document"):
            blocks.append(_attachment(block, transcript))
        else:
            transcript.losses.count(lost.UNSUPPORTED_PART)
    if blocks or not has_results:
        yield from transcript.user(uuid, at_ms, blocks)


def _texts(content: Any) -> list[str]:
    return [text for one in list_of(content) if (text := text_of(object_of(one).get("text"))) is not None]


def _result(block: dict[str, Any], at_ms: int, transcript: Transcript) -> None:
    content = block.get("content")
    texts: list[str] = [content] if isinstance(content, str) else _texts(content)
    images: list[ImageBlock | FileBlock] = []
    for one in list_of(content):
        part = object_of(one)
        if part.get("type") in ("image", "document"):
            kept = _attachment(part, transcript)
            if isinstance(kept, ImageBlock | FileBlock):
                images.append(kept)
    transcript.result(
        text_of(block.get("tool_use_id")) or "",
        "\n".join(texts),
        is_error=block.get("is_error") is True,
        at_ms=at_ms,
        images=images,
    )


def _attachment(block: dict[str, Any], transcript: Transcript) -> Block:
    source = object_of(block.get("source"))
    data = (
        bytes_of_base64(str(source["data"])) if source.get("type") == "base64" and "data" in source else None
    )
    return transcript.attachment(data, text_of(block.get("title")), text_of(source.get("media_type")))


def _answered(line: dict[str, Any], transcript: Transcript) -> Iterator[Item]:
    message = object_of(line.get("message"))
    if message.get("model") == _SYNTHETIC or line.get("isApiErrorMessage") is True:
        transcript.losses.count(lost.FAILED_ANSWER)
        return
    at_ms = moment_of(line.get("timestamp")) or 0
    key = text_of(message.get("id")) or text_of(line.get("uuid")) or ""
    meta = StepMeta(
        provider_id="anthropic",
        model_id=text_of(message.get("model")),
        finish_reason=text_of(message.get("stop_reason")),
        usage=_usage(message.get("usage")),
        request_id=text_of(line.get("requestId")),
    )
    for number, one in enumerate(list_of(message.get("content"))):
        block = object_of(one)
        kind = text_of(block.get("type"))
        if kind == "text":
            yield from transcript.answer(key, at_ms, transcript.text(block.get("text")), meta)
        elif kind == "thinking":
            signature = text_of(block.get("signature"))
            thought = transcript.thinking(block.get("thinking"), signature=signature, provider_id="anthropic")
            yield from transcript.answer(key, at_ms, thought, meta)
        elif kind == "redacted_thinking":
            thought = transcript.thinking("", encrypted=text_of(block.get("data")), provider_id="anthropic")
            yield from transcript.answer(key, at_ms, thought, meta)
        elif kind == "tool_use":
            call_key = text_of(block.get("id")) or f"{line.get('uuid')}/{number}"
            name = text_of(block.get("name")) or "unknown"
            yield from transcript.call(key, at_ms, call_key, name, block.get("input", {}), meta)
        else:
            transcript.losses.count(lost.UNSUPPORTED_PART)


def _usage(usage: Any) -> Usage | None:
    """Anthropic's classes are disjoint; thinking counts as output."""
    if not isinstance(usage, dict):
        return None
    return Usage(
        input_tokens=count_of(usage.get("input_tokens")),
        output_tokens=count_of(usage.get("output_tokens")),
        cache_read_tokens=count_of(usage.get("cache_read_input_tokens")),
        cache_write_tokens=count_of(usage.get("cache_creation_input_tokens")),
    )
