"""Whether a request is the one that was recorded, and if not, what is different.

Two runs of the same thing differ in what names them: dates, the ids that mcode
makes, and the directories they ran in.  Those are brought to one form, ids
numbered by their first appearance, so that a result still belongs to its call.
`***` in a recording stands for anything: what was there is masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from mcode_exec.plurals import counted
from mcode_exec.recordings.rewriting import Find, replaced
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
    """Brings the texts of one run to the form in which they are compared.

    `move` takes a recorded text to the directories of this run, `name` those to their names.
    """

    def __init__(self, name: Find, move: Find | None = None) -> None:
        self._steps = (name,) if move is None else (move, name)
        self._ids: dict[str, str] = {}

    def json(self, value: Any) -> Any:
        """The same value with every string in that form."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.json(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(inner) for inner in value]
        return value

    def text(self, text: str) -> str:
        for find in self._steps:
            text = replaced(text, find)
        text = _MACHINE.sub("", text)
        text = _ID.sub(lambda match: self._ids.setdefault(match.group(), f"<id {len(self._ids) + 1}>"), text)
        return _DATE.sub("<date>", text)


def nearest(one: Any, other: Any, now: Any) -> Any:
    """`one`, with the texts of `other` where these are what is there now; both are of one shape."""
    if isinstance(one, dict) and isinstance(now, dict):
        pairs = zip(one.items(), other.values(), strict=False)
        return {key: nearest(inner, twin, now.get(key)) for (key, inner), twin in pairs}
    if isinstance(one, list) and isinstance(now, list):
        return [nearest(*texts) for texts in zip(one, other, [*now, *one[len(now) :]], strict=False)]
    return other if _is_same(other, now) else one


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
            found.append(f"{at}: recorded {counted(len(recorded), 'entry', 'entries')}, now {len(now)}")
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
    """The value as JSON on one line; of a long text the part around its first difference from the other."""
    if isinstance(value, str) and isinstance(other, str):
        return around(value, other)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 3 * _AROUND else text[: 3 * _AROUND] + "…"


def around(text: str, other: str) -> str:
    """The part of a text around its first difference from the other, as a JSON string."""
    start = first_difference(text, other)
    first = max(0, start - _AROUND)
    last = start + _AROUND
    shown = json.dumps(text[first:last], ensure_ascii=False)
    return ("…" if first else "") + shown + ("…" if last < len(text) else "")


def first_difference(one: Sequence[Any], other: Sequence[Any]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, pair in pairs if pair[0] != pair[1]), min(len(one), len(other)))
