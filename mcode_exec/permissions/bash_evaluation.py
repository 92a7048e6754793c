"""Texts that bash evaluates later: a substitution that is quoted where it stands and runs all the same.

Arithmetic takes the value of a variable for an expression, subscripts in it
included, so `a='x[$(rm x)]'; echo $((a))` runs rm; so do `[[ $a -eq 1 ]]`,
`let`, `printf -v`, `test -v`, `read` and `unset` with a subscript, `${!a}` and
`${a@P}`.  Decision: in a script that evaluates so, the substitutions in all of
its literal texts count as commands of it.  A value that comes from elsewhere
stays unsuspected but for `@P`: every loop that counts lines would be asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from tree_sitter import Node

from mcode_exec.permissions.matching import GLOB, UNKNOWN
from mcode_exec.permissions.quoting import backquoted
from mcode_exec.permissions.script import Simple, Word
from mcode_exec.permissions.vocabulary import names

_PLACEHOLDERS = str.maketrans({UNKNOWN: "$_", GLOB: "*"})

#: builtins that evaluate the subscript of a name which they are given
_TAKING_NAMES = names(
    "let read unset mapfile readarray getopts wait declare typeset local readonly export eval"
)
#: these only with an option
_TAKING_NAMES_WITH = {"printf": ("-v",), "test": ("-v", "-R")}
#: operators of tests that take a name, and those for which `[[` takes expressions
_ASKING = names("-v -R")
_COMPARING = _ASKING | names("-eq -ne -lt -le -gt -ge")
#: variables whose value is expanded each time it is shown
_PROMPTS = ("PS0=", "PS1=", "PS2=", "PS4=")
_SUBSCRIPT = re.compile(r"(?:-\w)?\w+\[[^=]*?(?:\$\(|`)", re.DOTALL)
#: `${!a}`, `${a@P}`, `${a:1:b}`
_EVALUATING_EXPANSION = re.compile(r"\$\{(?:![^}*@]+\}|[^}]*@P\}|[A-Za-z_]\w*:(?![-+=?]))")


def is_dormant(word: Word) -> bool:
    """Whether a substitution stands literally in the word."""
    return "$(" in word.pattern or "`" in word.pattern


def evaluates(root: Node, text: Callable[[Node], str], commands: Iterable[Simple]) -> bool:
    """Whether the script has anything that takes text for an expression."""
    return any(_takes_names(command) for command in commands) or _has_expressions(root, text)


def _takes_names(command: Simple) -> bool:
    words = command.words
    while words and words[0].text in ("command", "builtin"):
        words = words[1:]
    name = words[0].text if words else ""
    if name in ("let", "eval"):
        return True
    options = _TAKING_NAMES_WITH.get(name)
    if options is None:
        is_taking = name in _TAKING_NAMES
    else:
        is_taking = any(w.text.startswith(option) for w in words[1:] for option in options)
    return is_taking and any(_SUBSCRIPT.match(w.text) for w in words[1:])


def _has_expressions(root: Node, text: Callable[[Node], str]) -> bool:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        kind = node.type
        if kind in ("arithmetic_expansion", "c_style_for_statement", "subscript"):
            return True
        if kind == "compound_statement" and text(node).startswith("(("):
            return True
        if kind == "variable_assignment" and text(node).startswith(_PROMPTS):
            return True
        if kind == "test_command":
            operators = _COMPARING if text(node).startswith("[[") else _ASKING
            if not operators.isdisjoint(text(node).split()):
                return True
        if kind == "expansion" and _EVALUATING_EXPANSION.match(text(node)):
            return True
        waiting.extend(node.children)
    return False


def substitutions(word: Word) -> list[str] | None:
    """The scripts of the substitutions in a literal text; None if they are not closed."""
    text = word.pattern.translate(_PLACEHOLDERS)
    pieces = re.split(r"(?<!\\)`", text)
    if len(pieces) % 2 == 0:
        return None
    found = [backquoted(piece) for piece in pieces[1::2]]
    at = text.find("$(")
    while at >= 0:
        end = _closing(text, at + 2)
        if end < 0:
            return None
        found.append(text[at + 2 : end])
        at = text.find("$(", end)
    return found


def _closing(text: str, at: int) -> int:
    """The index of the parenthesis that closes the one before `at`, or -1."""
    depth = 1
    quote = ""
    while at < len(text):
        c = text[at]
        if c == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "()":
            depth += 1 if c == "(" else -1
            if depth == 0:
                return at
        at += 1
    return -1
