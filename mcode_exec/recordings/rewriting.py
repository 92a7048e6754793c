"""Replacing words in the bytes of an answer, although a stream cuts them into pieces.

A recorder masks secrets with it, as written and as meant; a replay puts
directories of the recorded run where those of the present one are, each once.
Invariant: bytes in which nothing is found come back as they are; otherwise only
the events that hold a piece of a find are written anew.
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
    if found := find(text):
        body = _part(text, 0, found).encode("utf-8", "surrogateescape")
    if body[:1] in (b"{", b"["):
        return _in_json(body, find)
    return _across_events(body, find) if b"data:" in body else body


def relocated(body: bytes, find: Find) -> bytes:
    """`body` with everything replaced once that `find` finds, which looks into JSON texts by itself."""
    if b"data:" not in body or body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        text = body.decode("utf-8", "surrogateescape")
        return replaced(text, find).encode("utf-8", "surrogateescape")
    lines = [match.group() for match in _LINE.finditer(body)]
    events = _events(lines)
    in_events = {number for event in events if event.is_json for number in event.lines}
    for number, line in enumerate(lines):
        if number not in in_events:
            text = line.decode("utf-8", "surrogateescape")
            lines[number] = replaced(text, find).encode("utf-8", "surrogateescape")
    _rewrite_events(events, find)
    for event in events:
        if (value := _renamed(event.value, find)) != event.value:
            event.value, event.is_changed = value, True
    return _written(lines, events)


def replaced(text: str, find: Find) -> str:
    """`text` with everything replaced that `find` finds."""
    found = find(text)
    return _part(text, 0, found) if found else text


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

    @property
    def is_json(self) -> bool:
        return isinstance(self.value, dict | list)


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
    _rewrite_events(events, find)
    return _written(lines, events) if any(event.is_changed for event in events) else body


def _rewrite_events(events: Sequence[_Event], find: Find) -> None:
    texts: dict[tuple[Any, ...], list[tuple[_Event, Any, Any]]] = {}
    for event in events:
        for key, holder, name in _texts(event.value):
            texts.setdefault(key, []).append((event, holder, name))
    for pieces in texts.values():
        _rewrite_pieces(pieces, find)


def _written(lines: list[bytes], events: Sequence[_Event]) -> bytes:
    for event in events:
        if not event.is_changed:
            continue
        first = event.lines[0]
        end = lines[first][len(lines[first].rstrip(b"\r\n")) :]
        # half a surrogate pair can only be written as an escape
        lines[first] = b"data: " + json.dumps(event.value, separators=(",", ":")).encode() + end
        for other in event.lines[1:]:
            lines[other] = b""
    return b"".join(lines)


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


def _renamed(value: Any, find: Find) -> Any:
    """The same value, with what is found in the names of its fields replaced."""
    if isinstance(value, dict):
        return {replaced(name, find): _renamed(inner, find) for name, inner in value.items()}
    return [_renamed(inner, find) for inner in value] if isinstance(value, list) else value


def _rewrite_pieces(pieces: Sequence[tuple[_Event, Any, Any]], find: Find) -> None:
    whole = "".join(holder[name] for _, holder, name in pieces)
    found = find(whole)
    if not found:
        return
    at = first = 0
    for event, holder, name in pieces:
        text = holder[name]
        while first < len(found) and found[first][1] <= at:
            first += 1
        new = _part(text, at, found, first)
        if new != text:
            holder[name] = new
            event.is_changed = True
        at += len(text)


def _part(text: str, at: int, found: Sequence[tuple[int, int, str]], first: int = 0) -> str:
    """The piece `text`, which begins at `at` of the whole: the replacement stands where the find begins.

    Finds before the one of number `first` are over.
    """
    out: list[str] = []
    done = 0
    for index in range(first, len(found)):
        whole_start, whole_end, replacement = found[index]
        start, end = whole_start - at, whole_end - at
        if start >= len(text):
            break
        if end <= 0:
            continue
        out.append(text[done : max(start, done)])
        if start >= 0:
            out.append(replacement)
        done = min(end, len(text))
    out.append(text[done:])
    return "".join(out)
