"""A transcript as Claude Code keeps it: one JSON object a line, each naming the one before it.

It goes to `projects/<workspace with - for />/<the id in its lines>.jsonl` below
that program's directory.  Ids are made of the session's, the same each time.
Thinking goes along as words only where that program could use them: it sends
back what was signed, and a signature is its provider's alone.
"""

from __future__ import annotations

import base64
import hashlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from mcode_exec.records.message import (
    DisplayMessage,
    FilePart,
    TextPart,
    ToolError,
    ToolPart,
    ToolPending,
)
from mcode_exec.records.session import Session
from mcode_exec.records.usage import Usage

_encode = msgspec.json.Encoder().encode
#: ours to theirs
_TOOLS = {
    "bash": "Bash",
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "glob": "Glob",
    "grep": "Grep",
    "list": "LS",
    "todo_write": "TodoWrite",
}
_STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}

Bytes = Callable[[str], bytes | None]


class Document:
    """One session, given message by message in its order."""

    def __init__(self, session: Session, version: str) -> None:
        self._session = session
        self._version = version
        self._namespace = uuid.UUID(bytes=hashlib.sha256(session.id.encode()).digest()[:16], version=4)
        #: the name of the file, without `.jsonl`
        self.session_id = str(self._namespace)
        self._last: str | None = None
        self._last_prompt = ""

    def head(self) -> bytes:
        title = {"type": "custom-title", "customTitle": self._session.title, "sessionId": self.session_id}
        return _line(title)

    def message(self, message: DisplayMessage, bytes_of: Bytes) -> bytes:
        """The lines of one message: what was said, and what its calls came to."""
        if message.role == "assistant":
            return b"".join(self._answer(message))
        content = [block for part in message.parts for block in _said(part, bytes_of)]
        if not content:
            return b""
        words = [block["text"] for block in content if block["type"] == "text"]
        self._last_prompt = words[0] if words else self._last_prompt
        only_text = content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else None
        body = {"role": "user", "content": content if only_text is None else only_text}
        summary = {"isCompactSummary": True} if message.role == "summary" else {}
        return self._entry("user", message.id, message.created_ms, body, **summary)

    def end(self) -> bytes:
        if self._last is None:
            return b""
        return _line(
            {
                "type": "last-prompt",
                "lastPrompt": self._last_prompt[:200],
                "leafUuid": self._last,
                "sessionId": self.session_id,
            }
        )

    def _answer(self, message: DisplayMessage) -> Iterator[bytes]:
        calls = [part for part in message.parts if isinstance(part, ToolPart)]
        content: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, TextPart) and part.text.strip():
                content.append({"type": "text", "text": part.text})
            elif isinstance(part, ToolPart):
                name = _TOOLS.get(part.tool, part.tool)
                content.append(
                    {"type": "tool_use", "id": part.call_id, "name": name, "input": part.state.input}
                )
        if not content:
            return
        stop = message.finish_reason or ("tool_use" if calls else "end_turn")
        yield self._entry(
            "assistant",
            message.id,
            message.created_ms,
            {
                "id": "msg_" + message.id.removeprefix("msg-"),
                "type": "message",
                "role": "assistant",
                "model": message.model_id or "unknown",
                "content": content,
                "stop_reason": _STOPS.get(stop, stop),
                "stop_sequence": None,
                "usage": _usage(message.usage),
            },
        )
        answer = self._last
        if calls:
            results = [_result(part) for part in calls]
            at_ms = message.completed_ms or message.created_ms
            yield self._entry(
                "user",
                message.id + "/results",
                at_ms,
                {"role": "user", "content": results},
                toolUseResult=results[0]["content"],
                sourceToolAssistantUUID=answer,
            )

    def _entry(self, kind: str, key: str, at_ms: int, message: dict[str, Any], **more: Any) -> bytes:
        own = str(uuid.uuid5(self._namespace, key))
        entry = {
            "parentUuid": self._last,
            "isSidechain": False,
            "type": kind,
            "message": message,
            "uuid": own,
            "timestamp": _moment(at_ms),
            "userType": "external",
            "entrypoint": "sdk-cli",
            "cwd": self._session.workspace,
            "sessionId": self.session_id,
            "version": self._version,
            "gitBranch": "",
            **more,
        }
        self._last = own
        return _line(entry)


def _line(entry: dict[str, Any]) -> bytes:
    return _encode(entry) + b"\n"


def _moment(at_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1000)) + f".{at_ms % 1000:03d}Z"


def _said(part: Any, bytes_of: Bytes) -> Iterator[dict[str, Any]]:
    if isinstance(part, TextPart) and part.text.strip():
        yield {"type": "text", "text": part.text}
    elif isinstance(part, FilePart):
        data = bytes_of(part.digest)
        if data is None:
            yield {"type": "text", "text": f"[file {part.filename or part.digest}: its bytes are gone]"}
            return
        kind = "image" if part.mime.startswith("image/") else "document"
        source = {"type": "base64", "media_type": part.mime, "data": base64.b64encode(data).decode()}
        yield {"type": kind, "source": source}


def _result(part: ToolPart) -> dict[str, Any]:
    state = part.state
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.call_id}
    if isinstance(state, ToolPending):
        return {**result, "content": "interrupted: it has no result", "is_error": True}
    if isinstance(state, ToolError):
        return {**result, "content": state.error, "is_error": True}
    return {**result, "content": state.output}


def _usage(usage: Usage | None) -> dict[str, Any]:
    usage = usage or Usage()
    return {
        "input_tokens": usage.input_tokens or 0,
        "cache_creation_input_tokens": usage.cache_write_tokens or 0,
        "cache_read_input_tokens": usage.cache_read_tokens or 0,
        # theirs counts thinking among what came out
        "output_tokens": (usage.output_tokens or 0) + (usage.reasoning_tokens or 0),
    }
