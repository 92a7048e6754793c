"""Large stores, made by multiplying what a real run has left: no knowledge of the schema but a few names.

Rows are copied column by column; only ids, places and times change.  Names that this file relies on:
`sessions` (`id`, `history_relative_dir`, `history_bytes`, `activity_ms`, `workspace`), `messages` (`row`, `id`,
`session_id`, `data`) and the fields `id` and `message` of a history record.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from pathlib import Path
from typing import Any


def _open(data: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(data / "mcode.db")
    connection.row_factory = sqlite3.Row
    return connection


def _insert(connection: sqlite3.Connection, table: str, rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    marks = ", ".join("?" * len(names))
    sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"
    connection.executemany(sql, [[row[name] for name in names] for row in rows])


def multiply_sessions(data: Path, count: int, *, other_workspaces: int = 99) -> None:
    """Add sessions like the one that is there: half in its workspace, half spread over others.

    All of them are older than it, so that `--continue` must find the one real one.
    """
    connection = _open(data)
    template = dict(connection.execute("SELECT * FROM sessions ORDER BY activity_ms DESC").fetchone())
    rows = []
    for number in range(count):
        one = f"mvs_{uuid.uuid4().hex}"
        place = template["workspace"] if number % 2 else f"/nowhere/{number % other_workspaces}"
        rows.append(
            {
                **template,
                "id": one,
                "workspace": place,
                "activity_ms": template["activity_ms"] - 1000 - number,
                "history_relative_dir": template["history_relative_dir"].replace(template["id"], one),
            }
        )
    with connection:
        _insert(connection, "sessions", rows)
    _settle(connection)


def multiply_messages(data: Path, session_dir: Path, count: int) -> None:
    """Repeat the turn of a session until its history holds `count` messages, on disk and in rows."""
    path = session_dir / "messages.jsonl"
    header, *lines = path.read_bytes().split(b"\n")[:-1]
    records = [json.loads(line) for line in lines]
    session_id = json.loads(header)["session_id"]
    connection = _open(data)
    found = connection.execute("SELECT * FROM messages WHERE session_id = ? ORDER BY row", (session_id,))
    templates = [dict(row) for row in found]
    by_id = {row["id"]: row for row in templates}
    written, rows = [header, *lines], []
    for number in range((count - len(records)) // len(records)):
        for record in records:
            one = f"{record['id']}-{number}"
            copied = json.dumps({**record, "id": one}, ensure_ascii=False, separators=(",", ":"))
            written.append(copied.encode())
            if row := by_id.get(record["id"]):
                data_json = json.dumps({**json.loads(row["data"]), "id": one}).encode()
                rows.append({**row, "row": None, "id": one, "data": data_json})
    whole = b"\n".join(written) + b"\n"
    path.write_bytes(whole)
    with connection:
        _insert(connection, "messages", rows)
        connection.execute("UPDATE sessions SET history_bytes = ? WHERE id = ?", (len(whole), session_id))
    _settle(connection)


def _settle(connection: sqlite3.Connection) -> None:
    """Leave nothing behind that the first measured run would have to write: neither WAL nor dirty pages."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    os.sync()
