"""The directories that a command may run in, as `cd` moves through a script.

Several, where a `cd` may have failed; none, where it cannot be told.
"""

from __future__ import annotations

import posixpath

from mcode_exec.permissions.script import Simple, Word, literal

_MOST = 8  # possible directories; beyond them it cannot be told

Directories = tuple[str, ...]


def after_cd(
    directories: Directories, command: Simple, arguments: tuple[Word, ...], *, home: str | None, in_loop: bool
) -> Directories:
    """Where a `cd`, `pushd` or `popd` that works leads from each of the directories."""
    operands = [word for word in arguments if word.text == "-" or not word.text.startswith("-")]
    target = operands[0] if operands else (literal(home) if home else None)
    if target is None or not target.is_literal or target.text in ("-", "") or target.text.startswith("+"):
        return ()
    if command.words[0].text == "popd" or (in_loop and not target.text.startswith("/")):
        return ()
    after = (posixpath.normpath(posixpath.join(directory, target.text)) for directory in directories)
    return tuple(dict.fromkeys(after))


def either(some: Directories, others: Directories) -> Directories:
    """All of both; it cannot be told if it cannot for one of them."""
    if not some or not others:
        return ()
    both = tuple(dict.fromkeys((*some, *others)))
    return both if len(both) <= _MOST else ()
