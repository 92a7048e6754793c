"""The directories that a command may run in, as `cd` moves through a script.

Several, where a `cd` may have failed; none, where it cannot be told.
"""

from __future__ import annotations

import posixpath

from mcode_exec.permissions.effects import FIND_SELECTING
from mcode_exec.permissions.script import Simple, Word, below, literal

#: actions of find that print something else than what was found
_FIND_SAYS_MORE = frozenset({"-printf", "-exec", "-execdir", "-ok", "-okdir", "-ls", "-fprintf"})

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


def listed_below(commands: list[Simple]) -> tuple[Word, ...]:
    """What every path that a command prints is some of, if it is one whose output is known."""
    if len(commands) != 1:
        return ()
    command = commands[0]
    words = command.words
    if command.name == "find" and not any(w.text in _FIND_SAYS_MORE for w in words):
        roots = []
        for word in words[1:]:
            if word.text.startswith(("-", "(", "!")):
                break
            roots.append(word)
        selects = any(w.text in FIND_SELECTING for w in words)
        return tuple(below(root, selected=selects) for root in roots or [literal(".")])
    if command.name == "git" and [w.text for w in words[1:2]] == ["ls-files"]:
        return (below(literal("."), selected=True),)
    return ()
