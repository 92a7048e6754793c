"""Lists, as a table for people or in a form that programs read.

Invariant: the same rows in every format; a table shows a chosen few of their
columns, while json, jsonl and csv carry every field under stable names.  The
fields of a list are named by who has it, not found in its rows: a list without
any has the same csv header.  In all of them nothing acts on a terminal: json escapes it, csv shows it, lines and tabs
left alone.  Nothing is paged and nothing is coloured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from mcode_exec.output.encoding import document, to_json_line
from mcode_exec.output.escape import escape, escape_text

Row = Mapping[str, Any]

#: a cell of a table is cut here; the other formats carry the whole value
_CELL_CHARS = 72


def render(
    rows: Sequence[Row],
    list_format: str,
    *,
    name: str,
    fields: Sequence[str],
    columns: Mapping[str, str],
    cursor: str | None = None,
) -> bytes:
    """`rows` in `list_format`.

    Shape: json is one object with the rows under `name` and `nextCursor`; jsonl is one row a line; csv
    begins with `fields`, all that a row may have; a table shows `columns` (field -> heading).
    """
    if list_format == "json":
        return to_json_line(document(None, {name: list(rows), "nextCursor": cursor}))
    if list_format == "jsonl":
        return b"".join(map(to_json_line, rows))
    if list_format == "csv":
        return _csv(rows, fields)
    return _table(rows, columns)


def field_names(row: type[msgspec.Struct]) -> tuple[str, ...]:
    """The names under which the fields of a record are shown."""
    return row.__struct_encode_fields__


def _table(rows: Sequence[Row], columns: Mapping[str, str]) -> bytes:
    if not rows:
        return b""
    from tabulate import tabulate

    cells = [[_cell(row.get(field)) for field in columns] for row in rows]
    table = tabulate(cells, headers=list(columns.values()), tablefmt="plain", disable_numparse=True)
    lines = (line.rstrip() for line in table.split("\n"))
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping | list | tuple):
        value = _flat(value)
    text = escape(str(value))
    return text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 1] + "…"


def _csv(rows: Sequence[Row], fields: Sequence[str]) -> bytes:
    import csv
    import io

    unnamed = {field for row in rows for field in row} - set(fields)
    if unnamed:
        raise ValueError(f"rows have fields that the list does not name: {', '.join(sorted(unnamed))}")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(fields)
    for row in rows:
        writer.writerow([_csv_value(row.get(field)) for field in fields])
    return out.getvalue().encode()


def _csv_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list | tuple):
        value = _flat(value)
    elif isinstance(value, Decimal):
        value = format(value, "f")
    return escape_text(str(value))


def _flat(value: Any) -> str:
    return msgspec.json.encode(value).decode()
