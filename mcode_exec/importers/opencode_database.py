"""OpenCode's database, V1 (`session`, `message`, `part`) and V2 (`session_v2`, `session_message`).

On its first start V2 converts V1's rows and keeps them: a session that is in
both is read as V2.  Columns differ between versions and are asked for first.
Tables with credentials and accounts are never named in a query.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from mcode_exec.importers import losses as lost
from mcode_exec.importers import opencode_v2
from mcode_exec.importers.building import Item, Transcript
from mcode_exec.importers.opencode_messages import Cut, Parts, is_finished_summary, items_of, tail_start
from mcode_exec.importers.source import Unusable, UnusableSessionError, UnusableSourceError
from mcode_exec.importers.sqlite_source import ForeignDatabase, Scratch
from mcode_exec.importers.values import UnreadableError, moment_of, object_of, read_object, text_of
from mcode_exec.records.imported import ForeignSession

_NEEDED = {
    "session": {"id", "directory", "title", "time_created"},
    "message": {"id", "session_id", "data"},
    "part": {"id", "message_id", "data"},
}
_OPTIONAL = ("parent_id", "project_id", "version", "time_updated", "time_archived", "revert")


class OpenCodeDatabase:
    """One `opencode.db`."""

    kind = "opencode.db"

    def __init__(self, path: str, scratch: Scratch) -> None:
        """Raises: UnusableSourceError."""
        self.path = path
        self._database = ForeignDatabase(path, scratch)
        self._has_v1 = all(needed <= self._database.columns(table) for table, needed in _NEEDED.items())
        self._has_v2 = bool(self._database.columns("session_v2")) and {
            "id",
            "session_id",
            "type",
            "data",
        } <= (self._database.columns("session_message"))
        if not (self._has_v1 or self._has_v2):
            self._database.close()
            raise UnusableSourceError(f"{path} is no database of OpenCode: its tables are not there")
        self._messages = self._parts = self._v2_messages = ""

    def close(self) -> None:
        self._database.close()

    def sessions(self) -> Iterator[ForeignSession | Unusable]:
        try:
            if self._has_v2:
                yield from self._sessions("session_v2", is_v2=True)
            if self._has_v1:
                yield from self._sessions("session", is_v2=False)
        except sqlite3.Error as error:
            raise UnusableSourceError(f"{self.path} is damaged: {error}") from error

    def count(self) -> int:
        return max(self._database.count("session"), self._database.count("session_v2"))

    def _sessions(self, table: str, *, is_v2: bool) -> Iterator[ForeignSession | Unusable]:
        columns = self._database.columns(table)
        names = ["id", "directory", "title", "time_created", *(one for one in _OPTIONAL if one in columns)]
        parent = "parent_id IS NOT NULL, " if "parent_id" in columns else ""
        also = (
            "" if is_v2 or not self._has_v2 else " WHERE id NOT IN (SELECT session_id FROM session_message)"
        )
        if is_v2:
            also = " WHERE id IN (SELECT session_id FROM session_message)"
        sql = f"SELECT {', '.join(names)} FROM {table}{also} ORDER BY {parent}time_created, id"  # noqa: S608
        for row in self._database.rows(sql):
            yield self._session(row, is_v2=is_v2)

    def _session(self, row: dict[str, Any], *, is_v2: bool) -> ForeignSession | Unusable:
        source_id = text_of(row["id"])
        created_ms = moment_of(row["time_created"])
        if source_id is None or created_ms is None:
            return Unusable(
                origin="opencode", source_id=str(row["id"])[:128], source=self.path, why="its row is damaged"
            )
        updated_ms = moment_of(row.get("time_updated")) or created_ms
        kind = "v2" if is_v2 else "v1"
        return ForeignSession(
            origin="opencode",
            source_id=source_id,
            source=self.path,
            workspace=text_of(row["directory"]),
            created_ms=created_ms,
            updated_ms=max(updated_ms, created_ms),
            fingerprint=f"{kind}:{updated_ms}:{self._state(source_id, is_v2=is_v2)}:{row.get('revert') or ''}",
            title=text_of(row["title"]),
            archived_ms=moment_of(row.get("time_archived")),
            parent_source_id=text_of(row.get("parent_id")),
            repository=text_of(row.get("project_id")),
            version=text_of(row.get("version")),
        )

    def _state(self, session_id: str, *, is_v2: bool) -> str:
        """What tells whether something was said since: how much there is, and when it was last changed."""
        table = self._v2_table() if is_v2 else self._message_table()
        columns = self._database.columns("session_message" if is_v2 else "message")
        newest = (
            f"max({'session_message' if is_v2 else 'message'}.time_updated)"
            if "time_updated" in columns
            else "0"
        )
        size = f"sum(length({'session_message' if is_v2 else 'message'}.data))"
        found = next(
            self._database.rows(
                f"SELECT count(*) AS n, {newest} AS t, {size} AS s FROM {table} "  # noqa: S608
                f"WHERE {self._where(table, 'session_message' if is_v2 else 'message')} = ?",
                session_id,
            )
        )
        return f"{found['n']}/{found['t']}/{found['s']}"

    def _message_table(self) -> str:
        if not self._messages:
            self._messages = self._database.index("message", "session_id")
        return self._messages

    def _part_table(self) -> str:
        if not self._parts:
            self._parts = self._database.index("part", "message_id")
        return self._parts

    def _v2_table(self) -> str:
        if not self._v2_messages:
            self._v2_messages = self._database.index("session_message", "session_id")
        return self._v2_messages

    @staticmethod
    def _where(table: str, name: str, column: str = "session_id") -> str:
        return f"looked.{column}" if " AS looked " in table else f"{name}.{column}"

    def items(self, session: ForeignSession, transcript: Transcript) -> Iterator[Item]:
        try:
            if session.fingerprint.startswith("v2:"):
                yield from opencode_v2.items_of(self._v2_rows(session.source_id, transcript), transcript)
            else:
                cut = self._cut(session.source_id)
                yield from items_of(self._v1_messages(session.source_id, transcript), cut, transcript)
        except sqlite3.Error as error:
            raise UnusableSessionError(f"its rows are damaged: {error}") from error
        if self._database.has_changed:
            raise UnusableSessionError("its database was written to meanwhile; import it again")

    # V1

    def _v1_messages(
        self, session_id: str, transcript: Transcript
    ) -> Iterator[tuple[str, int, dict[str, Any], Parts]]:
        table = self._message_table()
        moment = "message.time_created" if "time_created" in self._database.columns("message") else "NULL"
        rows = self._database.rows(
            f"SELECT message.id AS id, {moment} AS at, CAST(message.data AS BLOB) AS data FROM {table} "  # noqa: S608
            f"WHERE {self._where(table, 'message')} = ? ORDER BY {moment}, message.id",
            session_id,
        )
        for row in rows:
            message = _object(row["data"], transcript)
            if message is not None:
                at_ms = moment_of(object_of(message.get("time")).get("created")) or moment_of(row["at"]) or 0
                yield str(row["id"]), at_ms, message, self._v1_parts(str(row["id"]), transcript)

    def _v1_parts(self, message_id: str, transcript: Transcript) -> Parts:
        table = self._part_table()
        rows = self._database.rows(
            f"SELECT part.id AS id, CAST(part.data AS BLOB) AS data FROM {table} "  # noqa: S608
            f"WHERE {self._where(table, 'part', 'message_id')} = ? ORDER BY part.id",
            message_id,
        )
        for row in rows:
            part = _object(row["data"], transcript)
            if part is not None:
                yield str(row["id"]), part

    def _cut(self, session_id: str) -> Cut:
        """Found by looking at summaries alone: there are few of them."""
        table = self._message_table()
        starts_at: str | None = None
        rows = self._database.rows(
            f"SELECT CAST(message.data AS BLOB) AS data FROM {table} "  # noqa: S608
            f"WHERE {self._where(table, 'message')} = ? AND instr(message.data, '\"summary\"') > 0 "
            "ORDER BY message.id",
            session_id,
        )
        for row in rows:
            message = _object(row["data"], None)
            if message is not None and message.get("role") == "assistant" and is_finished_summary(message):
                starts_at = text_of(message.get("parentID")) or starts_at
        if starts_at is not None:
            starts_at = (
                tail_start(self._v1_parts(starts_at, Transcript("", _nothing, lost.Losses()))) or starts_at
            )
        return Cut(starts_at=starts_at, reverted_from=self._reverted(session_id))

    def _reverted(self, session_id: str) -> str | None:
        if "revert" not in self._database.columns("session"):
            return None
        row = next(self._database.rows("SELECT revert FROM session WHERE id = ?", session_id), None)
        if row is None or not isinstance(row["revert"], str):
            return None
        revert = _object(row["revert"], None) or {}
        # a part alone that was taken back leaves its message
        return None if revert.get("partID") else text_of(revert.get("messageID"))

    # V2

    def _v2_rows(
        self, session_id: str, transcript: Transcript
    ) -> Iterator[tuple[str, str, int, dict[str, Any]]]:
        table = self._v2_table()
        columns = self._database.columns("session_message")
        order = "session_message.seq" if "seq" in columns else "session_message.id"
        moment = "session_message.time_created" if "time_created" in columns else "NULL"
        rows = self._database.rows(
            f"SELECT session_message.id AS id, session_message.type AS type, {moment} AS at, "  # noqa: S608
            f"CAST(session_message.data AS BLOB) AS data FROM {table} "
            f"WHERE {self._where(table, 'session_message')} = ? ORDER BY {order}",
            session_id,
        )
        for row in rows:
            data = _object(row["data"], transcript)
            if data is not None:
                yield str(row["id"]), str(row["type"]), moment_of(row["at"]) or 0, data


def _nothing(_data: bytes, _name: str | None) -> None:
    return None


def _object(raw: Any, transcript: Transcript | None) -> dict[str, Any] | None:
    """The JSON object of a column; one that is none is counted."""
    try:
        return read_object(raw)
    except (UnreadableError, TypeError):
        if transcript is not None:
            transcript.losses.count(lost.UNREADABLE)
        return None
