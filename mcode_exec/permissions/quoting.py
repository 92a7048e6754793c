"""Quote removal as bash does it: what the characters of a word mean.

Pure functions over text; they know no syntax tree.
"""

from __future__ import annotations

import re

from mcode_exec.permissions.matching import GLOB, UNKNOWN
from mcode_exec.permissions.script import Word, literal

_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip

_ANSI_C = r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))"


def unquoted(text: str) -> Word:
    """A run of unquoted characters: backslashes are taken away, glob characters become unknown."""
    if not any(c in text for c in "\\*?["):
        return literal(text)
    plain: list[str] = []
    pattern: list[str] = []
    characters = iter(text)
    for c in characters:
        if c == "\\":
            escaped = next(characters, "\\")
            if escaped != "\n":
                plain.append(escaped)
                pattern.append(escaped)
        elif c in "*?[":
            plain.append(c)
            pattern.append(GLOB)
        else:
            plain.append(c)
            pattern.append(c)
    return Word("".join(plain), "".join(pattern))


def double_quoted(text: str) -> str:
    r"""Literal text inside double quotes or a here-document: only \$ \` \" \\ and \newline are escapes."""
    if "\\" not in text:
        return text
    return re.sub(r"\\([$`\"\\\n])", lambda m: "" if m[1] == "\n" else m[1], text)


def ansi_c(text: str) -> str:
    """The inside of $'…'."""
    if "\\" not in text:
        return text
    return re.sub(_ANSI_C, _ansi_c_character, text, flags=re.DOTALL)


def _ansi_c_character(m: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if m[group]:
            code = int(m[group], base)
            code = code & 0xFF if group == 4 else code
            return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else UNKNOWN
    if m[5]:
        return chr(ord(m[5]) & 0x1F) or UNKNOWN
    return _SIMPLE_ESCAPES.get(m[6], "\\" + m[6])


def backquoted(text: str) -> str:
    r"""The script inside `…`, where \` \\ and \$ are escapes of the outer level."""
    return re.sub(r"\\([`\\$])", r"\1", text)


def has_backquote(text: str) -> bool:
    """Whether a backquote stands there that no backslash escapes."""
    return "`" in text and re.search(r"(?<!\\)(?:\\\\)*`", text) is not None


def has_line_end(text: str) -> bool:
    """Whether unquoted text has a line end that no backslash takes away."""
    return "\n" in text and re.search(r"(?<!\\)(?:\\\\)*\n", text) is not None


def braces_expand(text: str) -> bool:
    """Whether unquoted text may be a brace expansion such as {a,b} or {1..3}."""
    return "{" in text and ("," in text or ".." in text)


_BRACES = re.compile(r"[^{}]*\{([^{}]*,[^{}]*)\}[^{}]*")
_NO_QUOTES = re.compile(r"[A-Za-z0-9_./,{}@%+=:*?~-]+")


def brace_expanded(text: str) -> list[str] | None:
    """The words of an unquoted list in braces, as bash makes them; None for none, or for what is not so plain."""
    if "{" not in text or not _NO_QUOTES.fullmatch(text):
        return None
    match = _BRACES.fullmatch(text)
    if match is None:
        return None
    before, after = text[: match.start(1) - 1], text[match.end(1) + 1 :]
    return [word for piece in match[1].split(",") if (word := before + piece + after)]


def joined(words: list[Word]) -> Word:
    if len(words) == 1:
        return words[0]
    return Word("".join(w.text for w in words), "".join(w.pattern for w in words))


def unknown(text: str) -> Word:
    return Word(text, UNKNOWN)
