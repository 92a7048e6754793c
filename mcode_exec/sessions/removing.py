"""Removing a session's files: its own directory, and nothing outside it, whatever links say.

Other processes make and remove directories beside this; what comes or goes
meanwhile is looked at again.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat

from mcode_exec.errors import StoreFailedError
from mcode_exec.sessions.layout import history_paths

_TRIES = 100  # to remove a directory in which something comes and goes


def remove_files(sessions_dir: str, relative_dir: str) -> None:
    """Remove a session's directory, and those above it that are empty then.  Raises: StoreFailedError."""
    directory = history_paths(sessions_dir, relative_dir).directory
    parts = relative_dir.split("/")
    if not relative_dir or os.path.isabs(relative_dir) or ".." in parts:
        raise StoreFailedError(f"{directory} is no directory of a session; nothing of it was removed")
    try:
        above = sessions_dir
        for part in parts[:-1]:
            above = os.path.join(above, part)
            if not stat.S_ISDIR(os.lstat(above).st_mode):
                raise StoreFailedError(
                    f"{above} is no directory; nothing below it was removed, and the session stays sealed"
                )
        _remove_tree(directory)
    except FileNotFoundError:
        pass  # one above it is gone, and it with that
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


def _remove_tree(directory: str) -> None:
    """Remove a directory with all that is in it; a link in its place is removed, not followed."""
    for left in range(_TRIES - 1, -1, -1):
        try:
            if stat.S_ISDIR(os.lstat(directory).st_mode):
                shutil.rmtree(directory)
            else:
                os.unlink(directory)
        except OSError as error:
            # Something within came or went meanwhile: a command that the turn has left, another deleter.
            if not os.path.lexists(directory):
                return
            if not left or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
        else:
            return
