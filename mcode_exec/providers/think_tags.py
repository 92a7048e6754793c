"""`<think>` spans inside a model's text, wherever the stream cut them; MiniMax-M3 writes `<mm:think>`.

The rules:
- A tag at the start of the answer, or right after another span, opens a span at
  once.  If it is never closed, all that follows is thinking.
- A tag later in the text opens a span only where it begins its line, and only if it is closed; else it was
  text: an answer may be JSON or prose that speaks of tags, and must come out as it was said.
- A closing tag without an opening one means that the text so far was thinking (the opening tag stood in
  the model's prompt), where its line begins or ends with it, or it stands between a thought and its answer
  (`tag_mentions`); this holds once in an answer, and not where an opening tag was text before.  One that does
  not begin its line counts if something is said behind it.
- Inside of code (`code_spans`) a tag is text; where that depends on what follows, it is waited for.
  This holds for what is said: thinking ends with the first closing tag, as the servers that
  take spans out themselves have it, for a fence that a thought opens is often never closed.
"""

from __future__ import annotations

from typing import Literal

from mcode_exec.providers import tag_mentions
from mcode_exec.providers.code_spans import AHEAD, CodeSpans

_OPENS = ("<think>", "<mm:think>")
_CLOSES = ("</think>", "</mm:think>")
_TAGS = _OPENS + _CLOSES
#: what may stand behind a tag that ends its line; "": it ends the text
_LINE_ENDS = ("\n", "\r", "")
_LONGEST = max(map(len, _TAGS))

#: `close` carries the closing tag and the white space after it; `recast`: all text so far was thinking
Piece = tuple[Literal["text", "thinking", "close", "recast"], str]


