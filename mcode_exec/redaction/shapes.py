"""Secrets that are known by their shape: a token's beginning, a password in a URL, a private key block."""

from __future__ import annotations

from collections.abc import Iterable

#: the beginning of a shape → the whole shape (its group, if any, is what is masked), and what may still become one.
#: A text without any of these beginnings costs nothing more; patterns are compiled at their first use.
_WORD = r"(?<![A-Za-z0-9_])"
_NAME_CHAR = "[A-Za-z0-9_-]"
_BEARER_CHAR = r"[A-Za-z0-9._~+/-]"
_KEY_BLOCK_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----"
_SHAPES: dict[str, tuple[str, str]] = {
    marker: (_WORD + whole, _WORD + re_open)
    for marker, whole, re_open in (
        ("sk-", r"sk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}", rf"sk-{_NAME_CHAR}*\Z"),
        ("sk_", r"sk_(?:live|test)_[A-Za-z0-9]{16,}", rf"sk_{_NAME_CHAR}*\Z"),
        *((f"gh{kind}_", rf"gh{kind}_[A-Za-z0-9]{{20,}}", rf"gh{kind}_[A-Za-z0-9]*\Z") for kind in "pousr"),
        ("github_pat_", rf"github_pat_{_NAME_CHAR}{{22,}}", rf"github_pat_{_NAME_CHAR}*\Z"),
        ("glpat-", rf"glpat-{_NAME_CHAR}{{20,}}", rf"glpat-{_NAME_CHAR}*\Z"),
        ("npm_", r"npm_[A-Za-z0-9]{36,}", r"npm_[A-Za-z0-9]*\Z"),
        ("hf_", r"hf_[A-Za-z0-9]{30,}", r"hf_[A-Za-z0-9]*\Z"),
        ("xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,}", r"xox[A-Za-z0-9-]*\Z"),
        ("AKIA", r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])", r"AKIA[A-Z0-9]*\Z"),
        ("ASIA", r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])", r"ASIA[A-Z0-9]*\Z"),
        ("AIza", rf"AIza{_NAME_CHAR}{{35,}}", rf"AIza{_NAME_CHAR}*\Z"),
        *(
            (
                word,
                rf"{word} *((?=[A-Za-z._~+/-]*[0-9]){_BEARER_CHAR}{{16,}}=*)",
                rf"{word} *{_BEARER_CHAR}*=*\Z",
            )
            for word in ("Bearer ", "bearer ", "BEARER ")
        ),
    )
} | {
    # a password that begins with $, < or { is a place for one
    "://": (
        r"""://[^\s/@:'"<>]{0,64}:((?![$<{*])[^\s/@'"<>]{1,256})@""",
        r"""://[^\s/@:'"<>]{0,64}(?::[^\s/@'"<>]{0,256})?\Z""",
    ),
    "-----BEGIN ": (
        rf"-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY-----(?:(?!{_KEY_BLOCK_END})[\s\S])*(?:{_KEY_BLOCK_END})?",
        rf"-----BEGIN [A-Z0-9 ]{{0,60}}(?:-{{0,4}}|(?<=PRIVATE KEY)-----(?:(?!{_KEY_BLOCK_END})[\s\S])*)\Z",
    ),
}

#: the beginnings of beginnings, for text that ends within one
_PARTIAL_MARKERS = frozenset(marker[:length] for marker in _SHAPES for length in range(1, len(marker)))
_LONGEST_PARTIAL = max(map(len, _PARTIAL_MARKERS))


def has_marker(text: str) -> bool:
    """Whether `text` holds the beginning of any shape."""
    return any(marker in text for marker in _SHAPES)


def may_be_open(text: str) -> bool:
    """Whether a shape may begin in `text` that it does not finish."""
    return _partial_from(text) < len(text) or has_marker(text)


def shape_spans(text: str, begin: int) -> Iterable[tuple[int, int]]:
    """Where whole shapes stand from `begin` on, shape by shape."""
    import re

    for marker, (whole, _) in _SHAPES.items():
        at = text.find(marker, begin)
        if at < 0:
            continue
        pattern = re.compile(whole)
        while at >= 0:
            match = pattern.match(text, at)
            if match is not None:
                yield match.span(match.lastindex or 0)
            at = text.find(marker, at + 1)


def open_from(text: str, begin: int) -> int:
    """Where, from `begin` on, the first shape starts that `text` does not finish; its length if there is none."""
    import re

    start = _partial_from(text, begin)
    for marker, (_, unfinished) in _SHAPES.items():
        at = text.find(marker, begin)
        pattern = re.compile(unfinished) if at >= 0 else None
        while 0 <= at < start:
            if pattern is not None and pattern.match(text, at):
                start = at
            at = text.find(marker, at + 1)
    return start


def _partial_from(text: str, begin: int = 0) -> int:
    for length in range(min(_LONGEST_PARTIAL, len(text) - begin), 0, -1):
        at = len(text) - length
        if text[at:] in _PARTIAL_MARKERS and (text[at] in ":-" or not _is_word_char(text[at - 1 : at])):
            return at
    return len(text)


def _is_word_char(char: str) -> bool:
    return char == "_" or (char.isascii() and char.isalnum())
