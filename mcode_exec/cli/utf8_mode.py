"""Starting again in Python's UTF-8 mode, where the locale would have made file names something else.

Under a locale that is not UTF-8 the interpreter reads arguments and file names
in the locale's encoding.  The model, the store and the files that this program
writes have UTF-8: the name of one file would be two texts, and a workspace
another one in each locale.  The mode can be chosen at the start only.
"""

from __future__ import annotations

import os
import sys


def start_again() -> None:
    """Become the same command in UTF-8 mode; returns where that cannot be done."""
    if "utf8" in sys._xoptions or not sys.executable:
        return
    try:
        # as they were given: what the interpreter made of them cannot always be turned back
        with open("/proc/self/cmdline", "rb") as file:
            arguments = file.read().split(b"\0")[1:-1]
        command = [os.fsencode(sys.executable), b"-X", b"utf8", *arguments]
        os.execv(sys.executable, command)  # noqa: S606 - there is no shell that could be needed
    except (OSError, ValueError):
        pass
