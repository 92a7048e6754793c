"""An answer under construction: deltas out as they come, blocks in the end.

A block gets its position when its first real content arrives, and keeps it: a
delta's index is the position its block has in `Answer.content`.  Text that is
only white space never becomes a block.  Which wire format the pieces came from
is the wire modules' business; whether the answer counts is the client's.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from mcode_exec.errors import ModelCallError
from mcode_exec.ids import new_call_id
from mcode_exec.providers.endings import Ending
from mcode_exec.providers.payload import TextJoiner, clean, parse_arguments
from mcode_exec.providers.think_tags import ThinkSplitter
from mcode_exec.records.history import Block, TextBlock, ThinkingBlock, ToolCallBlock
from mcode_exec.records.model import (
    AttemptDiscarded,
    FinishReason,
    ModelFact,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from mcode_exec.records.usage import Usage

#: shows nothing and is no white space: zero-width spaces and joiners, marks of direction, BOM, soft hyphen
_INVISIBLE = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad"

#: blocks of one answer: texts, thoughts and calls
MAX_BLOCKS = 4096
MAX_NAME = 256  # characters of a tool's name
#: characters that an answer holds in all; the longest answers of models have a quarter of that
MAX_CONTENT = 16 * 1024 * 1024

Emit = Callable[[ModelFact], None]


class Assembled(Struct, frozen=True, kw_only=True):
    """What a stream said, once it is complete."""

    content: tuple[Block, ...]
    finish_reason: FinishReason
    usage: Usage
    #: what the provider says about a refusal; None when it did not refuse
    refusal: str | None = None
    #: the provider's own word for why it stopped, and what that means
    label: str | None = None
    ending: Ending = "unknown"


class TextPart:
    """A text block; white space is held until something is said."""

    def __init__(self) -> None:
        self.index = -1
        self.pieces: list[str] = []
        self.held: list[str] = []

    def block(self, _provider_id: str) -> Block:
        return TextBlock(text="".join(self.pieces))


class ThinkingPart:
    def __init__(self, form: str) -> None:
        self.index = -1
        self.form = form
        self.pieces: list[str] = []
        self.signatures: list[str] = []
        self.encrypted: str | None = None

    def block(self, provider_id: str) -> Block:
        return ThinkingBlock(
            text="".join(self.pieces),
            signature=clean("".join(self.signatures)) or None,
            encrypted=None if self.encrypted is None else clean(self.encrypted),
            form=self.form,
            provider_id=provider_id,
        )


class CallPart:
    """A tool call; `wire_id` is the provider's id, which may repeat and is not kept."""

    def __init__(self, wire_id: str = "") -> None:
        self.index = -1
        self.wire_id = wire_id
        self._name = ""
        self.pieces: list[str] = []
        self.joiner = TextJoiner()

    @property
    def name(self) -> str:
        """At most MAX_NAME characters of it: no tool has a longer one, however many pieces come."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name[:MAX_NAME]

    @property
    def arguments_text(self) -> str:
        return "".join(self.pieces)

    def block(self, _provider_id: str) -> Block:
        text = self.arguments_text
        arguments, is_exact = parse_arguments(text)
        return ToolCallBlock(
            id=new_call_id(),
            name=clean(self.name),
            arguments=arguments or {},
            broken_arguments=None if is_exact and self.joiner.is_exact else text,
        )


Part = TextPart | ThinkingPart | CallPart


class Draft:
    """The parts of one answer, in order."""

    def __init__(self, emit: Emit, provider_id: str) -> None:
        #: set by what is added, for who wants to know whether anything was
        self.has_moved = False
        self._emit = emit
        self._provider_id = provider_id
        self._parts: list[Part] = []
        self._text: TextPart | None = None
        self._thinking: ThinkingPart | None = None
        self._splitter = ThinkSplitter()
        self._joiner = TextJoiner()
        self._thinking_joiner = TextJoiner()
        self._room = MAX_CONTENT

    @property
    def has_calls(self) -> bool:
        return any(isinstance(part, CallPart) for part in self._parts)

    @property
    def is_empty(self) -> bool:
        return not self._parts

    @property
    def last(self) -> Part | None:
        """The part that was begun last."""
        return self._parts[-1] if self._parts else None

    def place(self, part: Part) -> None:
        """Give `part` its position, if it has none yet."""
        if part.index < 0:
            check_count(len(self._parts))
            part.index = len(self._parts)
            self._parts.append(part)

    def add_text(self, piece: str) -> None:
        piece = self._joiner.feed(piece)
        if piece and self._splitter.passes(piece):
            self._say(piece)  # nearly every piece
            return
        for kind, text in self._splitter.feed(piece):
            self._take(kind, text)

    def end_text(self) -> None:
        """The provider's text block is over: what follows is another."""
        for kind, text in self._splitter.feed(self._joiner.finish()) + self._splitter.finish():
            self._take(kind, text)
        self._splitter = self._splitter.next_block()
        self._text = None

    def _take(self, kind: str, text: str) -> None:
        if kind == "text":
            self._say(text)
        elif kind == "thinking":
            self.add_thinking(text, "think-tag")
        elif kind == "close":
            if self._thinking is not None and self._thinking.form == "think-tag":
                self._thinking.signatures = [text]
            self._thinking = None
        else:
            self._recast()

    def _say(self, text: str) -> None:
        part = self._text
        if part is None:
            part = self._text = TextPart()
        if part.index < 0:
            part.held.append(text)
            if _is_blank(text):
                return
            text = "".join(part.held)
            part.held.clear()
            self.place(part)
        self._thinking = None
        self.has_moved = True
        self._take_room(text)
        part.pieces.append(text)
        self._emit(TextDelta(part.index, text))

    def _take_room(self, piece: str) -> None:
        self._room -= len(piece)
        if self._room < 0:
            raise ModelCallError(
                "LLM_BAD_RESPONSE", f"the provider sent an answer of more than {MAX_CONTENT} characters"
            )

    def _recast(self) -> None:
        """All text so far was thinking: say so, and tell it again from the start."""
        self._emit(AttemptDiscarded("the text so far was reasoning"))
        for index, part in enumerate(self._parts):
            if isinstance(part, TextPart):
                thought = ThinkingPart("think-tag")
                thought.index = index
                thought.pieces = part.pieces
                self._parts[index] = self._thinking = thought
            self._retell(self._parts[index])
        self._text = None

    def _retell(self, part: Part) -> None:
        if isinstance(part, CallPart):
            self._emit(ToolCallDelta(part.index, clean(part.name), part.arguments_text))
        elif isinstance(part, ThinkingPart):
            self._emit(ThinkingDelta(part.index, "".join(part.pieces)))
        else:
            self._emit(TextDelta(part.index, "".join(part.pieces)))

    def add_thinking(self, piece: str, form: str) -> ThinkingPart:
        """Reasoning: goes on with the open span of this form, or opens one."""
        part = self._thinking
        if part is None or part.form != form:
            part = self._thinking = ThinkingPart(form)
        self.think(part, piece)
        return part

    def think(self, part: ThinkingPart, piece: str) -> None:
        piece = self._thinking_joiner.feed(piece)
        if not piece:
            return
        self.has_moved = True
        self.place(part)
        self._text = None if part.form == "think-tag" else self._text
        self._take_room(piece)
        part.pieces.append(piece)
        self._emit(ThinkingDelta(part.index, piece))

    def add_arguments(self, part: CallPart, piece: str) -> None:
        is_new = part.index < 0
        self.place(part)
        self._thinking = None
        piece = part.joiner.feed(piece)
        if piece:
            self.has_moved = True
            self._take_room(piece)
            part.pieces.append(piece)
        if piece or is_new:
            self._emit(ToolCallDelta(part.index, clean(part.name), piece))

    def content(self) -> tuple[Block, ...]:
        """All blocks; nothing may be added afterwards."""
        self.end_text()
        return tuple(part.block(self._provider_id) for part in self._parts)


def check_count(count: int) -> None:
    """Raises: ModelCallError for more blocks than any answer has: they could be sent without end."""
    if count >= MAX_BLOCKS:
        raise ModelCallError(
            "LLM_BAD_RESPONSE", f"the provider sent an answer of more than {MAX_BLOCKS} blocks"
        )


def _is_blank(text: str) -> bool:
    """Whether a person who reads `text` sees nothing."""
    return all(char.isspace() or char in _INVISIBLE for char in text)
