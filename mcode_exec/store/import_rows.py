"""Rows of `imports`, `session_aliases` and `tombstones`: what sessions of other programs became here."""

from __future__ import annotations

from typing import Any

import msgspec
from peewee import IntegerField

from mcode_exec.records.imported import ImportRow
from mcode_exec.store.statement import Statement
from mcode_exec.store.tables import Imports, SessionAliases, Tombstones, dicts, tuples

_MOST_NAMED = 2  # sessions: enough to know whether a name is unique


def find_import(session_id: str) -> ImportRow | None:
    query = Imports.select().where(Imports.session_id == session_id)
    return next((_row(row) for row in dicts(query)), None)


def _row(row: dict[str, Any]) -> ImportRow:
    row["losses"] = msgspec.json.decode(row["losses"])
    return msgspec.convert(row, ImportRow)


_NUMBERS = frozenset(field.name for field in Imports._meta.sorted_fields if isinstance(field, IntegerField))
_COLUMNS = ImportRow.__struct_fields__
_PUT = Statement(
    lambda *values: Imports.replace(**dict(zip(_COLUMNS, values, strict=True))),
    *(int if name in _NUMBERS else str for name in _COLUMNS),
)
_PUT_ALIAS = Statement(
    lambda alias, session_id: SessionAliases.insert(name=alias, session_id=session_id).on_conflict_ignore(),
    *(str, str),
)


def put_import(row: ImportRow) -> None:
    """Insert a row, or replace that of an earlier import of the same session."""
    values = msgspec.structs.asdict(row)
    values["losses"] = msgspec.json.encode(row.losses).decode()
    _PUT.count(*values.values())


def put_alias(alias: str, session_id: str) -> None:
    _PUT_ALIAS.count(alias, session_id)


def sessions_called(alias: str) -> list[str]:
    """At most two ids of sessions that another program calls `alias`, or by a name that begins so."""
    exact = SessionAliases.select(SessionAliases.session_id).where(SessionAliases.name == alias)
    found = [session_id for (session_id,) in tuples(exact.limit(_MOST_NAMED))]
    if found:
        return found
    begun = SessionAliases.select(SessionAliases.session_id).where(
        # '{' is the character behind every one that an alias may have
        (SessionAliases.name >= alias) & (SessionAliases.name < alias + "{")
    )
    return [session_id for (session_id,) in tuples(begun.limit(_MOST_NAMED))]


def has_tombstone(session_id: str) -> bool:
    """Whether a session was deleted here that an import would bring back."""
    return bool(Tombstones.select().where(Tombstones.session_id == session_id).exists())


def delete_tombstone(session_id: str) -> None:
    Tombstones.delete().where(Tombstones.session_id == session_id).execute()
