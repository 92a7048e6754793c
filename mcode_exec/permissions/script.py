"""What a bash script is made of, as far as a judge must know: simple commands and redirections.

These are records only; shell.py makes them from text and wrappers.py looks
through wrappers.  A word keeps its text for people and rules, and a pattern in
which every part that is not known before the script runs is a placeholder.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mcode_exec.permissions.matching import GLOB, UNKNOWN


class Word(Struct, frozen=True):
    """One word after quote removal; `text == pattern` exactly if all of it is known."""

    text: str
    pattern: str

    @property
    def is_literal(self) -> bool:
        return UNKNOWN not in self.pattern and GLOB not in self.pattern

    @property
    def is_unknown(self) -> bool:
        """Some part can be any text; a glob alone stays within its directory."""
        return UNKNOWN in self.pattern

    def tail(self, start: int) -> Word:
        """The word without its first `start` characters, which must be known ones."""
        return Word(self.text[start:], self.pattern[start:])


def literal(text: str) -> Word:
    return Word(text, text)


#: a word that nobody knows yet, such as what xargs will add
ANYTHING = Word("…", UNKNOWN)


class Redirect(Struct, frozen=True, kw_only=True):
    """A file that the shell itself opens for a command."""

    target: Word
    writes: bool
    #: the directories a relative target may count from; empty: not known
    directories: tuple[str, ...] = ()


class Simple(Struct, frozen=True, kw_only=True):
    """One simple command as it stands in the script."""

    words: tuple[Word, ...]
    #: `A=1` in front of the command, as written
    prefix: tuple[Word, ...] = ()
    #: names of variables, set for it, that change what its words mean (`PATH`, `LD_PRELOAD`, …)
    tampered: tuple[str, ...] = ()
    #: names of the programs whose output it gets by pipe
    piped_from: frozenset[str] = frozenset()
    #: names of the programs whose output becomes one of its words (`$(…)`, `<(…)`)
    substitutes: frozenset[str] = frozenset()
    #: the directories it may run in; empty: not known
    directories: tuple[str, ...] = ()
    #: what it reads as standard input: nothing in the script, a pipe or file, or a text of the script
    stdin: Literal["none", "stream"] | Word = "none"
    #: what every line of its standard input is some of; empty if that is not known
    stdin_lists: tuple[Word, ...] = ()

    @property
    def name(self) -> str:
        """The program's name without its directory; empty if it is not known."""
        if not self.words or not self.words[0].is_literal:
            return ""
        return self.words[0].text.rpartition("/")[2]

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def pattern(self) -> str:
        return " ".join(word.pattern for word in self.words)


#: how a form of a command counts: `main` must be allowed; `outer` is the same command with its wrapper, of which
#: only explicit rules count; `shadow` is what it may be as well, of which only explicit deny and ask rules count
Role = Literal["main", "outer", "shadow"]


class Form(Struct, frozen=True, kw_only=True):
    role: Role
    command: Simple


class Expansion(Struct):
    """What one simple command runs."""

    forms: list[Form]
    #: scripts handed to a shell, with the command they come from
    scripts: list[tuple[Word, Simple]]
    unparsed: list[str]


class Parsed(Struct, frozen=True, kw_only=True):
    """A whole script, nested scripts included."""

    #: every simple command as its forms, at least one `main` each
    commands: tuple[tuple[Form, ...], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    #: why parts of it could not be understood
    unparsed: tuple[str, ...] = ()


#: how a part of what lies below a directory is written, unlike all of it
_SELECTION = "/…/…"


def below(root: Word, *, selected: bool = False) -> Word:
    """What lies below a directory, nobody knows which of it; `selected`: some search has left most alone."""
    if selected:
        return Word(root.text.rstrip("/") + _SELECTION, root.pattern.rstrip("/") + f"/{GLOB}/{GLOB}")
    return Word(root.text.rstrip("/") + "/…", root.pattern.rstrip("/") + "/" + GLOB)


def is_selection(word: Word) -> bool:
    return word.text.endswith(_SELECTION)


def with_unknown(word: Word, placeholder: str) -> Word:
    """The word with every placeholder, such as `{}`, marked as unknown."""
    if placeholder not in word.pattern:
        return word
    return Word(word.text, word.pattern.replace(placeholder, UNKNOWN))
