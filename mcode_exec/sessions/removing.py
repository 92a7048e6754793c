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


def remove_files(sessions_dir: str, relative_dir: str) -> str | None:
    """Remove a session's directory, and those above it that are empty then.

    Returns what was left alone, in a sentence: a link in the place of the directory goes, and what it leads to stays.
    Raises: StoreFailedError.
    """
    directory = history_paths(sessions_dir, relative_dir).directory
    parts = relative_dir.split("/")
    if not relative_dir or os.path.isabs(relative_dir) or ".." in parts:
        raise StoreFailedError(f"{directory} is no directory of a session; nothing of it was removed")
    left = None
    try:
        if _is_there(sessions_dir, parts):
            left = _linked(directory)
            _remove_tree(directory)
    except OSError as error:
        raise StoreFailedError(f"{_path_of(error, directory)} cannot be removed: {error.strerror}") from error
    for depth in range(len(parts) - 1, 0, -1):
        try:
            os.rmdir(os.path.join(sessions_dir, *parts[:depth]))
        except OSError:
            break
    return left


def _linked(directory: str) -> str | None:
    """What is to be said of a link that stands in the place of the directory."""
    try:
        target = os.readlink(directory)
    except OSError:
        return None
    real = os.path.realpath(directory)
    what = f"{real} itself was not touched" if os.path.exists(real) else "which leads nowhere"
    return f"{directory} was a link to {target}: the link is removed, {what}"


def _path_of(error: OSError, directory: str) -> str:
    """The whole path of what an error is about; a removal by descriptors names the last part alone."""
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    if not name or os.path.isabs(name):
        return name or directory
    for parent, directories, files in os.walk(directory):
        if name in directories or name in files:
            return os.path.join(parent, name)
    return directory


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
                f"{above} is no directory; {os.path.join(sessions_dir, *parts)} is not looked for behind it"
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
