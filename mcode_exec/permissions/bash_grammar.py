"""Where tree-sitter's grammar reads bash otherwise than bash does, as far as a whole tree shows it.

Found by holding the walker to a real bash; each repair names its case.
"""

from __future__ import annotations

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from mcode_exec.permissions.bash_words import text_of

_LANGUAGE = Language(tree_sitter_bash.language())
_MOST_REPAIRS = 8  # of line ends; what is left then is reported as not understood
_QUOTED = frozenset(
    {"raw_string", "string_content", "string", "ansi_c_string", "heredoc_body", "heredoc_content", "comment"}
)


def parsed(source: bytes) -> Node:
    r"""The tree of a script.

    The grammar reads on over a line end that stands before a backslash, so that
    `\rm` on the next line becomes an argument.  A blank between them keeps it right.
    """
    parser = Parser(_LANGUAGE)
    for _ in range(_MOST_REPAIRS):
        root = parser.parse(source).root_node
        places = sorted(_swallowed_line_ends(root, source), reverse=True) if b"\n\\" in source else []
        if not places:
            break
        for at in places:
            source = source[:at] + b" " + source[at:]
    else:
        root = parser.parse(source).root_node
    return root


def _swallowed_line_ends(root: Node, source: bytes) -> list[int]:
    """Offsets of backslashes that start a word together with the line end before them."""
    found: list[int] = []
    at = source.find(b"\n\\")
    while at >= 0:
        leaf = root.descendant_for_byte_range(at, at + 2)
        if leaf is not None and leaf.type == "word" and source[leaf.start_byte : at].strip(b"\n") == b"":
            found.append(at + 1)
        at = source.find(b"\n\\", at + 1)
    return found


def has_unusual_white_space(root: Node) -> bool:
    """Characters outside of quotes that separate words for the grammar but not for bash."""
    at = root.start_byte
    for c in text_of(root):
        size = len(c.encode())
        if (c.isspace() or c in "\x1c\x1d\x1e\x1f\x85") and c not in " \t\n":
            leaf = root.descendant_for_byte_range(at, at + size)
            if leaf is None or leaf.type not in _QUOTED:
                return True
        at += size
    return False


def starts_a_word(comment: Node) -> bool:
    """Whether bash, too, sees a comment: its `#` must not stand within a word."""
    root = comment
    while root.parent is not None:
        root = root.parent
    before = comment.start_byte - 1 - root.start_byte
    return before < 0 or (root.text or b"")[before : before + 1] in b" \t\n;&|()`"
