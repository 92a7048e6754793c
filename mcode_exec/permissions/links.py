"""The links that a script makes before it uses them: `ln -s /etc x && echo > x/f`.

Links on the disk are read when a path is judged; these are not there yet.
What stands earlier in the script counts, a link as well as a bind mount.
"""

from __future__ import annotations

import os
import posixpath

from mcode_exec.permissions.effects import effects
from mcode_exec.permissions.options import has_option, operands, values
from mcode_exec.permissions.places import Places, normal, real
from mcode_exec.permissions.script import Simple, Word

_LINK_VALUED = "-t --target-directory -S --suffix"


class MadeLinks:
    """Where each path leads that a script has made a link so far."""

    def __init__(self) -> None:
        self.targets: dict[str, tuple[str, ...]] = {}
        self._removed: set[str] = set()

    def note(self, command: Simple, places: Places) -> None:
        """Take in what a command links, renames or removes."""
        name, words = command.name, command.words
        if name == "ln":
            is_symbolic = has_option(words, "s", "--symbolic")
            self._linked(command, places, from_name=is_symbolic)
        elif name == "cp" and has_option(words, "sl", "--symbolic-link", "--link"):
            self._linked(command, places, from_name=has_option(words, "s", "--symbolic-link"))
        elif name == "mv" or (name == "cp" and has_option(words, "adPR", "--archive", "--no-dereference")):
            self._renamed(command, places)
        elif name == "mount" and (
            has_option(words, "BR", "--bind", "--rbind")
            or any("bind" in value.text for value in values(words, "-o", "--options"))
        ):
            self._linked(command, places, from_name=False, is_mount=True)
        elif name in ("rm", "rmdir", "unlink"):
            self._remove(effects(command).deletes, command, places)

    def _remove(self, words: tuple[Word, ...], command: Simple, places: Places) -> None:
        for word in words:
            if word.is_literal:
                self._removed.update(map(normal, places.candidates(word, command.directories) or ()))

    def _linked(self, command: Simple, places: Places, *, from_name: bool, is_mount: bool = False) -> None:
        """`from_name`: a relative target counts from the directory of the link, not from where it is made."""
        for source, path in self._pairs(command, places, is_mount=is_mount):
            starts = (posixpath.dirname(path),) if from_name else command.directories
            for start in starts:
                self._add(path, posixpath.join(start, source.text))

    def _renamed(self, command: Simple, places: Places) -> None:
        for source, path in self._pairs(command, places):
            for old in places.candidates(source, command.directories) or ():
                for target in self.targets.get(normal(old), ()):
                    self._add(path, target)
        if command.name == "mv":
            self._remove(tuple(operands(command.words, _LINK_VALUED)[:-1]), command, places)

    def _pairs(self, command: Simple, places: Places, *, is_mount: bool = False) -> list[tuple[Word, str]]:
        """Each source with the paths that may come to lead to it."""
        words = command.words
        found = operands(words, "-o --options -t --types" if is_mount else _LINK_VALUED)
        named = [] if is_mount else values(words, "-t", "--target-directory")
        if named:
            directory, sources = named[0], found
        elif len(found) == 1:
            directory, sources = Word(".", "."), found
        else:
            directory, sources = (found[-1], found[:-1]) if found else (Word("", ""), [])
        if not directory.is_literal or not directory.text:
            return []
        pairs: list[tuple[Word, str]] = []
        for path in places.candidates(directory, command.directories) or ():
            for source in sources:
                if source.is_literal and source.text:
                    itself, inside = path, posixpath.join(path, posixpath.basename(source.text.rstrip("/")))
                    if not is_mount:
                        pairs.append((source, inside))
                    if is_mount or self._may_be_link(itself, is_only_source=not named and len(found) == 2):
                        pairs.append((source, itself))
        return pairs

    def _may_be_link(self, path: str, *, is_only_source: bool) -> bool:
        """Whether the link takes this very name; in a directory that is there it takes a name below it."""
        if not is_only_source:
            return False
        return normal(path) in self._removed or not os.path.isdir(path) or os.path.islink(path)

    def _add(self, path: str, target: str) -> None:
        parent, base = posixpath.split(normal(path))
        for name in dict.fromkeys((normal(path), posixpath.join(real(parent) or parent, base))):
            if normal(target) != name:
                self.targets[name] = tuple(dict.fromkeys((*self.targets.get(name, ()), target)))
