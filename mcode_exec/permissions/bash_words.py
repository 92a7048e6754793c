"""What bash makes of one word of the syntax tree: quotes removed, what is not known marked.

Substitutions in a word run commands, so they are given back to the walker.
"""

from __future__ import annotations

from typing import Protocol

from tree_sitter import Node

from mcode_exec.permissions import quoting
from mcode_exec.permissions.script import Word, literal

#: nodes that run their commands in a shell of their own
SCOPES = frozenset({"subshell", "command_substitution", "process_substitution"})


class Walks(Protocol):
    """What a reader of words needs of the walker."""

    unparsed: list[str]

    def visit(self, node: Node) -> None: ...
    def visit_children(self, node: Node) -> None: ...
    def visit_leaf(self, node: Node) -> None: ...


class WordReader:
    def __init__(self, home: str | None, walker: Walks) -> None:
        self._home = home
        self._walker = walker

    def read(self, node: Node, *, at_start: bool = True) -> Word:
        """What bash makes of a word; substitutions in it are walked."""
        kind = node.type
        if kind == "command_name":
            return self.read(node.children[0]) if node.child_count else literal(text_of(node))
        if kind == "concatenation":
            return self._concatenation(node)
        if (
            kind in ("word", "number", "variable_name", "test_operator", "special_variable_name")
            and not node.child_count
        ):
            return self._plain_word(text_of(node), at_start=at_start)
        if kind == "raw_string":
            return literal(text_of(node)[1:-1])
        if kind == "ansi_c_string":
            value = quoting.ansi_c(text_of(node)[2:-1])
            return Word(value, value)
        if kind == "string":
            return self._string(node)
        if kind == "translated_string":
            return self.read(node.children[-1], at_start=False)
        if kind in ("simple_expansion", "expansion") and self._home and text_of(node) in ("$HOME", "${HOME}"):
            return literal(self._home)
        if not node.is_named:
            following = node.next_sibling
            is_translated = node.type == "$" and following is not None and following.type == "string"
            if is_translated and following is not None and following.start_byte == node.end_byte:
                return literal("")  # $"…" is "…" in the user's language
            return literal(text_of(node))
        self._visit_inside(node)
        return quoting.unknown(text_of(node))

    def _visit_inside(self, node: Node) -> None:
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
            return quoting.unknown(text)
        if quoting.braces_expand(text):
            return quoting.unknown(text)
        if at_start and text.startswith("~"):
            name, slash, rest = text.partition("/")
            if name == "~" and self._home:
                return quoting.joined([literal(self._home), quoting.unquoted(slash + rest)])
            return quoting.joined([quoting.unknown(name), quoting.unquoted(slash + rest)])
        return quoting.unquoted(text)

    def _concatenation(self, node: Node) -> Word:
        parts = [self.read(child, at_start=i == 0) for i, child in enumerate(node.children)]
        text = text_of(node)
        opens = any(
            child.type in ("word", "brace_expression") and "{" in text_of(child) for child in node.children
        )
        if opens and quoting.braces_expand(text):
            return quoting.unknown(text)
        return quoting.joined(parts)

    def _string(self, node: Node) -> Word:
        parts: list[Word] = []
        end = node.start_byte + 1
        source = node.text or b""
        for child in node.children:
            if child.type == '"':
                continue
            if child.start_byte > end:
                parts.append(
                    literal(decoded(source[end - node.start_byte : child.start_byte - node.start_byte]))
                )
            if child.type == "string_content":
                parts.append(literal(quoting.double_quoted(text_of(child))))
            else:
                parts.append(self.read(child, at_start=False))
            end = child.end_byte
        if node.end_byte - 1 > end:
            parts.append(literal(decoded(source[end - node.start_byte : -1])))
        return quoting.joined(parts) if parts else literal("")


def text_of(node: Node) -> str:
    return decoded(node.text or b"")


def decoded(source: bytes) -> str:
    return source.decode("utf-8", "replace")
