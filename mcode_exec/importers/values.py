"""Values of foreign JSON: read within bounds, and taken only for what they are.

A text that leaves here is valid UTF-8 without NUL.  A number is no bool, a
count not negative; what is of another type is None, not an error.
"""

from __future__ import annotations

import base64
import binascii
import re
from decimal import Decimal
from typing import Any

import msgspec

#: characters of one text, and of one tool's output, that are kept
MAX_TEXT = 4 * 1024 * 1024
MAX_OUTPUT = 256 * 1024
#: bytes of one line, row or file of JSON
MAX_JSON_BYTES = 64 * 1024 * 1024
#: what some shells and editors write before a file's text
BOM = b"\xef\xbb\xbf"
_MAX_DEPTH = 128
_REPLACEMENT = "\ufffd"
_decode = msgspec.json.Decoder().decode
_DATA_URL = re.compile(r"data:([a-z0-9.+-]+/[a-z0-9.+-]+)?(?:;[a-z0-9=._-]+)*;base64,", re.IGNORECASE)


class UnreadableError(ValueError):
    """It is no JSON, or none of use."""


def read_object(raw: bytes | str) -> dict[str, Any]:
    """The JSON object that `raw` is.  Raises: UnreadableError."""
    if len(raw) > MAX_JSON_BYTES:
        raise UnreadableError(f"it has more than {MAX_JSON_BYTES >> 20} MiB")
    try:
        value = _decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = _read_hostile(raw)
    if not isinstance(value, dict):
        raise UnreadableError("it is no JSON object")
    return value


def _read_hostile(raw: bytes | str) -> Any:
    """JSON with lone surrogates, which JavaScript writes, raw control characters, or a byte order mark."""
    import json

    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
        return json.loads(text.removeprefix("\ufeff"), strict=False)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"it is no JSON ({error})") from error


def clean(text: str) -> str:
    """`text` without NUL and lone surrogates."""
    if "\0" in text:
        text = text.replace("\0", _REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_value(value: Any, depth: int = _MAX_DEPTH) -> Any:
    """`clean` for every text in a JSON value; what is nested too deeply is left out."""
    if isinstance(value, str):
        return clean(value)
    if depth <= 0:
        return None
    if isinstance(value, dict):
        return {clean(str(key)): clean_value(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_value(item, depth - 1) for item in value]
    return value


def text_of(value: Any) -> str | None:
    return clean(value) if isinstance(value, str) else None


def object_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def count_of(value: Any) -> int | None:
    """A number of tokens or bytes."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value)


def cost_of(value: Any) -> str | None:
    """USD as decimal digits, as it was stored; binary noise of a float is not money."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 10**9:
        return None
    return format(Decimal(repr(value)).normalize() + 0, "f")


def moment_of(value: Any) -> int | None:
    """UTC milliseconds of a number of them, or of an ISO 8601 text."""
    if isinstance(value, str):
        from datetime import UTC, datetime

        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        value = int(moment.timestamp() * 1000)
    found = count_of(value)
    # before 1e11 it is seconds; year 9999 is where a calendar ends
    if found is not None and found < 10**11:
        found *= 1000
    return found if found is not None and found < 253_402_300_800_000 else None


def bytes_of_data_url(url: str) -> tuple[str | None, bytes] | None:
    """Mime and bytes of a `data:` URL; None for any other."""
    found = _DATA_URL.match(url)
    if found is None:
        return None
    data = bytes_of_base64(url[found.end() :])
    return None if data is None else (found[1], data)


def bytes_of_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
