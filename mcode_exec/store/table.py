"""What every table has in common, and the rows of a query."""

from __future__ import annotations

from typing import Any

from peewee import Model


class Table(Model):
    """Bound to its database by Store; never connects by itself."""

    class Meta:
        legacy_table_names = False


def dicts(query: Any) -> list[dict[str, Any]]:
    """The rows of a query, by column name (peewee's stubs lose the row type here)."""
    return list(query.dicts())


def tuples(query: Any) -> list[tuple[Any, ...]]:
    """The rows of a query, by position."""
    return list(query.tuples())