class ThinkSplitter:
    """Splits a text that comes in pieces into what is said and what is thought."""

    def __init__(self) -> None:
        self._state: Literal["start", "text", "thinking", "tentative", "closing"] = "start"
        self._held = ""
        self._tag = 0  # of the open span, among the opening ones
        self._span: list[str] = []
        self._closing: list[str] = []
        self._has_span = False
        self._is_over = False
        #: a closing tag whose text so far was thinking, if something follows it
        self._is_tentative_close = False
        #: nothing but blanks stands on the line that is being read
        self._is_line_blank = True
        self._line = tag_mentions.Line()
        self._code = CodeSpans()

    def passes(self, piece: str) -> bool:
        """Take `piece` as text that is said, if it can be nothing else; else it is still to be fed."""
        if self._state != "text" or self._held or "<" in piece:
            return False
        if not self._code.is_unmoved_by(piece):
            self._code.advance(piece)
        self._follow_line(piece)
        return True

    def next_block(self) -> ThinkSplitter:
        """What reads the next text of the same answer."""
        splitter = ThinkSplitter()
        splitter._has_span = self._has_span
        return splitter

    def feed(self, piece: str) -> list[Piece]:
        out: list[Piece] = []
        buffer = self._held + piece
        self._held = ""
        at = 0
        # by position, not by cutting the buffer: a whole answer may come in one piece
        while at < len(buffer):
            if self._state in ("start", "text"):
                at = self._read_text(buffer, at, out)
            elif self._state == "closing":
                at = self._read_closing(buffer, at, out)
            else:
                at = self._read_thinking(buffer, at, out)
        return out

    def finish(self) -> list[Piece]:
        """What was held back, now that nothing follows."""
        self._is_over = True
        out = self.feed("")
        held, self._held = self._held, ""
        if self._state == "thinking":
            out.append(("thinking", held))
        elif self._state == "tentative":
            out.append(("text", _OPENS[self._tag] + "".join(self._span) + held))
        elif self._state == "closing":
            kind: Literal["text", "close"] = "text" if self._is_tentative_close else "close"
            out.append((kind, "".join(self._closing)))
        else:
            out.append(("text", held))
        return [piece for piece in out if piece[1] or piece[0] == "recast"]

    def _follow_line(self, text: str) -> None:
        if not self._has_span:
            self._line.follow(text)
        _, end, rest = text.rpartition("\n")
        if end or self._is_line_blank:
            self._is_line_blank = not rest or rest.isspace()

    def _say(self, text: str, out: list[Piece]) -> None:
        if not text:
            return
        self._code.advance(text)
        self._follow_line(text)
        if self._state == "start" and not text.isspace():
            self._state = "text"
        out.append(("text", text))

    def _read_text(self, buffer: str, start: int, out: list[Piece]) -> int:
        at = buffer.find("<", start)
        while at >= 0:
            if buffer.startswith(_TAGS, at):
                self._say(buffer[start:at], out)
                tag = next(tag for tag in _TAGS if buffer.startswith(tag, at))
                start = at + len(tag)
                is_code = self._code.is_inside(buffer[at : at + AHEAD], is_end=self._is_over)
                behind = buffer[start : start + tag_mentions.AHEAD] if tag in _CLOSES else ""
                if is_code is None or (tag in _CLOSES and not self._is_over and _is_undecided(behind)):
                    self._held = buffer[at:]
                    return len(buffer)
                if not is_code and self._is_apart(tag, behind) and self._acts(tag, out):
                    return start
                if not is_code and tag in _OPENS:
                    self._has_span = True  # what answers it is text too
                self._say(tag, out)
                at = buffer.find("<", start)
                continue
            if not self._is_over and len(buffer) - at < _LONGEST and _begins_tag(buffer[at:]):
                self._say(buffer[start:at], out)
                self._held = buffer[at:]
                return len(buffer)
            at = buffer.find("<", at + 1)
        self._say(buffer[start:], out)
        return len(buffer)

    def _is_apart(self, tag: str, behind: str) -> bool:
        """Whether the place of a tag outside of code is that of one."""
        if self._is_line_blank or tag in _OPENS:
            return self._is_line_blank
        if self._has_span:
            return False
        is_cut_short = len(behind) == tag_mentions.AHEAD and not behind.strip(" \t")
        is_last = not is_cut_short and behind.lstrip(" \t")[:1] in _LINE_ENDS
        return is_last or self._line.ends_thought(behind, has_stray_tick=self._code.has_stray_run)

    def _acts(self, tag: str, out: list[Piece]) -> bool:
        """Whether a tag outside of code is one, and then what follows from it."""
        if tag in _OPENS:
            self._tag = _OPENS.index(tag)
            self._state = "thinking" if self._state == "start" else "tentative"
            return True
        if self._has_span:
            return False
        is_said = self._state == "text"
        self._is_tentative_close = is_said and not self._is_line_blank
        if is_said and not self._is_tentative_close:
            out.append(("recast", ""))
        self._close(tag)
        return True

    def _read_thinking(self, buffer: str, start: int, out: list[Piece]) -> int:
        tag = _CLOSES[self._tag]
        end = buffer.find(tag, start)
        thought = buffer[start:end] if end >= 0 else _without_partial(buffer[start:], tag)
        if self._state == "tentative":
            self._span.append(thought)
        elif thought:
            out.append(("thinking", thought))
        if end < 0:
            self._held = buffer[start + len(thought) :]
            return len(buffer)
        if self._state == "tentative":
            out.append(("thinking", "".join(self._span)))
            self._span.clear()
        self._close(tag)
        return end + len(tag)

    def _close(self, tag: str) -> None:
        self._state = "closing"
        self._closing = [tag]
        self._has_span = self._is_line_blank = True
        self._code = CodeSpans()

    def _read_closing(self, buffer: str, start: int, out: list[Piece]) -> int:
        at = start
        while at < len(buffer) and buffer[at].isspace():
            at += 1
        self._closing.append(buffer[start:at])
        if at < len(buffer):
            if self._is_tentative_close:
                self._is_tentative_close = False
                out.append(("recast", ""))
            out.append(("close", "".join(self._closing)))
            self._state = "start"
        return at


def span(text: str, closing: str | None) -> str:
    """A span as it stood in the model's text; `closing` is what closed it, None if nothing did."""
    closing = closing or _CLOSES[0]
    tag = next((at for at, close in enumerate(_CLOSES) if closing.startswith(close)), 0)
    return f"{_OPENS[tag]}{text}{closing}"


def _is_undecided(behind: str) -> bool:
    """Whether more has to come behind a closing tag to tell what it is."""
    return len(behind) < tag_mentions.AHEAD and (not behind.strip(" \t") or behind == "<")


def _begins_tag(text: str) -> bool:
    return any(tag.startswith(text) for tag in _TAGS)


def _without_partial(text: str, tag: str) -> str:
    """`text` without an end that may be the beginning of `tag`."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-size:]):
            return text[:-size]
    return text
