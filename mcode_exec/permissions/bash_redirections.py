"""Redirections of a bash script: the files the shell opens, and what commands get as standard input."""

from __future__ import annotations

import re
from typing import Literal, Protocol

from msgspec import Struct
from tree_sitter import Node

from mcode_exec.permissions import quoting
from mcode_exec.permissions.bash_evaluation import is_dormant
from mcode_exec.permissions.bash_grammar import Source
from mcode_exec.permissions.bash_words import WordReader
from mcode_exec.permissions.script import Redirect, Word, literal


class Stdin(Struct, frozen=True):
    """What a command gets as standard input from the script around it."""

    kind: Literal["none", "stream"] | Word = "none"
    piped_from: frozenset[str] = frozenset()
    #: what every line of it is some of; empty if that is not known
    lists: tuple[Word, ...] = ()


class Walks(Protocol):
    """What a reader of redirections needs of the walker."""

    redirects: list[Redirect]
    nested: list[str]
    unparsed: list[str]
    dormant: list[Word]
    directories: tuple[str, ...]

    def visit(self, node: Node) -> None: ...


_WITHOUT_QUOTES = str.maketrans("", "", "'\"\\")


class RedirectionReader:
    def __init__(self, words: WordReader, walker: Walks, source: Source) -> None:
        self._words = words
        self._walker = walker
        self._source = source

    def read(self, node: Node, stdin: Stdin, words: list[Word]) -> Stdin:
        """Note what one redirection does; words behind it go to `words`, and what stdin is then comes back."""
        if node.type == "file_redirect":
            extra, reads = self._file(node)
            words.extend(extra)
            return Stdin("stream", stdin.piped_from) if reads else stdin
        return self._text(node, stdin)

    def _file(self, node: Node) -> tuple[list[Word], bool]:
        """Note the file; returns words that bash counts as arguments, and whether it replaces stdin."""
        outer, self._words.open = self._words.open, {}
        noted = self._file_once(node)
        for _ in self._words.further_readings():
            self._file_once(node)
        self._words.open = outer
        return noted

    def _file_once(self, node: Node) -> tuple[list[Word], bool]:
        operator = next((c.type for c in node.children if not c.is_named), "")
        targets = [self._words.read(c) for c in node.children if c.is_named and c.type != "file_descriptor"]
        reads = operator.startswith("<")
        if targets:
            target = targets[0]
            is_copy = operator in (">&", "<&") and target.is_literal and target.text.rstrip("-").isdigit()
            if not is_copy and target.text != "-":
                self._walker.redirects.append(
                    Redirect(target=target, writes=not reads, directories=self._walker.directories)
                )
        return targets[1:], reads

    def _text(self, node: Node, stdin: Stdin) -> Stdin:
        if node.type == "herestring_redirect":
            words = [self._words.read(c) for c in node.children if c.is_named and c.type != "file_descriptor"]
            return Stdin(words[0] if words else "stream", stdin.piped_from)
        start = body = None
        for child in node.children:
            if child.type == "heredoc_start":
                start = child
            elif child.type == "heredoc_body":
                body = child
            elif child.type == "file_redirect":
                extra, _ = self._file(child)
                if extra:
                    self._walker.unparsed.append("words behind a redirection are not understood")
        text = self._source.text(body) if body is not None else ""
        delimiter = self._source.text(start) if start is not None else "''"
        plain = delimiter.translate(_WITHOUT_QUOTES)
        if not delimiter.isascii() or any(line.lstrip("\t") == plain for line in text.split("\n")):
            # Where the grammar cannot tell it from another one, or looks beyond it (into a substitution that is
            # open there), bash ends the text elsewhere.
            self._walker.unparsed.append("the end of a here-document in it is not understood")
        if any(c in delimiter for c in "'\"\\"):
            if is_dormant(literal(text)):
                self._walker.dormant.append(literal(text))
            return Stdin(literal(text), stdin.piped_from)
        if body is not None:
            self._heredoc_substitutions(body, text)
        is_known = "$" not in text and not quoting.has_backquote(text)
        return Stdin(
            literal(quoting.double_quoted(text)) if is_known else quoting.unknown(text), stdin.piped_from
        )

    def _heredoc_substitutions(self, body: Node, text: str) -> None:
        """Substitutions in an unquoted here-document run; the grammar leaves backquotes in its text."""
        for child in body.children:
            if child.type != "heredoc_content":
                self._walker.visit(child)
        if quoting.has_backquote(text):
            pieces = re.split(r"(?<!\\)`", text)
            self._walker.nested.extend(quoting.backquoted(piece) for piece in pieces[1::2])
            if len(pieces) % 2 == 0:
                self._walker.unparsed.append("a backquote in it is not closed")
        if not body.children and "$(" in text.replace("\\$(", ""):
            self._walker.unparsed.append("a substitution in it is not understood")
