"""Records as JSON lines: redacted string by string, numbers as numbers, always valid UTF-8.

Redaction happens before encoding, because a secret with a quote or a backslash
in it looks different inside JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

#: of every JSON document; rises only on a break
SCHEMA_VERSION = 1

_encoder = msgspec.json.Encoder(decimal_format="number")


def to_json_line(record: object, redact: Callable[[str], str] | None = None) -> bytes:
    """`record` as one line of JSON with its line end."""
    if redact is not None:
        record = _clean(msgspec.to_builtins(record, builtin_types=(Decimal,)), redact)
    try:
        return _encoder.encode(record) + b"\n"
    except UnicodeEncodeError:
        return _with_surrogates(record)


def document(kind: str | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """One JSON object that a command prints: the version of its shape first, then its type where it has one."""
    head: dict[str, Any] = {"schemaVersion": SCHEMA_VERSION}
    if kind is not None:
        head["type"] = kind
    return {**head, **fields}


def _clean(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): _clean(item, redact) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, redact) for item in value]
    return value


def _with_surrogates(record: object) -> bytes:
    """Lone surrogates, which UTF-8 cannot carry, as the escapes that JSON has for them."""
    import json

    builtins = msgspec.to_builtins(record, builtin_types=(Decimal,))
    return json.dumps(builtins, separators=(",", ":"), default=float).encode() + b"\n"
