"""What a person looks for, as words; and the same words in a text.

`parse` understands three forms: a word, "words in a row" in double quotes, and
the beginning of a word with a star behind it (`migrat*`).  Everything else is
words: brackets, AND, OR, a colon or a quote without its partner mean nothing.
Letters are compared without case and accents.  Chinese and Japanese are written
without spaces: each of their characters is a word, so any run of them is found
(`spaced`, which whoever writes the index applies to texts).
"""

from __future__ import annotations

import re
import unicodedata

from mcode_exec.errors import InvocationError
from mcode_exec.records.finding import Place, Term, Words

MAX_TERMS = 64
MAX_CHARS = 10_000
MIN_PREFIX_CHARS = 3  # shorter ones begin half of all words

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CJK_CHAR = re.compile(f"([{_CJK}])")
#: a quoted run, or anything up to the next space or quote
_PIECE = re.compile(r'"([^"]*)"|([^\s"]+)')
_WORD_CHAR = re.compile(r"[^\W_]")


def spaced(text: str) -> str:
    """`text` with every Chinese and Japanese character as a word of its own."""
    return text if text.isascii() else _CJK_CHAR.sub(r" \1 ", text)


def parse(text: str, places: tuple[Place, ...] = ()) -> tuple[Words, tuple[str, ...]]:
    """The words of `text`, and what is to be said of how it was understood.

    Raises: InvocationError where there is no word in it, or far too many.
    """
    if len(text) > MAX_CHARS:
        raise InvocationError(f"that is too much to search for: at most {MAX_CHARS:,} characters")
    terms: dict[Term, None] = {}
    notices: list[str] = []
    for match in _PIECE.finditer(text.replace("\0", " ")):  # SQLite takes it for the end of a query
        quoted, bare = match.groups()
        piece = quoted if bare is None else bare.rstrip("*")
        if not _WORD_CHAR.search(piece):
            continue
        is_prefix = bare is not None and bare.endswith("*")
        if is_prefix and len(_WORD_CHAR.findall(_last_word(piece))) < MIN_PREFIX_CHARS:
            is_prefix = False
            if not _CJK_CHAR.search(piece):
                notices.append(
                    f"{bare!r} is taken as a whole word: a beginning has at least {MIN_PREFIX_CHARS} letters"
                )
        terms[Term(text=spaced(piece), is_prefix=is_prefix)] = None
    if not terms:
        raise InvocationError(
            f"{text[:40]!r} has no word to search for: give letters or digits"
            if text.strip()
            else "there is nothing to search for: give at least one word"
        )
    if len(terms) > MAX_TERMS:
        raise InvocationError(f"that is too much to search for: at most {MAX_TERMS} words")
    return Words(terms=tuple(terms), places=places), tuple(notices)


def _last_word(piece: str) -> str:
    return re.split(r"[\W_]+", piece)[-1]


# in a text


class _Folding(dict[int, str]):
    """One plain character for each: small, without its accent; filled as characters come."""

    def __missing__(self, code: int) -> str:
        small = unicodedata.normalize("NFD", chr(code)).lower()
        plain = small[0] if small else chr(code)
        self[code] = plain
        return plain


_FOLDING = _Folding()


def folded(text: str) -> str:
    """`text` as it is compared; every character stays in its place."""
    return text.lower() if text.isascii() else text.translate(_FOLDING)


class Finder:
    """Finds words in texts, as the index does."""

    def __init__(self, words: Words) -> None:
        self._patterns = [_pattern(term) for term in words.terms]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each word stands first, in the order of the text; a word that is not there has none."""
        plain = folded(text)
        found = [match.span() for pattern in self._patterns if (match := pattern.search(plain))]
        return sorted(found)


def _pattern(term: Term) -> re.Pattern[str]:
    parts = re.findall(r"[^\W_]+", folded(term.text))
    pattern = "" if _is_cjk(parts[0]) else r"(?<![^\W_])"
    for number, part in enumerate(parts):
        if number:
            pattern += r"[\W_]*" if _is_cjk(part) or _is_cjk(parts[number - 1]) else r"[\W_]+"
        # accents that are characters of their own belong to the letter before them
        pattern += "".join(re.escape(letter) + "[\u0300-\u036f]*" for letter in part)
    return re.compile(pattern + ("" if term.is_prefix or _is_cjk(parts[-1]) else r"(?![^\W_])"))


def _is_cjk(part: str) -> bool:
    return _CJK_CHAR.match(part) is not None
