"""OpenCode's export document: `{info, messages: [{info, parts}]}`, as its own `import` reads it.

Its ids sort by time, so message and part ids are made anew, ascending and the
same for the same session; call ids stay.  What that program has no place for
(who steered, a turn's receipt) is left out.
"""

from __future__ import annotations

import base64
import hashlib
import string
from collections.abc import Callable
from typing import Any

import msgspec

from mcode_exec.records.message import (
    DisplayMessage,
    FilePart,
    Part,
    ReasoningPart,
    StepStartPart,
    TextPart,
    ToolCompleted,
    ToolPart,
    ToolPending,
)
from mcode_exec.records.session import Session
from mcode_exec.records.usage import Usage

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_COUNTS_PER_MS = 0x1000
_encode = msgspec.json.Encoder().encode
#: ours to theirs
_TOOLS = {"todo_write": "todowrite"}
_ARGUMENTS = {
    "file_path": "filePath",
    "old_string": "oldString",
    "new_string": "newString",
    "replace_all": "replaceAll",
}
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "tool_calls": "tool-calls",
    "max_tokens": "length",
}

Bytes = Callable[[str], bytes | None]


class Document:
    """One session, given message by message in its order."""

    def __init__(self, session: Session, version: str) -> None:
        self._session = session
        self._version = version
        digest = hashlib.sha256(session.id.encode())
        self.session_id = f"ses_{_hex(~_stamp(session.created_ms, 0))}{_letters(digest.digest())}"
        #: how many ids were made, and the newest time that one was made of
        self._count = 0
        self._at_ms = 0
        self._is_first = True
        self._last_user: str | None = None

    def head(self) -> bytes:
        session = self._session
        info = {
            "id": self.session_id,
            "slug": session.id,
            "version": self._version,
            "projectID": "global",
            "directory": session.workspace,
            "title": session.title,
            "time": {"created": session.created_ms, "updated": session.updated_ms},
        }
        if session.archived_ms is not None:
            info["time"] = {**info["time"], "archived": session.archived_ms}  # type: ignore[dict-item]
        return b'{"info":' + _encode(info) + b',\n"messages":['

    def message(self, message: DisplayMessage, bytes_of: Bytes) -> bytes:
        """One message with its parts, in front of a comma where it is not the first."""
        message_id = self._id("msg", message.created_ms)
        if message.role == "assistant":
            info = self._answer(message, message_id)
        else:
            self._last_user = message_id
            info = {
                "role": "user",
                "time": {"created": message.created_ms},
                "agent": message.agent or self._session.agent or "build",
                "model": {
                    "providerID": message.provider_id or self._session.provider_id or "unknown",
                    "modelID": message.model_id or self._session.model_id or "unknown",
                },
            }
        parts = [
            {
                "id": self._id("prt", message.created_ms),
                "sessionID": self.session_id,
                "messageID": message_id,
                **body,
            }
            for part in message.parts
            for body in _part(part, message, bytes_of)
        ]
        row = {"info": {"id": message_id, "sessionID": self.session_id, **info}, "parts": parts}
        comma, self._is_first = (b"\n" if self._is_first else b",\n"), False
        return comma + _encode(row)

    def end(self) -> bytes:
        return b"]}\n"

    def _answer(self, message: DisplayMessage, message_id: str) -> dict[str, Any]:
        agent = message.agent or self._session.agent or "build"
        directory = self._session.workspace
        return {
            "role": "assistant",
            "time": {"created": message.created_ms, "completed": message.completed_ms or message.created_ms},
            "parentID": self._last_user or message_id,
            "providerID": message.provider_id or "unknown",
            "modelID": message.model_id or "unknown",
            "mode": agent,
            "agent": agent,
            "path": {"cwd": directory, "root": directory},
            "cost": _cost(message.cost_usd),
            "tokens": _tokens(message.usage),
            "finish": _FINISH.get(message.finish_reason or "stop", message.finish_reason or "stop"),
        }

    def _id(self, kind: str, at_ms: int) -> str:
        """Ascending, whatever the clock did."""
        if at_ms > self._at_ms:
            self._at_ms, self._count = at_ms, 0
        self._count += 1
        stamp = _stamp(self._at_ms, self._count)
        digest = hashlib.sha256(f"{self._session.id}\0{kind}\0{stamp}".encode()).digest()
        return f"{kind}_{_hex(stamp)}{_letters(digest)}"


def _stamp(at_ms: int, count: int) -> int:
    return at_ms * _COUNTS_PER_MS + count


def _hex(stamp: int) -> str:
    return format(stamp & 0xFFFFFFFFFFFF, "012x")


def _letters(digest: bytes) -> str:
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:14])


def _part(part: Part, message: DisplayMessage, bytes_of: Bytes) -> list[dict[str, Any]]:
    at = {"start": message.created_ms, "end": message.completed_ms or message.created_ms}
    if isinstance(part, TextPart):
        flags = {"synthetic": True} if part.synthetic else {}
        return [{"type": "text", "text": part.text, **flags}]
    if isinstance(part, ReasoningPart):
        return [{"type": "reasoning", "text": part.text, "time": at}]
    if isinstance(part, FilePart):
        data = bytes_of(part.digest)
        if data is None:
            return [
                {
                    "type": "text",
                    "text": f"[file {part.filename or part.digest}: its bytes are gone]",
                    "synthetic": True,
                }
            ]
        url = f"data:{part.mime};base64,{base64.b64encode(data).decode()}"
        return [{"type": "file", "mime": part.mime, "filename": part.filename or part.digest, "url": url}]
    if isinstance(part, ToolPart):
        return [_tool(part, message)]
    if isinstance(part, StepStartPart):
        return [{"type": "step-start"}]
    return [
        {
            "type": "step-finish",
            "reason": _FINISH.get(part.reason, part.reason),
            "cost": _cost(part.cost_usd),
            "tokens": _tokens(part.usage),
        }
    ]


def _tool(part: ToolPart, message: DisplayMessage) -> dict[str, Any]:
    state = part.state
    start = message.completed_ms or message.created_ms
    arguments = {_ARGUMENTS.get(name, name): value for name, value in state.input.items()}
    duration_ms = 0 if isinstance(state, ToolPending) else state.duration_ms or 0
    time = {"start": start, "end": start + duration_ms}
    if isinstance(state, ToolCompleted):
        body: dict[str, Any] = {
            "status": "completed",
            "input": arguments,
            "output": state.output,
            "title": state.title or part.tool,
            "metadata": state.metadata,
            "time": time,
        }
    else:
        is_open = isinstance(state, ToolPending)
        error = "interrupted: it has no result" if isinstance(state, ToolPending) else state.error
        interrupted = {"interrupted": True} if is_open or getattr(state, "kind", "") == "interrupted" else {}
        body = {"status": "error", "input": arguments, "error": error, "metadata": interrupted, "time": time}
    return {"type": "tool", "callID": part.call_id, "tool": _TOOLS.get(part.tool, part.tool), "state": body}


def _cost(cost_usd: str | None) -> float:
    return 0.0 if cost_usd is None else float(cost_usd)


def _tokens(usage: Usage | None) -> dict[str, Any]:
    usage = usage or Usage()
    return {
        "input": usage.input_tokens or 0,
        "output": usage.output_tokens or 0,
        "reasoning": usage.reasoning_tokens or 0,
        "cache": {"read": usage.cache_read_tokens or 0, "write": usage.cache_write_tokens or 0},
    }
