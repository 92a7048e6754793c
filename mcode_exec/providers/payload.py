"""JSON and text as providers really send them.

`decode` accepts whatever a JSON reader of good will can read: msgspec first,
the standard library for lone surrogates, raw control characters and broken
UTF-8.  Text that leaves this room is valid UTF-8 without NUL: `clean` sees to
that, and `TextJoiner` mends a surrogate pair that was cut between two pieces.
"""

from __future__ import annotations

from typing import Any

import msgspec

REPLACEMENT = "\ufffd"
#: deepest nesting of a tool call's arguments
MAX_DEPTH = 128
#: deepest nesting of anything: what is read just within an interpreter's limit breaks whatever walks through it
_MAX_NESTING = 256
#: most values of one JSON text; as objects they take many times the bytes they were written in
_MAX_VALUES = 1_000_000
#: an integer of more digits is no number that anybody counts with, and costs too much to be read
_MAX_DIGITS = 4000

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


class PayloadError(ValueError):
    """Not JSON."""


class BeyondLimitsError(PayloadError):
    """JSON perhaps, but larger in depth or number of values than anything of use; the text goes on "it is"."""


def decode(data: bytes | str, *, takes_nan: bool = True) -> Any:
    """The value of a JSON text; NaN, the infinities and endless integers, where taken at all, are null.

    Raises: PayloadError for anything that is no JSON; BeyondLimitsError.
    """
    if len(data) > _MAX_VALUES:
        _check_values(data)
    try:
        value = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = _decode_hostile(data, takes_nan)
    if len(data) > 2 * _MAX_NESTING:  # each level takes two brackets
        _check_nesting(value)
    return value


def _check_nesting(value: Any) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(_MAX_NESTING):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> BeyondLimitsError:
    return BeyondLimitsError(f"nested more than {_MAX_NESTING} levels deep")


def _check_values(data: bytes | str) -> None:
    """Count the values before any of them is made: each stands behind one of three marks, but for the last."""
    if _marks_in(data) <= _MAX_VALUES:
        return  # marks inside of strings included: nearly every large text
    import re

    # a string that never ends goes to the end of the text, so that no text is gone through twice
    string = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
    most = 2 * _MAX_VALUES  # strings: keys and values; no more are looked at
    if isinstance(data, str):
        text, strings = re.subn(string, "", data, count=most + 1, flags=re.DOTALL)
        marks = _marks_in(text)
    else:
        rest, strings = re.subn(string.encode(), b"", data, count=most + 1, flags=re.DOTALL)
        marks = _marks_in(rest)
    if strings > most or marks > _MAX_VALUES:
        raise BeyondLimitsError(f"of more than {_MAX_VALUES:,} values")


def _marks_in(data: bytes | str) -> int:
    if isinstance(data, str):
        return sum(map(data.count, "[{,"))
    return sum(map(data.count, (b"[", b"{", b",")))


def _decode_hostile(data: bytes | str, takes_nan: bool) -> Any:
    import json

    def constant(name: str) -> None:
        if not takes_nan:
            raise PayloadError(f"{name} is no JSON")

    def integer(digits: str) -> int | None:
        if len(digits) <= _MAX_DIGITS:
            return int(digits)
        if not takes_nan:
            raise PayloadError(f"a number of {len(digits)} digits is none")
        return None

    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        return json.loads(text, strict=False, parse_constant=constant, parse_int=integer)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise PayloadError(str(error)) from None


def encode(value: Any) -> bytes:
    """Compact JSON in the order the value was built: equal values give equal bytes."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(clean_value(value, _MAX_NESTING + MAX_DEPTH))


def clean(text: str) -> str:
    """`text` with NUL and lone surrogates as U+FFFD; pairs of surrogates become their character."""
    if "\0" in text:
        text = text.replace("\0", REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_value(value: Any, levels: int = MAX_DEPTH) -> Any:
    """`clean` for every text inside a JSON value, keys included.

    Raises: PayloadError for what is nested deeper than `levels`: what is read just
        within an interpreter's limit could not be written again.
    """
    if levels < 0:
        raise PayloadError("nested too deeply")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_value(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_value(item, levels - 1) for item in value]
    return value


class TextJoiner:
    """Cleans a text that comes in pieces, holding back half a surrogate pair until the next piece."""

    __slots__ = ("_held", "is_exact")

    def __init__(self) -> None:
        self._held = ""
        #: whether nothing had to be replaced so far
        self.is_exact = True

    def feed(self, piece: str) -> str:
        if piece.isascii() and "\0" not in piece and not self._held:  # nearly every piece
            return piece
        if self._held:
            piece = self._held + piece
            self._held = ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            self._held = piece[-1]
            piece = piece[:-1]
        return self._cleaned(piece)

    def finish(self) -> str:
        held, self._held = self._held, ""
        return self._cleaned(held)

    def _cleaned(self, text: str) -> str:
        cleaned = clean(text)
        if cleaned.count(REPLACEMENT) != text.count(REPLACEMENT):
            self.is_exact = False
        return cleaned


def arguments_text(value: Any) -> str:
    """The arguments of a tool call as the text that they mostly come as, though they came as a value.

    Half a surrogate pair stays what it is: a call that holds one is none to be run.
    """
    if isinstance(value, str):
        return value
    if not value:
        return ""
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:
        import json

        return json.dumps(value, separators=(",", ":"))


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, bool]:
    """The arguments of a tool call from its text, None when they are no JSON object; and whether they are exact.

    They are not when a NUL or half a surrogate pair had to be replaced in them.

    Nothing at all and `null` are the empty object; an object that was encoded
    twice (a JSON string that holds one) is taken as what it means.
    """
    if not text.strip():
        return {}, True
    try:
        value = decode(text, takes_nan=False)
        if isinstance(value, str):
            value = decode(value, takes_nan=False) if value.strip() else {}
        if value is None:
            return {}, True
        if not isinstance(value, dict):
            return None, False
        cleaned = clean_value(value)
    except PayloadError:
        return None, False
    return cleaned, bool(cleaned == value)


def as_text(value: Any) -> str:
    """`value` if it is text, else nothing."""
    return value if isinstance(value, str) else ""


def as_key(value: Any) -> int | str | None:
    """`value` if it can name a block: a number or a text."""
    return value if isinstance(value, int | str) else None


def as_object(value: Any) -> dict[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """`value` if it is an array, else an empty one."""
    return value if isinstance(value, list) else []
