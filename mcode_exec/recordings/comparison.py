"""Whether a request is the one that was recorded, and if not, what is different.

Two runs of the same thing differ in what names them: dates, the ids that mcode
makes, and the directories they ran in.  Those are brought to one form, ids
numbered by their first appearance, so that a result still belongs to its call.
`***` in a recording stands for anything: what was there is masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from mcode_exec.recordings.layout import Place
from mcode_exec.redaction import MASK

#: so many differences are shown, each with so many characters around it
_MAX_SHOWN = 3
_AROUND = 40

_DAYS, _MONTHS = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)", "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DATE = re.compile(
    # ISO 8601, with or without a time; RFC 9110 and `date`
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z| ?[+-]\d\d:?\d\d)?)?"
    rf"|\b{_DAYS},? (?:\d{{1,2}} {_MONTHS}|{_MONTHS} +\d{{1,2}})(?: \d{{4}})?"
    r" \d\d:\d\d:\d\d(?: [A-Z]{3,4})?(?: \d{4})?"
)
_ID = re.compile(
    r"\b(?:call_[0-9a-f]{24}|(?:mvs|run|own)_[0-9a-f]{32}|msg-user-v1-[0-9a-f]{64}|msg-[0-9a-f]{32}"
    r"|mcode-run-[0-9a-f]+|(?:turn_)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b"
)
#: lines of the system prompt that tell of the machine, not of the work
_MACHINE = re.compile(r"^(?:Git branch|Platform): .*\n?", re.MULTILINE)


class Normal:
    """Brings the texts of one run to the form in which they are compared."""

    def __init__(self, places: Iterable[Place]) -> None:
        ordered = sorted(filter(_is_place, places), key=lambda place: -len(place.path))
        self._names = {place.path: f"<{place.name}>" for place in reversed(ordered)}
        # what goes on with a letter is another directory
        any_path = "|".join(re.escape(place.path) for place in ordered)
        self._path = re.compile(rf"(?:{any_path})(?![\w.-]*\w)") if any_path else None
        self._ids: dict[str, str] = {}

    def json(self, value: Any) -> Any:
        """The same value with every string in that form."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.json(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(inner) for inner in value]
        return value

    def text(self, text: str) -> str:
        if self._path is not None:
            text = self._path.sub(lambda match: self._names[match.group()], text)
        text = _MACHINE.sub("", text)
        text = _ID.sub(lambda match: self._ids.setdefault(match.group(), f"<id {len(self._ids) + 1}>"), text)
        return _DATE.sub("<date>", text)


def moved(places: Sequence[Place], here: Sequence[Place]) -> list[tuple[str, str]]:
    """Directories of a recorded run, each with the one that is now what it was; longest first."""
    now = {place.name: place.path for place in here}
    pairs = [
        (place.path, now[place.name]) for place in places if now.get(place.name) not in (None, place.path)
    ]
    return sorted(pairs, key=lambda pair: -len(pair[0]))


def finder(directories: Sequence[tuple[str, str]], ids: Sequence[tuple[str, str]] = ()) -> Any:
    """What finds the first of each pair in a text, to put the second in its place; directories longest first."""
    new = dict((*directories, *ids))
    if not new:
        return lambda _text: ()
    kinds = [rf"(?:{'|'.join(re.escape(old) for old, _ in directories)})(?![\w.-]*\w)"] if directories else []
    kinds += [re.escape(old) for old, _ in ids]
    pattern = re.compile("|".join(kinds))
    return lambda text: [(m.start(), m.end(), new[m.group()]) for m in pattern.finditer(text)]


def _is_place(place: Place) -> bool:
    """Whether a path is told from ordinary text; a recording may come from anybody."""
    return place.path.startswith("/") and len(place.path) > 1


def differences(recorded: Any, now: Any) -> list[str]:
    """Where two normalised JSON values differ: path, what was recorded, what is there now; at most three."""
    found: list[str] = []
    _compare(recorded, now, "", found)
    return found[:_MAX_SHOWN]


def _compare(recorded: Any, now: Any, at: str, found: list[str]) -> None:
    if len(found) >= _MAX_SHOWN:
        return
    if isinstance(recorded, dict) and isinstance(now, dict):
        for key in [*recorded, *(key for key in now if key not in recorded)]:
            here = f"{at}.{key}" if at else str(key)
            if key not in now:
                found.append(f"{here}: recorded {_shown(recorded[key])}, now absent")
            elif key not in recorded:
                found.append(f"{here}: not recorded, now {_shown(now[key])}")
            else:
                _compare(recorded[key], now[key], here, found)
    elif isinstance(recorded, list) and isinstance(now, list):
        if len(recorded) != len(now):
            found.append(f"{at}: recorded {len(recorded)} entries, now {len(now)}")
        for index, (one, other) in enumerate(zip(recorded, now, strict=False)):
            _compare(one, other, f"{at}[{index}]", found)
    elif not _is_same(recorded, now):
        found.append(f"{at or 'all of it'}: recorded {_shown(recorded, now)}, now {_shown(now, recorded)}")


def _is_same(recorded: Any, now: Any) -> bool:
    if isinstance(recorded, str) and isinstance(now, str) and MASK in recorded:
        return _fits(recorded.split(MASK), now)
    # True equals 1 in Python, and is another value in JSON
    return type(recorded) is type(now) and bool(recorded == now)


def _fits(parts: Sequence[str], text: str) -> bool:
    """Whether `text` is the parts in their order with anything between them."""
    first, *middle, last = parts
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def _shown(value: Any, other: Any = None) -> str:
    """The value on one line; of a long text the part around its first difference from the other."""
    if isinstance(value, str) and isinstance(other, str):
        start = next(
            (i for i, pair in enumerate(zip(value, other, strict=False)) if pair[0] != pair[1]),
            min(len(value), len(other)),
        )
        first = max(0, start - _AROUND)
        last = start + _AROUND
        return ("…" if first else "") + repr(value[first:last]) + ("…" if last < len(value) else "")
    text = repr(value)
    return text if len(text) <= 3 * _AROUND else text[: 3 * _AROUND] + "…"
