"""Whether a closing tag amid its line ends a thought, or the line speaks of the tag.

A thought runs up to its tag, and the answer follows at once; who speaks of a tag sets it off, by blanks or
by quotation marks.  So the tag ends a thought where it stands right behind a word or the end of a sentence,
outside of a quotation, and what follows does not go on with the sentence around it.  In doubt it is a mention:
an answer must not lose its beginning.  Code is none of this module's business (`code_spans`).
"""

from __future__ import annotations

#: so many characters behind a tag tell what it is
AHEAD = 16
_TAIL = 16
_BLANKS = " \t"
_SENTENCE_ENDS = ".!?…。！？"
#: besides letters and digits, what a thought may end with
_ENDS = _SENTENCE_ENDS + ":;,)]}%`" + "”’»」』）】" + "\"'"
#: what goes on with a sentence that mentions the tag, or encloses it
_GOES_ON = ",.;:!?)]}>/\\|=" + "，。；：！？、）】”’»」』"
#: what opens a quotation, and what ends it
_QUOTES = {
    '"': '"',
    "'": "'",
    "“": "”",
    "„": "“”",
    "‘": "’",
    "«": "»",
    "»": "«",
    "「": "」",
    "『": "』",
}
_MARKS = frozenset("".join(_QUOTES) + "".join(_QUOTES.values()))


class Line:
    """The line that is being read, as it grows."""

    def __init__(self) -> None:
        self._unread: list[str] = []
        #: the last characters of what was read
        self._tail = ""
        #: what ends the quotation that is open; "" for none
        self._closers = ""

    def follow(self, text: str) -> None:
        """Take in what is said; a line end in it begins a new line."""
        _, end, rest = text.rpartition("\n")
        if end:
            self._unread.clear()
            self._tail = self._closers = ""
        if rest:
            self._unread.append(rest)

    def ends_thought(self, behind: str, *, has_stray_tick: bool) -> bool:
        """Whether a closing tag that stands here ends a thought.

        `behind` is what follows it, AHEAD characters at most; `has_stray_tick`: a run of
        backticks before it opened no code.
        """
        self._read()
        said = self._tail.rstrip(_BLANKS)
        if self._closers or not said or not behind or behind[0] in _GOES_ON or behind.startswith("</"):
            return False
        if said != self._tail:  # a blank before the tag: only a new sentence right behind it is an answer
            return said[-1] in _SENTENCE_ENDS and not behind[0].isspace()
        if said[-1] == "`" and has_stray_tick:
            return False
        return said[-1] in _ENDS or said.endswith("**") or (said[-1].isalnum() and not _is_unspaced(said[-1]))

    def _read(self) -> None:
        """Take in what was not read yet.  Called at a tag only: so what follows the last character is a `<`."""
        if not self._unread:
            return
        text = "".join(self._unread)
        self._unread.clear()
        for at, char in enumerate(text):
            if char not in _MARKS:
                continue
            before = text[at - 1] if at else self._tail[-1:]
            if before == "\\":
                continue
            if char == "'":  # in a word, or behind one, it is an apostrophe
                beside = text[at + 1 : at + 2] if self._closers == "'" else before
                if beside.isalnum():
                    continue
            if self._closers:
                self._closers = "" if char in self._closers else self._closers
            else:
                self._closers = _QUOTES.get(char, "")
        self._tail = (self._tail + text)[-_TAIL:]


def _is_unspaced(char: str) -> bool:
    """Whether a letter is of a script that sets no blanks between words: a tag in its prose touches them."""
    return (
        char >= "\u2e80"
        or "\u0e00" <= char <= "\u0eff"
        or "\u1000" <= char <= "\u109f"
        or "\u1780" <= char <= "\u17ff"
    )
