"""Replacing words in the bytes of an answer, although a stream cuts them into pieces.

A recorder masks secrets with it, a replay puts directories of the recorded run
where those of the present one are.  Invariant: bytes in which nothing is found
come back as they are; otherwise only the events that hold a piece of a find
are written anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from mcode_exec.redaction import MASK, Redactor

#: where words stand in a text, and what takes their place: ascending, disjoint
Find = Callable[[str], Sequence[tuple[int, int, str]]]

#: a line with its end, as the standard of server-sent events has it
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|$)")
#: numbers beside a piece that tell to which of several texts it belongs
_POSITIONS = ("index", "output_index", "content_index", "summary_index")


def rewritten(body: bytes, find: Find) -> bytes:
    """`body`, an event stream or any other text, with everything replaced that `find` finds."""
    text = body.decode("utf-8", "surrogateescape")
    found = find(text)
    if found:
        body = _replaced(text, found).encode("utf-8", "surrogateescape")
    if body[:1] in (b"{", b"["):
        return _in_json(body, find)
    return _across_events(body, find) if b"data:" in body else body


def masked(body: bytes, redactor: Redactor) -> bytes:
    """`body` with its secrets masked."""
    spans = redactor.spans
    return rewritten(body, lambda text: [(start, end, MASK) for start, end in spans(text)])


def recut(pieces: Sequence[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """[time, bytes] of pieces that add up to `size` now: what was taken or added is at their end."""
    cut: list[tuple[int, int]] = []
    for at_ms, length in pieces:
        cut.append((at_ms, min(length, size)))
        size -= cut[-1][1]
    if size and cut:
        cut[-1] = (cut[-1][0], cut[-1][1] + size)
    return cut


class _Event:
    """The data of one event: the lines that hold it, and the JSON value they make."""

    def __init__(self, first_line: int) -> None:
        self.first_line = first_line
        self.lines: list[int] = []
        self.value: Any = None
        self.is_changed = False


def _in_json(body: bytes, find: Find) -> bytes:
    """One JSON text: words that its escapes hide are found as well."""
    event = _Event(0)
    try:
        event.value = json.loads(body)
    except (ValueError, RecursionError):
        return body
    for _, holder, name in _texts(event.value):
        _rewrite_pieces([(event, holder, name)], find)
    if not event.is_changed:
        return body
    return json.dumps(event.value, separators=(",", ":")).encode()


def _across_events(body: bytes, find: Find) -> bytes:
    lines = [match.group() for match in _LINE.finditer(body)]
    events = _events(lines)
    texts: dict[tuple[Any, ...], list[tuple[_Event, Any, Any]]] = {}
    for event in events:
        for key, holder, name in _texts(event.value):
            texts.setdefault(key, []).append((event, holder, name))
    for pieces in texts.values():
        _rewrite_pieces(pieces, find)
    changed = [event for event in events if event.is_changed]
    for event in changed:
        first = event.lines[0]
        end = lines[first][len(lines[first].rstrip(b"\r\n")) :]
        # half a surrogate pair can only be written as an escape
        lines[first] = b"data: " + json.dumps(event.value, separators=(",", ":")).encode() + end
        for other in event.lines[1:]:
            lines[other] = b""
    return b"".join(lines) if changed else body


def _events(lines: Sequence[bytes]) -> list[_Event]:
    """The events whose data is JSON."""
    events: list[_Event] = []
    current = _Event(0)
    for number, line in enumerate(lines):
        content = line.rstrip(b"\r\n").removeprefix(b"\xef\xbb\xbf")
        if content.startswith(b"data:"):
            current.lines.append(number)
        elif not content and current.lines:
            events.append(current)
            current = _Event(number)
    if current.lines:
        events.append(current)
    for event in events:
        data = b"\n".join(
            lines[number].rstrip(b"\r\n").removeprefix(b"\xef\xbb\xbf")[len(b"data:") :]
            for number in event.lines
        )
        try:
            event.value = json.loads(data)
        except (ValueError, RecursionError):
            event.value = None
    return events


def _texts(value: Any) -> list[tuple[tuple[Any, ...], Any, Any]]:
    """Every string of a JSON value: what tells which text it goes on with, and where it is held."""
    found: list[tuple[tuple[Any, ...], Any, Any]] = []
    left: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while left:
        key, holder = left.pop()
        if isinstance(holder, dict):
            key = (*key, *(holder[name] for name in _POSITIONS if isinstance(holder.get(name), int)))
            entries: Any = holder.items()
        elif isinstance(holder, list):
            entries = enumerate(holder)
        else:
            continue
        for name, inner in entries:
            if isinstance(inner, str):
                found.append(((*key, name), holder, name))
            else:
                left.append(((*key, name), inner))
    return found


def _rewrite_pieces(pieces: Sequence[tuple[_Event, Any, Any]], find: Find) -> None:
    whole = "".join(holder[name] for _, holder, name in pieces)
    found = find(whole)
    if not found:
        return
    at = 0
    for event, holder, name in pieces:
        text = holder[name]
        new = _part(text, at, found)
        if new != text:
            holder[name] = new
            event.is_changed = True
        at += len(text)


def _part(text: str, at: int, found: Sequence[tuple[int, int, str]]) -> str:
    """The piece `text`, which begins at `at` of the whole: the replacement stands where the find begins."""
    out: list[str] = []
    done = 0
    for whole_start, whole_end, replacement in found:
        start, end = whole_start - at, whole_end - at
        if end <= 0 or start >= len(text):
            continue
        out.append(text[done : max(start, done)])
        if start >= 0:
            out.append(replacement)
        done = min(end, len(text))
    out.append(text[done:])
    return "".join(out)


def _replaced(text: str, found: Sequence[tuple[int, int, str]]) -> str:
    return _part(text, 0, found)
