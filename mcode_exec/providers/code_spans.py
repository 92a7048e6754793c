"""Where a growing Markdown text is code: the one notion of it that tags and markup of calls are judged by.

As CommonMark has it, read with the intention: a fence may stand behind the marks of list items and
quotes, and behind prose if nothing but a name follows; a span is any number of backticks up to as many again, over
line ends, within its paragraph.  Whether backticks open a span depends on what follows, so the
answer at a place may be: that depends.  Where the text was cut makes no difference.
"""

from __future__ import annotations

#: so much of a line's beginning tells whether it is a fence
_HEAD = 256
#: a span is closed within so many characters behind a place in it, or is none
AHEAD = 4096
#: longer runs of backticks, and more of them in a paragraph, are no spans
_LONGEST_RUN = 64
_MAX_RUNS = 4096
_MAX_INFO = 32
_DIGITS = "0123456789"


class CodeSpans:
    """Feed it a text as it grows; it tells whether the end of that stands inside code."""

    def __init__(self) -> None:
        #: the run that opened the fence that is open
        self._fence = ""
        #: how long the one is that opened code at the end of a line of prose; 0 for none
        self._loose = 0
        #: the beginning of the line, as long as it may turn out to be a fence
        self._line = ""
        self._is_head = True
        #: lengths of runs that opened no span yet, in order, each as if those before it were none
        self._pending: list[int] = []
        self._run = 0
        self._runs = 0
        #: what followed the last run of three or more on this line, while it may be the name of a language
        self._info: str | None = None
        #: so many characters ahead are known to be in code, and so many have been looked at
        self._sure = self._seen = 0

    @property
    def has_stray_run(self) -> bool:
        """Whether a run of backticks in this paragraph opened no code, as `is_inside` has last found it."""
        return bool(self._pending)

    def is_unmoved_by(self, text: str) -> bool:
        """Whether `text` can go on a line without changing anything, as nearly every piece does."""
        if self._is_head or self._sure > 0 or "\n" in text:
            return False
        return bool(self._fence) or (not self._run and self._info is None and "`" not in text)

    def advance(self, text: str) -> None:
        self._sure, self._seen = self._sure - len(text), 0
        first, *rest = text.split("\n")
        self._grow(first)
        for line in rest:
            self._end_line()
            if line:
                self._grow(line)

    def is_inside(self, ahead: str, *, is_end: bool) -> bool | None:
        """Whether a `<` that stands here is in code; `ahead` is what follows, `<` included, AHEAD of it at most.

        None: that depends on what comes behind `ahead`, unless it `is_end`.
        """
        if self._sure > 0:
            return True
        if self._is_head:
            rest, _ = _past_marks(self._line)
            if not self._fence and _fence_of(rest):
                return True  # in the info string of a fence
            self._settle()
        if self._fence:
            return True
        self._end_run()
        if self._loose:
            return True
        return self._closes(ahead[:AHEAD], is_end or len(ahead) >= AHEAD) if self._pending else False

    def _grow(self, part: str) -> None:
        if not self._is_head:
            self._count(part)
            return
        room = _HEAD - len(self._line)
        self._line += part[:room]
        if len(self._line) >= _HEAD or self._is_settled():
            self._settle()
            self._count(part[room:])

    def _is_settled(self) -> bool:
        if self._fence:
            rest = self._line.lstrip(" \t>")
            behind = rest.lstrip(self._fence[0])
            return bool(behind.strip()) if len(rest) - len(behind) >= len(self._fence) else bool(behind)
        rest, _ = _past_marks(self._line)
        return not (_may_be_mark(rest) or _fence_of(rest))

    def _settle(self) -> None:
        """The line is no fence: go on with what it says."""
        line, self._line, self._is_head = self._line, "", False
        if self._fence:
            return
        rest, is_item = _past_marks(line)
        if is_item or rest.startswith("#"):
            self._end_paragraph()
        self._count(rest)

    def _end_line(self) -> None:
        if self._is_head:
            if not self._line:
                if not self._fence:
                    self._end_paragraph()
                return
            self._end_head()
        elif not self._fence:
            self._end_run()
            if self._info is not None:
                self._loose = self._pending[-1]
                self._end_paragraph()
        self._line, self._is_head, self._info = "", not self._loose, None

    def _end_head(self) -> None:
        """The line is over, and all of it may be a fence."""
        if self._fence:
            rest = self._line.strip(" \t>\r")
            if rest.startswith(self._fence) and not rest.strip(self._fence[0]):
                self._fence = ""
            return
        rest, is_item = _past_marks(self._line)
        if is_item or not rest.strip():
            self._end_paragraph()
        if fence := _fence_of(rest):
            self._end_paragraph()
            self._fence = fence
        else:
            self._count(rest)
            self._end_run()

    def _end_paragraph(self) -> None:
        self._pending.clear()
        self._run = self._runs = 0

    def _count(self, part: str) -> None:
        """Take in text of a line: its runs of backticks."""
        if self._fence or not part or self._runs > _MAX_RUNS:
            return
        at = 0
        while (tick := part.find("`", at)) >= 0 and self._runs <= _MAX_RUNS:
            self._pass(part[at:tick])
            at = _past_run(part, tick)
            self._run += at - tick
        self._pass(part[at:])

    def _pass(self, text: str) -> None:
        """Take in text without backticks."""
        if not text:
            return
        self._end_run()
        if self._info is not None:
            info = self._info + text[: _MAX_INFO + 1]
            name = info.strip()
            self._info = info if len(info) <= _MAX_INFO and (not name or name.isalnum()) else None

    def _end_run(self) -> None:
        size, self._run = self._run, 0
        if not size or self._runs > _MAX_RUNS:
            return
        self._runs += 1
        self._info = None
        if self._loose:
            self._loose = 0 if size >= self._loose else self._loose
        elif size in self._pending:
            del self._pending[self._pending.index(size) :]
        elif size <= _LONGEST_RUN:
            self._pending.append(size)
            self._info = "" if size >= 3 else None

    def _closes(self, text: str, is_end: bool) -> bool | None:
        """Whether `text` closes a span that may be open, before its paragraph is over."""
        at = self._seen
        while True:
            self._seen = at
            tick, line_end = text.find("`", at), text.find("\n", at)
            if tick < 0 and line_end < 0:
                return False if is_end else None
            if tick >= 0 and not 0 <= line_end < tick:
                at = _past_run(text, tick)
                if at == len(text) and not is_end:
                    return None
                if at - tick in self._pending:
                    self._sure = tick
                    return True
                continue
            at = line_end + 1
            next_end = text.find("\n", at)
            line = text[at:] if next_end < 0 else text[at:next_end]
            rest, is_item = _past_marks(line[:_HEAD])
            if next_end < 0 and not is_end and (_may_be_mark(rest) or _fence_of(rest)):
                return None
            if is_item or not rest.strip() or rest.startswith("#") or _fence_of(rest):
                return False


