"""Templates: `{{ name }}` in a prompt, title, label, branch or key stands for a value, and for nothing else.

They expand once: what a value says is never read as a template again.  A value
that is no string comes as JSON.  `{{ "text" }}` is that text, so that
`{{ "{{" }}` writes two braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mcode_exec.batch.paths import Path, PathError, find_value, parse_path, unquoted

_encode = msgspec.json.Encoder(decimal_format="number").encode
_OPEN, _CLOSE = "{{", "}}"
_LITERAL = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*')\s*""")
#: up to the braces that close it; those within a string do not
_INSIDE = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|(?!\}\})[^"'])*""", re.DOTALL)


class Template:
    """A text in which names stand for values.  Raises, when made: PathError."""

    def __init__(self, text: str) -> None:
        self._parts: list[str | Path] = list(_parts(text))

    @property
    def paths(self) -> list[Path]:
        """The names in it."""
        return [part for part in self._parts if isinstance(part, tuple)]

    def expand(self, values: Mapping[str, Any]) -> str:
        """The text with every name's value.  Raises: PathError for one that leads to nothing."""
        return "".join(
            part if isinstance(part, str) else text_of(find_value(part, values)) for part in self._parts
        )


def _parts(text: str) -> Iterator[str | Path]:
    at = 0
    while (start := text.find(_OPEN, at)) >= 0:
        yield text[at:start]
        match = _INSIDE.match(text, start + len(_OPEN))
        assert match is not None  # it matches nothing at least
        if not text.startswith(_CLOSE, match.end()):
            raise PathError(f'a "{{{{" has no "}}}}": {text[start : start + 40]!r}')
        literal = _LITERAL.fullmatch(match[0])
        yield unquoted(literal[1]) if literal is not None else parse_path(match[0])
        at = match.end() + len(_CLOSE)
    yield text[at:]


def text_of(value: Any) -> str:
    """A value as templates, and the environment of commands, have it."""
    if isinstance(value, str):
        return value
    return _encode(value).decode()
