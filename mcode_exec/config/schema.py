"""Which keys there are, what their values must be, and how a file is held to that.

`checked` turns the raw table of a document into the same table with values of
our own types (seconds, decimals, tuples), or raises the first fault with file,
line, key and, for an unknown key, the nearest known one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from mcode_exec.config import values
from mcode_exec.config.document import Document
from mcode_exec.config.lines import Index
from mcode_exec.config.values import WrongValueError
from mcode_exec.errors import McodeError

Check = Callable[[object], Any]


class Named(Struct, frozen=True):
    """A table whose keys the user makes up; every value is held to `inner`."""

    inner: Check | Mapping[str, Any]
    #: held against each key
    key: Check = values.name


Schema = Mapping[str, "Check | Named | Schema"]

_PRICES: Schema = dict.fromkeys(("input", "output", "cache_read", "cache_write"), values.price)
_MODEL: Schema = {
    "context": values.positive_integer,
    "output": values.positive_integer,
    "images": values.boolean,
    "cost": {**_PRICES, "over_200k": _PRICES},
}

_PROVIDER: Schema = {
    "api": values.api,
    "base_url": values.base_url,
    "api_key": values.key_reference,
    "api_key_file": values.text,
    "api_key_command": values.argv,
    "headers": Named(values.header, key=values.header_name),
    "query": Named(values.query_value, key=values.text),
    "auth": values.one_of("bearer", "x-api-key", "api-key"),
    "path": values.text,
    "tools": values.one_of("recorded", "live"),
    "strict": values.boolean,
    "models": Named(_MODEL, key=values.text),
}

SCHEMA: Schema = {
    "model": values.model,
    "instructions": values.texts,
    "trusted_workspaces": values.texts,
    "providers": Named(_PROVIDER),
    "catalogue": {"file": values.text, "url": values.catalogue_url},
    "share": {"auto_dir": values.text},
    "retry": {
        "max_retries": values.count,
        "base_delay": values.duration,
        "max_delay": values.duration,
        "budget": values.duration,
    },
    "timeouts": dict.fromkeys(
        ("connect", "first_byte", "idle", "command", "command_max"), values.positive_duration
    ),
    "permission": values.rule_table,
    "agents": Named(
        {
            "model": values.model,
            "prompt": values.text,
            "prompt_file": values.text,
            "permission": values.rule_table,
            "tools": values.names,
        }
    ),
    "limits": {
        "max_steps": values.positive_integer,
        "max_cost": values.positive_amount,
        "max_tokens": values.positive_integer,
        "timeout": values.positive_duration,
    },
    "env": {"pass": values.variable_names},
}

#: tables of the contract whose feature this version does not have
_NOT_AVAILABLE = ("mcp", "store")


def checked(document: Document) -> dict[str, Any]:
    """The document's table with every key known and every value of its right type.

    Raises: ConfigError.
    """
    for key in _NOT_AVAILABLE:
        if key in document.table:
            raise document.fault((key,), f'"{key}" is not available in this version of mcode; remove it.')
    return held_to(document, document.table, SCHEMA, ())


def held_to(document: Document, table: object, schema: Schema, at: tuple[str, ...]) -> dict[str, Any]:
    """`table`, which stands at `at`, with every key in `schema` and every value of its right type.

    Raises: the document's error, at the first fault.
    """
    if not isinstance(table, dict):
        raise document.fault(at, f'"{dotted(at)}" must be a table, not {values.kind(table)}.')
    out: dict[str, Any] = {}
    for key, value in table.items():
        here = (*at, key)
        if key not in schema:
            raise _unknown(document, here, schema)
        out[key] = _entry(document, value, schema[key], here)
    return out


def _entry(document: Document, value: object, inner: Check | Named | Schema, at: tuple[str, ...]) -> Any:
    if isinstance(inner, Named):
        if not isinstance(value, dict):
            raise document.fault(at, f'"{dotted(at)}" must be a table, not {values.kind(value)}.')
        out = {}
        for key, one in value.items():
            here = (*at, key)
            _value(document, key, inner.key, here, "the name in ")
            out[key] = _entry(document, one, inner.inner, here)
        return out
    if isinstance(inner, Mapping):
        return held_to(document, value, inner, at)
    return _value(document, value, inner, at)


def _value(document: Document, value: object, check: Check, at: tuple[str, ...], what: str = "") -> Any:
    try:
        return check(value)
    except WrongValueError as wrong:
        raise document.fault((*at, *wrong.below), f'{what}"{dotted((*at, *wrong.below))}" {wrong}') from None


def _unknown(document: Document, at: tuple[str, ...], schema: Schema) -> McodeError:
    import difflib

    nearest = difflib.get_close_matches(at[-1], schema, n=1, cutoff=0.5)
    guess = f'did you mean "{dotted((*at[:-1], nearest[0]))}"?' if nearest else None
    hint = guess or f"known here: {', '.join(schema)}."
    return document.fault(at, f'unknown key "{dotted(at)}"; {hint}')


def dotted(key: tuple[str, ...]) -> str:
    """The key as it is written in TOML, control characters escaped."""
    parts = (part for part in key if not isinstance(part, Index))
    return ".".join(part if values.is_bare(part) else repr(part) for part in parts)
