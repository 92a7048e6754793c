"""Conditions (`when`): a small closed language, nothing of it is evaluated by Python.

    condition   = and { "or" and }
    and         = not { "and" not }
    not         = [ "not" ] comparison
    comparison  = operand [ ("==" | "!=" | "in") operand ]
    operand     = string | number | "true" | "false" | "null" | "[" operand { "," operand } "]"
                | name | "(" condition ")"

Without a comparison a value holds where it is neither false, null, 0 nor empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from mcode_exec.batch.paths import Path, PathError, find_value, parse_path, unquoted

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'[^']*')
        |(?P<number>-?\d+(?:\.\d+)?(?![\w.-]))
        |(?P<sign>==|!=|[()\[\],])
        |(?P<name>[A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+|\[\s*(?:"(?:[^"\\]|\\.)*"|'[^']*')\s*\])*))""",
    re.VERBOSE,
)
_CONSTANTS = {"true": True, "false": False, "null": None}
_WORDS = frozenset(("and", "or", "not", "in"))
_MAX_DEPTH = 50

Evaluate = Callable[[Mapping[str, Any]], Any]


class Condition:
    """A condition, read.  Raises, when made: PathError."""

    def __init__(self, text: str) -> None:
        parser = _Parser(text)
        self._evaluate = parser.whole()
        #: the names in it
        self.paths: list[Path] = parser.paths

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds.  Raises: PathError for a name that leads to nothing."""
        return bool(self._evaluate(values))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0
        self._depth = 0
        self.paths: list[Path] = []

    def whole(self) -> Evaluate:
        evaluate = self._or()
        if self._at < len(self._tokens):
            raise self._wrong()
        return evaluate

    def _split(self, text: str) -> list[tuple[str, str]]:
        tokens = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise PathError(f"the condition {text!r} cannot be read at {text[at:].strip()[:20]!r}")
            kind = str(match.lastgroup)
            tokens.append((kind, match[kind]))
            at = match.end()
        return tokens

    def _wrong(self) -> PathError:
        if self._at >= len(self._tokens):
            return PathError(f"the condition {self._text!r} ends too early")
        return PathError(f"the condition {self._text!r} cannot be read at {self._tokens[self._at][1]!r}")

    def _takes(self, *texts: str) -> str | None:
        """The next token, if it is one of these, which is taken."""
        if self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if kind in ("sign", "name") and text in texts:
                self._at += 1
                return text
        return None

    def _or(self) -> Evaluate:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PathError(f"the condition {self._text[:40]!r} is nested too deeply")
        parts = [self._and()]
        while self._takes("or"):
            parts.append(self._and())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else lambda values: any(part(values) for part in parts)

    def _and(self) -> Evaluate:
        parts = [self._not()]
        while self._takes("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else lambda values: all(part(values) for part in parts)

    def _not(self) -> Evaluate:
        if self._takes("not"):
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise PathError(f"the condition {self._text[:40]!r} is nested too deeply")
            inner = self._not()
            self._depth -= 1
            return lambda values: not inner(values)
        return self._comparison()

    def _comparison(self) -> Evaluate:
        left = self._operand()
        sign = self._takes("==", "!=", "in")
        if sign is None:
            return left
        right = self._operand()
        if sign == "==":
            return lambda values: _is_equal(left(values), right(values))
        if sign == "!=":
            return lambda values: not _is_equal(left(values), right(values))
        return lambda values: _is_in(left(values), right(values))

    def _operand(self) -> Evaluate:
        if self._takes("("):
            inner = self._or()
            if not self._takes(")"):
                raise self._wrong()
            return inner
        if self._takes("["):
            return self._list()
        if self._at >= len(self._tokens):
            raise self._wrong()
        kind, text = self._tokens[self._at]
        if kind == "sign" or (kind == "name" and text in _WORDS):
            raise self._wrong()
        self._at += 1
        if kind == "name" and text not in _CONSTANTS:
            path = parse_path(text)
            self.paths.append(path)
            return lambda values: find_value(path, values)
        constant: Any
        if kind == "string":
            constant = unquoted(text)
        elif kind == "number":
            constant = Decimal(text)
        else:
            constant = _CONSTANTS[text]
        return lambda _values: constant

    def _list(self) -> Evaluate:
        parts: list[Evaluate] = []
        while not self._takes("]"):
            if parts and not self._takes(","):
                raise self._wrong()
            parts.append(self._operand())
        return lambda values: [part(values) for part in parts]


def _is_equal(left: Any, right: Any) -> bool:
    """Values of one kind are equal as they are; true is no 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _is_in(part: Any, whole: Any) -> bool:
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    if isinstance(whole, list | tuple):
        return any(_is_equal(part, one) for one in whole)
    return isinstance(whole, Mapping) and part in whole
