"""Where a session's files are.  The directory is allotted once, by UTC creation time; stored relative."""

from __future__ import annotations

import os
import time

from msgspec import Struct


class HistoryPaths(Struct, frozen=True, kw_only=True):
    directory: str
    manifest: str
    messages: str
    #: earlier generations, never changed again
    snapshots: str
    attachments: str
    reports: str
    tool_outputs: str
    #: contents of the files that turns changed
    changes: str


def allot_dir(created_ms: int, session_id: str) -> str:
    """`YYYY/MM/DD/HH-MM-SS-mmm-<session id>`, relative to `<data>/sessions`."""
    moment = time.gmtime(created_ms // 1000)
    return time.strftime("%Y/%m/%d/%H-%M-%S", moment) + f"-{created_ms % 1000:03d}-{session_id}"


def history_paths(sessions_dir: str, relative_dir: str) -> HistoryPaths:
    directory = os.path.join(sessions_dir, relative_dir)
    reports = os.path.join(directory, "reports")
    return HistoryPaths(
        directory=directory,
        manifest=os.path.join(directory, "manifest.json"),
        messages=os.path.join(directory, "messages.jsonl"),
        snapshots=os.path.join(directory, "snapshots"),
        attachments=os.path.join(directory, "attachments"),
        reports=reports,
        tool_outputs=os.path.join(reports, "tool-outputs"),
        changes=os.path.join(directory, "changes"),
    )
