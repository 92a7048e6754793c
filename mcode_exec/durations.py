"""Durations as people write them: a number with its unit.

One form everywhere (flags, configuration, job specs): `1.5s`, `2m`, `250ms`.
A bare number is refused, because nobody can tell seconds from milliseconds.
Reading gives float seconds; waiting and clocks are other modules' business.
"""

from __future__ import annotations

from mcode_exec.errors import ConfigError, McodeError

#: longest unit name first, so that `ms` is not taken for `s`
_UNITS = (
    ("ms", 0.001),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86400.0),
)

#: beyond this a number is a slip of the pen, and timers overflow
MAX_DURATION_S = 36_500 * 86_400.0  # a hundred years


def parse_duration(text: str, *, name: str = "duration", error: type[McodeError] = ConfigError) -> float:
    """Read `text` as seconds.

    `name` is what the sentence calls it (`--timeout`, `retry.budget`).
    Raises: `error`, with the right form in its sentence.
    """
    for unit, seconds in _UNITS:
        if text.endswith(unit) and _is_number(text[: -len(unit)]):
            value = float(text[: -len(unit)]) * seconds
            if value > MAX_DURATION_S:
                raise error(f"{name}: {_shown(text)} is too long; the longest duration is 36500d.")
            return value
    raise error(f"{name}: {_shown(text)} is {_fault(text)}; {_advice(text)}.")


def format_duration(seconds: float) -> str:
    """The same length for people: `350ms`, `1.5s`, `2m 05s`, `1h 02m`, `3d 4h`."""
    if seconds < 0.9995:
        return f"{round(max(seconds, 0.0) * 1000)}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    total = round(seconds)
    if total < 3600:
        return f"{total // 60}m {total % 60:02d}s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60}h {minutes % 60:02d}m"
    hours = round(seconds / 3600)
    return f"{hours // 24}d {hours % 24}h"


def _is_number(text: str) -> bool:
    # float() would take "1_0", "1e3", "nan", " 1" and digits of other scripts
    whole, dot, fraction = text.partition(".")
    return _is_digits(whole) and (_is_digits(fraction) if dot else True)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _fault(text: str) -> str:
    if not text.strip():
        return "no duration"
    if _is_number(text):
        return "a number without a unit"
    if text.startswith("-"):
        return "negative"
    return "no duration"


def _advice(text: str) -> str:
    if _is_number(text) and len(text) <= 12:
        return f"write {text}s or {text}m: a number with ms, s, m, h or d"
    return "write a number with ms, s, m, h or d, such as 1.5s or 2m"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
