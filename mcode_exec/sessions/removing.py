"""Removing a session's files: its own directory, and nothing outside it, whatever links say.

Other processes make and remove directories beside this; what comes or goes
meanwhile is looked at again.
"""

from __future__ import annotations

import os
import shutil
import stat

from mcode_exec.errors import StoreFailedError
from mcode_exec.sessions.layout import history_paths

_TRIES = 10  # to remove a directory in which something comes and goes


def remove_files(sessions_dir: str, relative_dir: str) -> None:
    """Remove a session's directory, and those above it that are empty then.  Raises: StoreFailedError."""
    directory = history_paths(sessions_dir, relative_dir).directory
    parts = relative_dir.split("/")
    if not relative_dir or os.path.isabs(relative_dir) or ".." in parts:
        raise StoreFailedError(f"{directory} is no directory of a session; nothing of it was removed")
    try:
        if _is_there(sessions_dir, parts):
            _remove_tree(directory)
    except OSError as error:
        raise StoreFailedError(
            f"{error.filename or directory} cannot be removed: {error.strerror}; the session stays sealed, "
            "`mcode sessions delete` goes on where it stopped"
        ) from error
    for depth in range(len(parts) - 1, 0, -1):
        try:
            os.rmdir(os.path.join(sessions_dir, *parts[:depth]))
        except OSError:
            break


def _is_there(sessions_dir: str, parts: list[str]) -> bool:
    """Whether the directory is reached without a link; False where it is gone already."""
    above = sessions_dir
    for part in parts[:-1]:
        above = os.path.join(above, part)
        try:
            mode = os.lstat(above).st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(mode):
            raise StoreFailedError(
                f"{above} is no directory; nothing below it was removed, and the session stays sealed"
            )
    return True


def _remove_tree(directory: str) -> None:
    """Remove a directory with all that is in it; a link in its place is removed, not followed."""
    for is_last in (*[False] * (_TRIES - 1), True):
        try:
            if stat.S_ISDIR(os.lstat(directory).st_mode):
                # What another deleter has removed meanwhile, or a command of the turn has made, is no failure:
                # whether something is left is.
                shutil.rmtree(directory, ignore_errors=not is_last)
            else:
                os.unlink(directory)
        except OSError:
            if is_last and os.path.lexists(directory):
                raise
        if not os.path.lexists(directory):
            return
