"""The database of MiniMax's daemon: its sessions, and their messages where its native OpenCode store has none.

The native store is looked for where the daemon kept it; the first one with rows
is read, by the reader of OpenCode's own databases.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from mcode_exec.importers import losses as lost
from mcode_exec.importers.building import Item, Transcript
from mcode_exec.importers.opencode_database import OpenCodeDatabase
from mcode_exec.importers.source import Unusable, UnusableSessionError, UnusableSourceError
from mcode_exec.importers.sqlite_source import ForeignDatabase, Scratch
from mcode_exec.importers.values import UnreadableError, list_of, moment_of, object_of, read_object, text_of
from mcode_exec.records.history import StepMeta
from mcode_exec.records.imported import ForeignSession
from mcode_exec.records.session import SessionStatus

_NEEDED = {"session_id", "agent_name", "session_type", "created_at", "updated_at"}
_OPTIONAL = (
    "workspace_dir", "session_data_dir", "framework_type", "framework_session_id", "status", "title",
    "parent_session_id", "compressed", "archived",
)  # fmt: skip
_IDLE = frozenset(("", "completed", "success", "done", "finished", "idle"))
_RUNNING = frozenset(("running", "started", "pending", "busy", "in_progress", "queued", "processing"))


def is_daemon(database: ForeignDatabase) -> bool:
    return database.columns("sessions") >= _NEEDED


class DaemonDatabase:
    """One `sqlite.db`."""

    kind = "daemon sqlite.db"

    def __init__(self, path: str, scratch: Scratch, natives: Sequence[str] = ()) -> None:
        """`natives`: where else its native store may be.  Raises: UnusableSourceError."""
        self.path = path
        self._database = ForeignDatabase(path, scratch)
        self._native = self._find_native(scratch, natives)
        #: of each session, what OpenCode calls it
        self._framework: dict[str, str] = {}
        self._native_sessions: dict[str, ForeignSession] | None = None

    def close(self) -> None:
        self._database.close()
        if self._native is not None:
            self._native.close()

    def _find_native(self, scratch: Scratch, natives: Sequence[str]) -> OpenCodeDatabase | None:
        """The first one with rows."""
        base = os.path.dirname(self.path)
        beside = [
            os.path.join(base, "opencode", kind, "opencode", "opencode.db") for kind in ("data", "state")
        ]
        for path in (*beside, *natives):
            if not os.path.isfile(path):
                continue
            try:
                native = OpenCodeDatabase(path, scratch)
            except UnusableSourceError:
                continue
            if native.count():
                return native
            native.close()
        return None

    def sessions(self) -> Iterator[ForeignSession | Unusable]:
        columns = self._database.columns("sessions")
        names = [*sorted(_NEEDED), *(name for name in _OPTIONAL if name in columns)]
        where = (
            " WHERE framework_type IS NULL OR framework_type = 'opencode'"
            if "framework_type" in columns
            else ""
        )
        parent = "parent_session_id IS NOT NULL, " if "parent_session_id" in columns else ""
        sql = f"SELECT {', '.join(names)} FROM sessions{where} ORDER BY {parent}created_at, session_id"  # noqa: S608
        try:
            for row in self._database.rows(sql):
                yield self._session(row)
        except sqlite3.Error as error:
            raise UnusableSourceError(f"{self.path} is damaged: {error}") from error

    def _session(self, row: dict[str, Any]) -> ForeignSession | Unusable:
        source_id, created_ms = text_of(row["session_id"]), moment_of(row["created_at"])
        if source_id is None or created_ms is None:
            shown = str(row["session_id"])[:128]
            return Unusable(origin="minimax", source_id=shown, source=self.path, why="its row is damaged")
        updated_ms = max(moment_of(row["updated_at"]) or created_ms, created_ms)
        framework = text_of(row.get("framework_session_id"))
        native = self._native_of(framework) if framework else None
        if framework and native is not None:
            self._framework[source_id] = framework
        is_archived = bool(row.get("archived") or row.get("compressed"))
        return ForeignSession(
            origin="minimax",
            source_id=source_id,
            source=self.path,
            workspace=self._workspace(row, source_id),
            created_ms=created_ms,
            updated_ms=updated_ms,
            fingerprint=f"daemon:{updated_ms}:{self._count(source_id)}:{'' if native is None else native.fingerprint}",
            title=text_of(row.get("title")),
            archived_ms=updated_ms if is_archived else None,
            parent_source_id=text_of(row.get("parent_session_id")),
            status=_status(row.get("status")),
        )

    def _workspace(self, row: dict[str, Any], source_id: str) -> str:
        said = text_of(row.get("workspace_dir"))
        if said:
            return said
        own = text_of(row.get("session_data_dir")) or os.path.join(
            os.path.dirname(self.path), "sessions", source_id
        )
        return os.path.join(own, "workspace")

    def _native_of(self, framework: str) -> ForeignSession | None:
        if self._native is None:
            return None
        if self._native_sessions is None:
            self._native_sessions = {
                one.source_id: one for one in self._native.sessions() if isinstance(one, ForeignSession)
            }
        return self._native_sessions.get(framework)

    def _count(self, session_id: str) -> int:
        if "session_id" not in self._database.columns("session_messages"):
            return 0
        rows = self._database.rows(
            "SELECT count(*) AS n FROM session_messages WHERE session_id = ?", session_id
        )
        return int(next(rows)["n"])

    def items(self, session: ForeignSession, transcript: Transcript) -> Iterator[Item]:
        framework = self._framework.get(session.source_id)
        native = None if framework is None else self._native_of(framework)
        if native is not None:
            assert self._native is not None
            yield from self._native.items(native, transcript)
            return
        if not {"session_id", "data"} <= self._database.columns("session_messages"):
            return
        try:
            rows = self._database.rows(
                "SELECT rowid AS row, data FROM session_messages WHERE session_id = ? ORDER BY rowid",
                session.source_id,
            )
            for row in rows:
                try:
                    data = read_object(row["data"])
                except (UnreadableError, TypeError):
                    transcript.losses.count(lost.UNREADABLE)
                    continue
                yield from _message(f"row {row['row']}", data, session.created_ms, transcript)
        except sqlite3.Error as error:
            raise UnusableSessionError(f"its rows are damaged: {error}") from error
        yield from transcript.flush()


def _status(said: Any) -> SessionStatus:
    word = said.lower() if isinstance(said, str) else ""
    if word in _IDLE:
        return "idle"
    if word == "failed":
        return "error"
    if word in ("cancelled", "canceled"):
        return "aborted"
    return "interrupted" if word in _RUNNING else "idle"


def _message(row_key: str, data: dict[str, Any], created_ms: int, transcript: Transcript) -> Iterator[Item]:
    key = text_of(data.get("msg_id")) or row_key
    at_ms = moment_of(data.get("timestamp")) or created_ms
    role = data.get("role")
    if role == "user":
        blocks = [transcript.text(data.get("msg_content"))]
        for _ in list_of(data.get("attachments")):  # they name paths, which are not followed
            transcript.losses.count(lost.ATTACHMENT)
        yield from transcript.user(key, at_ms, blocks)
    elif role == "assistant":
        meta = StepMeta(finish_reason=text_of(data.get("finish_reason")))
        thought = data.get("thinking_content")
        if isinstance(thought, str) and thought.strip():
            yield from transcript.answer(key, at_ms, transcript.thinking(thought), meta)
        yield from transcript.answer(key, at_ms, transcript.text(data.get("msg_content")), meta)
        for number, one in enumerate(list_of(data.get("tool_calls"))):
            yield from _call(key, number, object_of(one), at_ms, meta, transcript)
        yield from transcript.flush()
    else:
        transcript.losses.count(lost.UNKNOWN_ROLE)


def _call(
    key: str, number: int, call: dict[str, Any], at_ms: int, meta: StepMeta, transcript: Transcript
) -> Iterator[Item]:
    """A call in any of the forms that stores have it in; without a result it was cut short."""
    function = object_of(call.get("function"))
    name = text_of(call.get("name")) or text_of(call.get("tool_name")) or text_of(function.get("name"))
    if name is None:
        transcript.losses.count(lost.UNSUPPORTED_PART)
        return
    arguments: Any = next(
        (one[field] for one in (call, function) for field in ("arguments", "args", "input") if field in one),
        {},
    )
    if isinstance(arguments, str):
        try:
            arguments = read_object(arguments or "{}")
        except UnreadableError:
            pass  # kept as it came
    call_key = text_of(call.get("id")) or text_of(call.get("call_id")) or f"{key}/{number}"
    yield from transcript.call(key, at_ms, call_key, name, arguments, meta)
    result = next(
        (call[field] for field in ("result", "output", "content") if call.get(field) is not None), None
    )
    error = call.get("error")
    if error:
        transcript.result(call_key, str(error), is_error=True)
    elif result is not None:
        import json

        transcript.result(
            call_key, result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        )
