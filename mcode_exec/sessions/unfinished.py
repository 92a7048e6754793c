"""What a dead process had written into history before its rows said so.

Looked at only where it matters: the part of `messages.jsonl` behind what the
session's row knows of, for ids that are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from mcode_exec.records.session import Session
from mcode_exec.sessions.layout import history_paths

_MOST_BYTES = 64 * 1024 * 1024  # of a history looked at; a turn's unwritten rows are one record


def written_ids(sessions_dir: str, session: Session, message_ids: Iterable[str]) -> frozenset[str]:
    """Those of `message_ids` that stand in history although their rows may not."""
    wanted = set(message_ids)
    if not wanted:
        return frozenset()
    path = history_paths(sessions_dir, session.history_relative_dir).messages
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(min(session.history_bytes, size))
            tail = file.read(_MOST_BYTES)
    except OSError:
        return frozenset()
    # a torn last line is no record: it is set aside when the session is opened
    whole = tail[: tail.rfind(b"\n") + 1]
    return frozenset(one for one in wanted if b'"id":"%s"' % one.encode() in whole)
