"""What bash makes of one word of the syntax tree: quotes removed, what is not known marked.

Substitutions in a word run commands, so they are given back to the walker.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Protocol

from tree_sitter import Node

from mcode_exec.permissions import quoting
from mcode_exec.permissions.bash_evaluation import is_dormant
from mcode_exec.permissions.bash_grammar import Source
from mcode_exec.permissions.matching import GLOB
from mcode_exec.permissions.quoting import unknown
from mcode_exec.permissions.script import Word, literal
from mcode_exec.permissions.variables import Candidates, Variables, split

#: nodes that run their commands in a shell of their own
SCOPES = frozenset({"subshell", "command_substitution", "process_substitution"})
_EXPANSIONS = frozenset({"simple_expansion", "expansion"})
_MAY_HAVE_BRACES = frozenset({"word", "concatenation", "brace_expression"})
_PLAIN = re.compile(r"[A-Za-z0-9_./:,+@% =-]+")
_MOST_READINGS = 8  # of one command
#: without a template mktemp makes its file in TMPDIR, which is the session's
_MAKES_TEMPORARY = re.compile(
    r"""mktemp(?:\ -[dq]+)*
    (?:\ -t\ [\w.-]+|\ "?\$(?:TMPDIR|\{TMPDIR(?::?-[\w/.]*)?\})/[\w.-]+"?)?""",
    re.VERBOSE,
)


class Walks(Protocol):
    """What a reader of words needs of the walker."""

    unparsed: list[str]
    variables: Variables
    dormant: list[Word]
    tampered: set[str]

    @property
    def shell_variables(self) -> dict[str, Candidates]: ...

    def visit(self, node: Node) -> None: ...
    def visit_children(self, node: Node) -> None: ...
    def visit_leaf(self, node: Node) -> None: ...


class WordReader:
    def __init__(self, home: str | None, temp_dir: str | None, walker: Walks, source: Source) -> None:
        self._home = home
        self._temp_dir = temp_dir
        self._walker = walker
        self._source = source
        #: expansions that were met and have several values
        self.open: dict[str, Candidates] = {}
        #: the value that an open one has in this reading
        self._chosen: dict[str, Word] = {}
        #: whether this is a further reading: what is inside has been walked
        self._is_again = False

    def further_readings(self) -> Iterator[None]:
        """One step for each further combination of what the open expansions may be."""
        if not self.open or self._is_again:
            return
        names, met = list(self.open), dict(self.open)
        first = tuple(_first(candidates) for candidates in met.values())
        self._is_again = True
        try:
            for values in itertools.islice(itertools.product(*met.values()), _MOST_READINGS):
                if values != first:
                    self._chosen = dict(zip(names, values, strict=True))
                    yield
        finally:
            self._is_again, self._chosen = False, {}

    def read_all(self, node: Node) -> list[Word]:
        """The words that one word of the script becomes."""
        if node.type == "command_name" and node.child_count:
            node = node.children[0]
        if node.type in _EXPANSIONS and (value := self._value(node)) is not None:
            return [unknown(value.text)] if "IFS" in self._walker.tampered else split(value)
        if node.type == "command_substitution" and (known := self._substituted(node)) is not None:
            self._visit_inside(node)
            return split(known)
        if (
            node.type in _MAY_HAVE_BRACES
            and (pieces := quoting.brace_expanded(self._source.text(node))) is not None
        ):
            return [self._plain_word(piece, at_start=True) for piece in pieces]
        return [self.read(node)]

    def read(self, node: Node, *, at_start: bool = True, quoted: bool = False) -> Word:
        """What bash makes of a word; substitutions in it are walked, quoted ones noted."""
        word = self._read(node, at_start=at_start, quoted=quoted)
        if is_dormant(word):
            self._walker.dormant.append(word)
        return word

    def _read(self, node: Node, *, at_start: bool, quoted: bool) -> Word:
        kind = node.type
        if kind == "command_name":
            return self.read(node.children[0]) if node.child_count else literal(self._source.text(node))
        if kind == "concatenation":
            return self._concatenation(node)
        if (
            kind in ("word", "number", "variable_name", "test_operator", "special_variable_name")
            and not node.child_count
        ):
            return self._plain_word(self._source.text(node), at_start=at_start)
        if kind == "raw_string":
            return literal(self._source.text(node)[1:-1])
        if kind == "ansi_c_string":
            unquoted = quoting.ansi_c(self._source.text(node)[2:-1])
            return Word(unquoted, unquoted)
        if kind == "string":
            return self._string(node)
        if kind == "translated_string":
            return self.read(node.children[-1], at_start=False)
        if kind in _EXPANSIONS and (value := self._value(node)) is not None:
            has_blanks = not quoted and any(c.isspace() for c in value.pattern)
            return unknown(self._source.text(node)) if has_blanks else value
        if kind == "command_substitution" and (known := self._substituted(node)) is not None:
            self._visit_inside(node)
            return known if quoted or " " not in known.text else unknown(self._source.text(node))
        if not node.is_named:
            following = node.next_sibling
            is_translated = node.type == "$" and following is not None and following.type == "string"
            if is_translated and following is not None and following.start_byte == node.end_byte:
                return literal("")  # $"…" is "…" in the user's language
            return literal(self._source.text(node))
        self._visit_inside(node)
        if kind == "expansion" and self._source.text(node).endswith("@P}"):
            self._check_expanded_again(self._source.text(node))
        return unknown(self._source.text(node))

    def _check_expanded_again(self, text: str) -> None:
        """`${a@P}` runs the substitutions in the value of `a`."""
        name = re.match(r"\$\{([A-Za-z_]\w*)@P\}", text)
        if name is None or any(not value.is_literal for value in self._walker.variables.of(name[1])):
            self._walker.unparsed.append("a value that it expands again is not known")

    def _value(self, node: Node) -> Word | None:
        """What an expansion is in this reading; None if nothing is known of its form."""
        text = self._source.text(node)
        if text in self._chosen:
            return self._chosen[text]
        candidates = self._walker.shell_variables.get(text) or self._walker.variables.of_expansion(text)
        if candidates is None:
            return None
        if len(candidates) > 1:
            self.open[text] = candidates
        self._visit_inside(node)
        return _first(candidates)

    def _substituted(self, node: Node) -> Word | None:
        """`$(pwd)` and `$(mktemp -d)`, whose output is known."""
        command = (
            " ".join(self._source.text(node)[2:-1].split())
            if self._source.text(node).startswith("$(")
            else ""
        )
        if command == "pwd":
            candidates = self._walker.shell_variables.get("$PWD", ())
            return candidates[0] if len(candidates) == 1 else None
        if command.startswith("echo ") and _PLAIN.fullmatch(command):
            return literal(command.removeprefix("echo ").removeprefix("-n "))
        is_session = self._temp_dir and self._walker.variables.of("TMPDIR") == (literal(self._temp_dir),)
        if self._temp_dir is not None and is_session and _MAKES_TEMPORARY.fullmatch(command):
            return quoting.joined([literal(self._temp_dir + "/"), Word("…", GLOB)])
        return None

    def _visit_inside(self, node: Node) -> None:
        if self._is_again:
            return
        if node.type in SCOPES:
            self._walker.visit(node)
        else:
            self._walker.visit_children(node)
            if not node.child_count:
                self._walker.visit_leaf(node)

    def _plain_word(self, text: str, *, at_start: bool) -> Word:
        if quoting.has_line_end(text):
            self._walker.unparsed.append("its line ends are not understood")
        if quoting.has_backquote(text):
            self._walker.unparsed.append("a substitution in it is not understood")
            return unknown(text)
        if quoting.braces_expand(text):
            return unknown(text)
        if at_start and text.startswith("~"):
            name, slash, rest = text.partition("/")
            if name == "~" and self._home:
                return quoting.joined([literal(self._home), quoting.unquoted(slash + rest)])
            return quoting.joined([_home_of(name), quoting.unquoted(slash + rest)])
        return quoting.unquoted(text)

    def _concatenation(self, node: Node) -> Word:
        parts = [self.read(child, at_start=i == 0) for i, child in enumerate(node.children)]
        text = self._source.text(node)
        opens = any(
            child.type in ("word", "brace_expression") and "{" in self._source.text(child)
            for child in node.children
        )
        if opens and quoting.braces_expand(text):
            return unknown(text)
        return quoting.joined(parts)

    def _string(self, node: Node) -> Word:
        parts: list[Word] = []
        end = node.start_byte + 1
        for child in node.children:
            if child.type == '"':
                continue
            if child.start_byte > end:
                parts.append(literal(self._source.between(end, child.start_byte)))
            if child.type == "string_content":
                parts.append(literal(quoting.double_quoted(self._source.text(child))))
            else:
                parts.append(self.read(child, at_start=False, quoted=True))
            end = child.end_byte
        if node.end_byte - 1 > end:
            parts.append(literal(self._source.between(end, node.end_byte - 1)))
        return quoting.joined(parts) if parts else literal("")


def _first(candidates: Candidates) -> Word:
    """The value of the first reading: an unknown one, if there is one."""
    return next((value for value in candidates if value.is_unknown), candidates[0])


def _home_of(name: str) -> Word:
    """`~root`, by the system's list of users."""
    import pwd

    try:
        return literal(pwd.getpwnam(name[1:]).pw_dir)
    except (KeyError, ValueError):
        return unknown(name)
