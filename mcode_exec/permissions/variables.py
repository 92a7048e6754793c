"""What the variables of a script may hold, as far as its own assignments tell.

A variable has candidates: one if every way through the script gives it the
same value, several after a branch, and one that is unknown where a value comes
from outside.  A variable that was never assigned is unknown.  Values are words,
so that a glob or a part that is not known stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from tree_sitter import Node

from mcode_exec.permissions.matching import UNKNOWN
from mcode_exec.permissions.quoting import joined, unknown
from mcode_exec.permissions.script import Simple, Word

Candidates = tuple[Word, ...]

#: beyond these it is not told apart
_MOST_CANDIDATES = 6

#: commands that give variables a value which the script does not show
_READERS = frozenset({"read", "mapfile", "readarray", "getopts", "unset", "printf", "wait"})
#: commands that may do so with any variable
_ANYTHING = frozenset({"eval", "source", "."})

#: `${NAME}`, `${NAME:?said}`, `${NAME%/}`, `${NAME:-word}`, …
_EXPANSION = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[?+=-])(.*)|(%%?)(/\*?))?\}", re.DOTALL)
_SIMPLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


class Variables:
    def __init__(self, known: dict[str, Word]) -> None:
        self._values: dict[str, Candidates] = {name: (value,) for name, value in known.items()}

    def of(self, name: str) -> Candidates:
        return self._values.get(name, (unknown(f"${name}"),))

    def of_expansion(self, text: str) -> Candidates | None:
        """Of `$NAME` and the forms of `${…}` that are known here; None for others."""
        match = _SIMPLE.fullmatch(text)
        if match:
            return self.of(match[1])
        match = _EXPANSION.fullmatch(text)
        if match is None:
            return None
        values, operator, word = self.of(match[1]), match[2], match[3]
        if match[4]:
            return tuple(_without_slash(value) for value in values) if match[5] == "/" else None
        if not operator or operator in ("?", ":?"):
            return values
        if operator in ("-", ":-", "=", ":=") and all(value.is_literal and value.text for value in values):
            return values  # it is set: the word behind it is not read
        if operator in ("+", ":+") or any(c in word for c in "$`'\"\\*?[~{"):
            return None
        return unique((*values, Word(word, word)))

    def assign(self, name: str, value: Word, *, appends: bool = False) -> None:
        name = name.partition("[")[0]
        if appends:
            self._put(name, (joined([old, value]) for old in self.of(name)))
        elif "[" in name:
            self._put(name, (unknown(name),))
        else:
            self._put(name, (value,))

    def assign_any(self, name: str, values: Candidates) -> None:
        self._put(name, values)

    def may_hold(self, assigned: Iterable[tuple[str, Word]]) -> None:
        """Each may hold that besides what it held, and what became of it on the way."""
        for name, value in assigned:
            self._put(name, (*self.of(name), value, unknown(f"${name}")))

    def after(self, command: Simple) -> None:
        """Take note of what a command gives to variables."""
        words = command.words
        name = command.name
        if name in _ANYTHING:
            self.may_hold([(name, unknown(f"${name}")) for name in self._values])
        elif name in _READERS and (name != "printf" or any(w.text.startswith("-v") for w in words[1:])):
            for word in words[1:]:
                text = word.text.removeprefix("-v")
                if text and not text.startswith("-"):
                    self._put(text.partition("[")[0], (unknown(f"${text}"),))

    def _put(self, name: str, values: Iterable[Word]) -> None:
        candidates = unique(values)
        self._values[name] = (
            candidates if len(candidates) <= _MOST_CANDIDATES else (unknown(f"${name}"), *candidates[:2])
        )

    def snapshot(self) -> dict[str, Candidates]:
        return dict(self._values)

    def restore(self, snapshot: dict[str, Candidates]) -> None:
        self._values = dict(snapshot)

    def merge(self, other: dict[str, Candidates]) -> None:
        """Either this or `other` has become true."""
        mine = self._values
        self._values = {}
        for name in dict.fromkeys((*mine, *other)):
            missing = (unknown(f"${name}"),)
            self._put(name, (*other.get(name, missing), *mine.get(name, missing)))


def unique(values: Iterable[Word]) -> Candidates:
    found: dict[str, Word] = {}
    for value in values:
        found.setdefault(value.pattern, value)
    return tuple(found.values())


def _without_slash(value: Word) -> Word:
    if not value.pattern.endswith("/"):
        return value
    return Word(value.text[:-1], value.pattern[:-1])


def assigned_in(node: Node, text: Callable[[Node], str]) -> Iterator[tuple[str, Word]]:
    """What assignments below `node` give to which variables, read without their surroundings."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.type == "variable_assignment" and node.children:
            name = text(node.children[0]).partition("[")[0]
            yield name, _plain_value(node.children[-1], text(node.children[-1])) or unknown(f"${name}")
        elif node.type == "for_statement":
            for child in node.children:
                if child.type == "variable_name":
                    yield text(child), unknown(text(child))
        waiting.extend(node.children)


def _plain_value(node: Node, text: str) -> Word | None:
    if node.type == "raw_string" or (
        node.type == "string" and all(child.type in ('"', "string_content") for child in node.children)
    ):
        text = text[1:-1]
    elif node.type not in ("word", "number"):
        return None
    return None if any(c in text for c in "$`\\*?[{~") else Word(text, text)


def split(value: Word) -> list[Word]:
    """The words that an unquoted expansion becomes; blanks that are known split it."""
    if not any(c.isspace() for c in value.pattern):
        return [value] if value.pattern else []
    if UNKNOWN in value.pattern or len(value.text) != len(value.pattern):
        return [unknown(value.text)]
    return [Word(piece, piece) for piece in value.pattern.split()]
