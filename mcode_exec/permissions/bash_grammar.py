"""A script as tree-sitter's grammar sees it, and where that is not as bash does, as far as a whole tree shows it.

Found by holding the walker to a real bash; each repair names its case.
"""

from __future__ import annotations

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_LANGUAGE = Language(tree_sitter_bash.language())
_MOST_REPAIRS = 8  # of line ends; what is left then is reported as not understood
_QUOTED = frozenset(
    {"raw_string", "string_content", "string", "ansi_c_string", "heredoc_body", "heredoc_content", "comment"}
)
#: what the grammar sees for a character of 2, 3 and 4 bytes: of the same length, and no letter, digit or blank
_MASKS = {2: b"\xc2\xa7", 3: b"\xc2\xa7.", 4: b"\xc2\xa7\xc2\xa7"}


class Source:
    r"""A script and its tree.

    The grammar's scanner looks characters up in a table that ends at U+00FF and
    reads beyond it for `{` before an emoji, which can end the process; so it never
    sees a character that is not ASCII, and texts are cut from the script itself.

    It also reads on over a line end that stands before a backslash, so that
    `\rm` on the next line becomes an argument.  A blank between them keeps it right.
    """

    def __init__(self, script: str) -> None:
        self._bytes = script.encode()
        parser = Parser(_LANGUAGE)
        for _ in range(_MOST_REPAIRS):
            self.root = parser.parse(_masked(self._bytes)).root_node
            places = sorted(self._swallowed_line_ends(), reverse=True) if b"\n\\" in self._bytes else []
            if not places:
                break
            for at in places:
                self._bytes = self._bytes[:at] + b" " + self._bytes[at:]
        else:
            self.root = parser.parse(_masked(self._bytes)).root_node

    def text(self, node: Node) -> str:
        return self.between(node.start_byte, node.end_byte)

    def between(self, start: int, end: int) -> str:
        return self._bytes[start:end].decode("utf-8", "replace")

    def _swallowed_line_ends(self) -> list[int]:
        """Offsets of backslashes that start a word together with the line end before them."""
        found: list[int] = []
        at = self._bytes.find(b"\n\\")
        while at >= 0:
            leaf = self.root.descendant_for_byte_range(at, at + 2)
            if (
                leaf is not None
                and leaf.type == "word"
                and not self._bytes[leaf.start_byte : at].strip(b"\n")
            ):
                found.append(at + 1)
            at = self._bytes.find(b"\n\\", at + 1)
        return found

    def has_unusual_white_space(self) -> bool:
        """Characters outside of quotes that look like blanks to people but are none for bash."""
        at = 0
        for c in self.between(0, len(self._bytes)):
            size = len(c.encode())
            if (c.isspace() or c in "\x1c\x1d\x1e\x1f\x85") and c not in " \t\n":
                leaf = self.root.descendant_for_byte_range(at, at + size)
                if leaf is None or leaf.type not in _QUOTED:
                    return True
            at += size
        return False

    def loses_text(self) -> bool:
        """Whether some of the script is in no part of the tree, as the dash of `- a=b` is.

        The dash of `cat - <<E` is lost as well, but as an argument it says nothing.
        """
        cursor = self.root.walk()
        end = 0
        while True:
            node = cursor.node
            if node is None:
                return False
            lost = self._bytes[end : node.start_byte].replace(b"\\\n", b"").strip()
            if lost and not (lost == b"-" and node.type == "heredoc_redirect"):
                return True
            if node.child_count:
                end = max(end, node.start_byte)
                cursor.goto_first_child()
                continue
            end = max(end, node.end_byte)
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    return bool(self._bytes[end:].replace(b"\\\n", b"").strip())

    def starts_a_word(self, comment: Node) -> bool:
        """Whether bash, too, sees a comment: its `#` must not stand within a word."""
        return comment.start_byte == 0 or self._bytes[comment.start_byte - 1] in b" \t\n;&|()`"


def _masked(source: bytes) -> bytes:
    if source.isascii():
        return source
    return b"".join(
        _MASKS[len(piece)] if len(piece) > 1 else piece for piece in map(str.encode, source.decode("utf-8"))
    )