def _past_marks(line: str) -> tuple[str, bool]:
    """What of a line follows the marks of quotes and list items, and whether one is an item's."""
    is_item = False
    while True:
        line = line.lstrip(" \t>")
        size = 1 if line[:1] in ("-", "*", "+") else 0
        digits = len(line) - len(line.lstrip(_DIGITS))
        if 0 < digits < 10 and line[digits : digits + 1] in (".", ")"):
            size = digits + 1
        if not size or line[size : size + 1] not in (" ", "\t"):
            return line, is_item
        line, is_item = line[size + 1 :], True


def _may_be_mark(rest: str) -> bool:
    """Whether more of a line could make a mark, or a fence, of what is there."""
    rest = rest.rstrip("\r")
    if not rest.strip("`") or not rest.strip("~") or rest in ("-", "*", "+"):
        return True
    digits = rest.rstrip(".)")
    return len(digits) < 10 and len(rest) - len(digits) <= 1 and not digits.strip(_DIGITS)


def _fence_of(rest: str) -> str:
    """The run that `rest` begins with, if it opens a fence."""
    mark = rest[:1]
    if mark not in ("`", "~") or not rest.startswith(mark * 3):
        return ""
    info = rest.lstrip(mark)
    return "" if mark == "`" and "`" in info else rest[: len(rest) - len(info)]


def _past_run(text: str, at: int) -> int:
    """The end of the run of backticks at `at`."""
    while at < len(text) and text[at] == "`":
        at += 1
    return at
