"""How much room a session's files take."""

from __future__ import annotations

import os
import stat

from mcode_exec.sessions.layout import history_paths


def freed_bytes(sessions_dir: str, relative_dir: str) -> int:
    """What removing a session's files would give back; links are not followed, and what has another name stays.

    What cannot be looked at counts nothing.
    """
    total = 0
    left = [history_paths(sessions_dir, relative_dir).directory] if relative_dir else []
    if left and os.path.islink(left[0]):
        return 0
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        left.append(entry.path)
                    elif status.st_nlink == 1:
                        total += status.st_size
        except OSError:
            continue
    return total
