"""Directories of a run in texts: where they are named, and what takes their place.

Invariants: a text is gone through once, and the longest directory that stands
at a place counts, so that nothing is moved twice and one that stayed where it
was shields what is in it from the one around it.  What only contains a
directory's letters (`/tmp` in `/data/tmp` or `/tmpfs`) does not name it.  In a
JSON text, and in the JSON texts in its strings, a directory is found however it
is escaped, and what takes its place is escaped as often.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from mcode_exec.recordings.layout import Place
from mcode_exec.recordings.rewriting import Find

#: words, each with what takes its place
Pairs = Sequence[tuple[str, str]]

#: the name of a directory goes on: it is another one
_GOES_ON = r"(?![\w.@%+~\-\udc80-\udcff]*[\w\udc80-\udcff])"
#: what stands before a path; anything else is the beginning of a longer one
_BEFORE = re.compile(
    r"(?:\A|[^\w.~+*?)}\]/\\\-\udc80-\udcff]"
    # a URL; an escape of JSON in a text that is none; colours of a terminal
    r"|://|file://[\w.\-]+|\\[nrtbf]|\x1b\[[\d;]*[A-Za-z]|\[[\d;]+m"
    # a line of a diff; a flag of one letter; a language that writes without spaces
    r"|(?:\A|\n)[+\-]|(?:\A|[\s\"'=,:(])-[A-Za-z]|(?:\A|[^\w.~+*?)}\]/\\\-])\w*[^\x00-\x7f])\Z"
)
#: so many characters before a path are looked at
_LOOK_BACK = 64

_SPACE = re.compile(r"[\s\ufeff]*")
_LITERAL = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u....|.)", re.DOTALL)
_DECODER = json.JSONDecoder(strict=False)


def moved(was: Iterable[Place], here: Iterable[Place]) -> Pairs:
    """Directories of a recorded run, each with the one that is now what it was, even if that is the same one."""
    now, recorded = _by_name(here), _by_name(was)
    return [(path, now[name]) for name, path in recorded.items() if name in now]


def named(here: Iterable[Place], was: Iterable[Place]) -> Pairs:
    """Directories of this run, each with the name it is compared by; only those that both runs have."""
    recorded = _by_name(was)
    return [(path, f"<{name}>") for name, path in _by_name(here).items() if name in recorded]


def _by_name(places: Iterable[Place]) -> dict[str, str]:
    """Those that can be told from ordinary text; a recording may come from anybody."""
    return {place.name: place.path for place in places if place.path.startswith("/") and len(place.path) > 1}


def finder(directories: Pairs, ids: Pairs = ()) -> Find:
    """What finds the first of each pair in a text, to put the second in its place."""
    new: dict[str, str] = {}
    for old, now in directories:
        for spelled, instead in _spellings(old, now):
            # of two that are one directory the first counts
            new.setdefault(spelled, instead)
    paths = sorted(new, key=len, reverse=True)
    kinds = [f"(?P<path>{'|'.join(map(re.escape, paths))}){_GOES_ON}"] if paths else []
    kinds += [re.escape(old) for old, _ in ids]
    if not kinds:
        return lambda _text: ()
    new.update(ids)
    pattern = re.compile("|".join(kinds))

    def plain(text: str, at: int) -> Iterator[tuple[int, int, str]]:
        while match := pattern.search(text, at):
            start, at = match.span()
            if match.lastgroup is not None and not _BEFORE.search(text, max(0, start - _LOOK_BACK), start):
                at = start + 1
            elif new[match.group()] != match.group():
                yield start, at, new[match.group()]

    def find(text: str) -> list[tuple[int, int, str]]:
        end = _json_end(text)
        return [*_in_literals(text, end, find), *plain(text, end)]

    return find


def _spellings(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Both as they are, and as they stand in JSON, and in JSON within JSON, that is quoted in another text."""
    spelled = [(old, new)]
    for _ in range(3):
        yield from spelled
        spelled = [
            (_escaped(one, is_ascii), _escaped(other, is_ascii))
            for one, other in spelled
            for is_ascii in (False, True)
        ]


def _escaped(text: str, is_ascii: bool = True) -> str:
    return json.dumps(text, ensure_ascii=is_ascii)[1:-1]


def _json_end(text: str) -> int:
    """How far a text is JSON objects and arrays, one after the other."""
    at = 0
    while True:
        space = _SPACE.match(text, at)
        start = space.end() if space else at
        if text[start : start + 1] not in ("{", "["):
            return at
        try:
            at = _DECODER.raw_decode(text, start)[1]
        except (ValueError, RecursionError):
            return at


def _in_literals(text: str, end: int, find: Find) -> Iterator[tuple[int, int, str]]:
    """Finds in the strings of the JSON that ends at `end`, as places of the text they are written in."""
    for literal in _LITERAL.finditer(text, 0, end):
        written, at = literal.group(1), literal.start(1)
        if found := find(_DECODER.decode(literal.group()) if "\\" in written else written):
            offsets = _offsets(written)
            for start, stop, new in found:
                yield at + offsets[start], at + offsets[stop], _escaped(new)


def _offsets(written: str) -> Sequence[int]:
    """Where each character that a string of JSON says is written; its end as well."""
    offsets: list[int] = []
    at = 0
    for escape in _ESCAPE.finditer(written):
        offsets += range(at, escape.start() + 1)
        at = escape.end()
    offsets += range(at, len(written) + 1)
    return offsets
