"""Whether somebody fed stdin, without taking a byte of it.

Stdin is read only with `--input -`; where bytes are waiting all the same, one
notice says how they are read.  A script that a shell reads from a file is not
meant: only pipes and sockets are looked at.
"""

from __future__ import annotations

import os
import stat

NOTICE = "stdin has unread input; it is read only with --input -"


def has_waiting_bytes(fd: int = 0) -> bool:
    """Whether a read of `fd` would give bytes now; looks and never waits."""
    import fcntl
    import termios

    try:
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return False
        count = fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0")
    except OSError:
        return False
    return int.from_bytes(count, "little") > 0
