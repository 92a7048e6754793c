"""Text that cannot act on the terminal or the CI runner that shows it.

Owns the one spelling of characters that would do something: control characters
(C0, DEL, C1), line and paragraph separators, bidirectional overrides and marks
become visible escapes, lone surrogates become U+FFFD.  Invariant: what comes out
encodes as UTF-8, and `prefixed` gives only lines that begin with `mcode: `, so
no line can be taken for a `::` command of a CI runner.  What is secret is
decided elsewhere (redaction).
"""

from __future__ import annotations

PREFIX = "mcode: "

#: code points that are shown instead of sent; a tab is harmless and stays
_HEX2 = [*range(0x20), *range(0x7F, 0xA0)]
_HEX4 = [0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF]
_NAMED = {0x0A: "\\n", 0x0D: "\\r", 0x1B: "\\e", 0x07: "\\a", 0x08: "\\b"}
_TABLE: dict[int, str] = {
    **{code: f"\\x{code:02x}" for code in _HEX2},
    **{code: f"\\u{code:04x}" for code in _HEX4},
    **_NAMED,
}
del _TABLE[0x09]
#: for whole texts on a terminal, where a line end is a line end
_TEXT_TABLE = {code: shown for code, shown in _TABLE.items() if code != 0x0A}


def valid(text: str) -> str:
    """`text` with every lone surrogate as U+FFFD, so that it encodes as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def escape(text: str) -> str:
    """One line of `text`: nothing in it acts on a terminal, line ends included."""
    if text.isprintable():
        return text
    return valid(text).translate(_TABLE)


def escape_text(text: str) -> str:
    """`text` for a terminal: its line ends and tabs stay, everything else that acts is shown."""
    if text.isprintable():
        return text
    return valid(text).translate(_TEXT_TABLE)


def prefixed(text: str) -> str:
    """`text` as stderr lines, each with its prefix; further lines are indented below the first."""
    lines = [escape(line) for line in text.rstrip("\n").split("\n")]
    return "".join(f"{PREFIX}{'  ' if index else ''}{line}\n" for index, line in enumerate(lines))
