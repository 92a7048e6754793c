"""`<think>` spans inside a model's text, wherever the stream cut them.

The rules:
- A tag at the start of the answer, or right after another span, opens a span at
  once.  If it is never closed, all that follows is thinking.
- A tag later in the text opens a span only if it is closed; else it was text.
- A closing tag without an opening one means that the text so far was thinking
  (the opening tag stood in the model's prompt); this holds once.
- Inside a code span or a fenced block a tag is text.
"""

from __future__ import annotations

from typing import Literal

OPEN = "<think>"
CLOSE = "</think>"

#: `close` carries the closing tag and the white space after it; `recast`: all text so far was thinking
Piece = tuple[Literal["text", "thinking", "close", "recast"], str]


class CodeSpans:
    """Whether the end of a growing Markdown text stands inside code."""

    def __init__(self) -> None:
        self._head = ""
        self._ticks = 0
        self._is_fenced = False

    @property
    def is_inside(self) -> bool:
        return self._is_fenced or self._ticks % 2 == 1

    def advance(self, text: str) -> None:
        first, *rest = text.split("\n")
        self._grow(first)
        for line in rest:
            if self._head.lstrip().startswith(("```", "~~~")):
                self._is_fenced = not self._is_fenced
            self._head = ""
            self._ticks = 0
            self._grow(line)

    def _grow(self, part: str) -> None:
        if len(self._head) < 8:
            self._head += part[:8]
        self._ticks += part.count("`")


class ThinkSplitter:
    """Splits a text that comes in pieces into what is said and what is thought."""

    def __init__(self) -> None:
        self._state: Literal["start", "text", "thinking", "tentative", "closing"] = "start"
        self._held = ""
        self._span: list[str] = []
        self._closing = ""
        self._has_span = False
        self._code = CodeSpans()

    def feed(self, piece: str) -> list[Piece]:
        out: list[Piece] = []
        buffer = self._held + piece
        self._held = ""
        while buffer:
            if self._state in ("start", "text"):
                buffer = self._read_text(buffer, out)
            elif self._state == "closing":
                buffer = self._read_closing(buffer, out)
            else:
                buffer = self._read_thinking(buffer, out)
        return out

    def finish(self) -> list[Piece]:
        """What was held back, now that nothing follows."""
        out: list[Piece] = []
        held, self._held = self._held, ""
        if self._state == "thinking":
            out.append(("thinking", held))
        elif self._state == "tentative":
            out.append(("text", OPEN + "".join(self._span) + held))
        elif self._state == "closing":
            out.append(("close", self._closing))
        else:
            out.append(("text", held))
        return [piece for piece in out if piece[1]]

    def _say(self, text: str, out: list[Piece]) -> None:
        self._code.advance(text)
        if self._state == "start" and not text.isspace():
            self._state = "text"
        out.append(("text", text))

    def _read_text(self, buffer: str, out: list[Piece]) -> str:
        at = buffer.find("<")
        if at < 0:
            self._say(buffer, out)
            return ""
        if at > 0:
            self._say(buffer[:at], out)
            return buffer[at:]
        if buffer.startswith(OPEN) and not self._code.is_inside:
            self._state = "thinking" if self._state == "start" else "tentative"
            return buffer[len(OPEN) :]
        if buffer.startswith(CLOSE) and not self._code.is_inside and not self._has_span:
            if self._state == "text":
                out.append(("recast", ""))
            self._close()
            return buffer[len(CLOSE) :]
        if OPEN.startswith(buffer) or CLOSE.startswith(buffer):
            self._held = buffer
            return ""
        self._say("<", out)
        return buffer[1:]

    def _read_thinking(self, buffer: str, out: list[Piece]) -> str:
        at = buffer.find(CLOSE)
        thought = buffer[:at] if at >= 0 else _without_partial(buffer, CLOSE)
        if self._state == "tentative":
            self._span.append(thought)
        elif thought:
            out.append(("thinking", thought))
        if at < 0:
            self._held = buffer[len(thought) :]
            return ""
        if self._state == "tentative":
            out.append(("thinking", "".join(self._span)))
            self._span.clear()
        self._close()
        return buffer[at + len(CLOSE) :]

    def _close(self) -> None:
        self._state = "closing"
        self._closing = CLOSE
        self._has_span = True

    def _read_closing(self, buffer: str, out: list[Piece]) -> str:
        rest = buffer.lstrip()
        self._closing += buffer[: len(buffer) - len(rest)]
        if rest:
            out.append(("close", self._closing))
            self._state = "start"
        return rest


def _without_partial(text: str, tag: str) -> str:
    """`text` without an end that may be the beginning of `tag`."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-size:]):
            return text[:-size]
    return text
