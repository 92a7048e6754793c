"""What a process had written into history before its rows said so.

Looked at only where it matters: the part of `messages.jsonl` behind what the
session's row knows of, for ids that are asked for.
"""

from __future__ import annotations

import os

from mcode_exec.sessions.layout import history_paths
from mcode_exec.store import session_rows

_MOST_BYTES = 64 * 1024 * 1024  # of a history looked at; a turn's unwritten rows are one record


class Unfinished:
    """Whether messages stand in a session's history although their rows may not; inside a transaction.

    The file is read when it is first asked for.
    """

    def __init__(self, sessions_dir: str, session_id: str) -> None:
        self._sessions_dir = sessions_dir
        self._session_id = session_id
        self._tail: bytes | None = None

    def __call__(self, message_id: str) -> bool:
        if self._tail is None:
            self._tail = self._read()
        return b'"id":"%s"' % message_id.encode() in self._tail

    def _read(self) -> bytes:
        session = session_rows.find_session(self._session_id)
        if session is None:
            return b""
        path = history_paths(self._sessions_dir, session.history_relative_dir).messages
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(min(session.history_bytes, size))
                tail = file.read(_MOST_BYTES)
        except OSError:
            return b""
        # a torn last line is no record: it is set aside when the session is opened
        return tail[: tail.rfind(b"\n") + 1]
