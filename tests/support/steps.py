"""The language of scripts: what the scripted model server does with one request, whatever the wire.

`say`, `think` and `call` make an `Answer`; answers add up (`think("…") + say("…") + call("bash", {…})`,
several calls are parallel calls).  `status`, `raw`, `hang` and `reset` are no answers.  The rest change how
an answer travels.  Steps are frozen values; `wire.py` turns an answer into bytes, `peer.py` sends them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

_call_numbers = itertools.count(1)

#: how a response ends after `Answer.keep` of its events
END = "end"  # as it should
CUT = "cut"  # FIN in the middle: the chunked body is not closed
RESET = "reset"  # RST in the middle
STALL = "stall"  # silence until the client goes
CLOSE_EARLY = "close-early"  # a clean end of the body without the terminal event
MID_EVENT = "mid-event"  # a clean end of the body inside an event
MID_CHUNK = "mid-chunk"  # a chunk that is shorter than it says, then FIN


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Think:
    text: str
    signature: str | None = "sig-scripted"
    #: Chat Completions only: `reasoning_content` | `reasoning` | `reasoning_details` | `think-tag`
    form: str = "reasoning_content"


@dataclass(frozen=True)
class Call:
    name: str
    #: a mapping, or the argument text itself, valid or not
    arguments: Mapping[str, Any] | str
    id: str


@dataclass(frozen=True)
class Answer:
    """What the model says and how it travels."""

    parts: tuple[Say | Think | Call, ...] = ()
    #: disjoint: input, output, reasoning, cache_read, cache_write; {}: estimated, None: not reported
    usage: Mapping[str, int] | None = field(default_factory=dict)
    #: stop | tool_calls | length | refusal, or the provider's own word; None: what fits the parts
    finish: str | None = None
    #: longest piece of text in one event, characters; None: about forty events at most
    piece: int | None = None
    #: bytes per write: None: an event each
    split: int | None = None
    delay_s: float = 0.0
    #: wait before the first byte of the response
    first_byte_s: float = 0.0
    gzip: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    ending: str = END
    #: comment lines put before the first event
    comments: Sequence[str] = ()
    #: an error event instead of the terminal one: (type, message)
    error: tuple[str, str] | None = None

    def __add__(self, other: Answer) -> Answer:
        return replace(
            self,
            parts=self.parts + other.parts,
            usage=other.usage if other.usage != {} else self.usage,
            finish=other.finish or self.finish,
        )


@dataclass(frozen=True)
class Status:
    code: int
    body: Any = None
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Bytes as they are: `chunks` are written one by one, a float among them is a pause in seconds."""

    chunks: tuple[bytes | float, ...]
    status: int = 200
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = field(default_factory=dict)
    #: False: `chunks` hold the status line and headers too
    with_head: bool = True
    ending: str = END


@dataclass(frozen=True)
class Hang:
    """Read the request, never answer."""


@dataclass(frozen=True)
class Reset:
    """RST instead of an answer."""


@dataclass(frozen=True)
class Close:
    """FIN instead of an answer."""


@dataclass(frozen=True)
class Forever:
    """This step and no other from here on."""

    step: Step


class Gate:
    """Lets a test hold a response back until it opens the gate."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._reached = threading.Event()

    def open(self) -> None:
        self._open.set()

    def wait_reached(self, timeout_s: float = 20.0) -> None:
        assert self._reached.wait(timeout_s), "no request came to the gate"

    def reach(self) -> None:
        self._reached.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()


@dataclass(frozen=True)
class Gated:
    step: Step
    gate: Gate


Step = Answer | Status | Raw | Hang | Reset | Close | Forever | Gated | Callable[[Any], Any]


def answer(*answers: Answer, **travel: Any) -> Answer:
    """All parts of `answers` in one; `travel` sets fields of `Answer` (usage, finish, split, …)."""
    total = Answer()
    for one in answers:
        total = total + one
    return replace(total, **travel)


def say(text: str, **travel: Any) -> Answer:
    return Answer(parts=(Say(text),), **travel)


def think(text: str, *, signature: str | None = "sig-scripted", form: str = "reasoning_content") -> Answer:
    return Answer(parts=(Think(text, signature, form),))


def call(
    name: str, arguments: Mapping[str, Any] | str | None = None, *, call_id: str | None = None
) -> Answer:
    return Answer(parts=(Call(name, {} if arguments is None else arguments, call_id or new_call_id()),))


def new_call_id() -> str:
    return f"toolu_{next(_call_numbers):06d}"


def status(
    code: int, body: Any = None, headers: Mapping[str, str] | Sequence[tuple[str, str]] | None = None
) -> Status:
    """A plain answer; a `body` that is no text or bytes is sent as JSON."""
    return Status(code, body, {} if headers is None else headers)


def raw(
    chunks: bytes | Sequence[bytes | float], *, status: int = 200, headers: Any = None, **how: Any
) -> Raw:
    parts = (chunks,) if isinstance(chunks, bytes) else tuple(chunks)
    return Raw(parts, status=status, headers={} if headers is None else headers, **how)


def hang() -> Hang:
    return Hang()


def reset() -> Reset:
    return Reset()


def close() -> Close:
    return Close()


def forever(step: Step) -> Forever:
    return Forever(step)


def gated(step: Step, gate: Gate) -> Gated:
    return Gated(step, gate)


def _answered(what: str | Answer) -> Answer:
    return say(what) if isinstance(what, str) else what


def stall_after(what: str | Answer) -> Answer:
    """Everything up to the terminal event, then silence on an open connection."""
    return replace(_answered(what), ending=STALL)


def cut_after(what: str | Answer, ending: str = CUT) -> Answer:
    """Everything up to the terminal event, then the connection ends as `ending` says."""
    return replace(_answered(what), ending=ending)


def drip(what: str | Answer, delay_s: float = 0.02) -> Answer:
    """One event at a time, `delay_s` apart."""
    return replace(_answered(what), delay_s=delay_s)


def split_everywhere(what: str | Answer) -> Answer:
    """One byte per chunk: inside events, lines and UTF-8 characters."""
    return replace(_answered(what), split=1)


def gzipped(what: str | Answer) -> Answer:
    return replace(_answered(what), gzip=True)


def stream_error(kind: str, message: str, *, after: str | Answer | None = None) -> Answer:
    """A 200 stream that holds an error event where its terminal event should be."""
    return replace(Answer() if after is None else _answered(after), error=(kind, message))
