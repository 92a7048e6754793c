"""Where a session's files are.  The directory is allotted once, by UTC creation time; stored relative."""

from __future__ import annotations

import errno
import os
import stat
import time

from msgspec import Struct


class HistoryPaths(Struct, frozen=True, kw_only=True):
    directory: str
    manifest: str
    messages: str
    attachments: str
    reports: str
    tool_outputs: str


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
        attachments=os.path.join(directory, "attachments"),
        reports=reports,
        tool_outputs=os.path.join(reports, "tool-outputs"),
    )


def read_file(path: str) -> bytes:
    """All of a session's file.  Raises: OSError, also for a FIFO, which must not keep the store waiting."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return file.read()


def make_dirs(path: str, below: str) -> None:
    """Make `path` and its missing parents below `below`, each 0700, and make them survive power loss."""
    missing: list[str] = []
    current = path
    while not os.path.isdir(current) and current != below:
        missing.append(current)
        current = os.path.dirname(current)
    for directory in reversed(missing):
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            continue
        os.chmod(directory, 0o700)
        sync_dir(os.path.dirname(directory))


def sync_dir(path: str) -> None:
    """fsync a directory, so that names made in it survive power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
