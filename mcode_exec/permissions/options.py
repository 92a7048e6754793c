"""Reading the options of a command whose program we know a little."""

from __future__ import annotations

from mcode_exec.permissions.matching import GLOB, UNKNOWN
from mcode_exec.permissions.script import Word


def operands(words: tuple[Word, ...], valued: str = "") -> list[Word]:
    """Words that are no options and no values of the `valued` ones; after `--` all are operands."""
    takes_value = frozenset(valued.split())
    found: list[Word] = []
    at = 1
    while at < len(words):
        text = words[at].text
        if text == "--":
            found.extend(words[at + 1 :])
            break
        if text.startswith("-") and text != "-":
            at += 2 if text in takes_value else 1
            continue
        found.append(words[at])
        at += 1
    return found


def has_option(words: tuple[Word, ...], short: str = "", *names: str) -> bool:
    """Whether a one-letter option stands in any cluster, or a long one in full or shortened as GNU allows."""
    for word in words[1:]:
        text = word.text
        if text == "--":
            return False
        if text.startswith("--"):
            given = text.partition("=")[0]
            if len(given) > 2 and any(name.startswith(given) for name in names):
                return True
        elif text.startswith("-") and short and set(text[1:]) & set(short):
            return True
    return False


def values(words: tuple[Word, ...], *names: str) -> list[Word]:
    """Values of options, as the next word, behind `=`, or glued to a one-letter option."""
    found: list[Word] = []
    for at, word in enumerate(words[1:], 1):
        for name in names:
            if word.text == name:
                found.extend(words[at + 1 : at + 2])
            elif name.startswith("--") and word.text.startswith(name + "="):
                found.append(word.tail(len(name) + 1))
            elif not name.startswith("--") and word.text.startswith(name) and len(word.text) > len(name):
                found.append(word.tail(len(name)))
    return found


def may_be_option(word: Word) -> bool:
    """Whether nobody knows that the word is no option: it starts with an unknown part or a glob."""
    return word.pattern[:1] in (UNKNOWN, GLOB)


def subcommand(words: tuple[Word, ...], valued: str = "") -> tuple[str, tuple[Word, ...]]:
    """The first operand and the words from it on, as `push` and `push origin` of `git -C x push origin`."""
    takes_value = frozenset(valued.split())
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        at += 2 if words[at].text in takes_value else 1
    if at >= len(words):
        return "", ()
    return words[at].text, words[at:]


def past_options(words: tuple[Word, ...], at: int, valued: frozenset[str]) -> int:
    """The index behind the options from `at` on; `--` ends them."""
    while at < len(words):
        text = words[at].text
        if text == "--":
            return at + 1
        if not text.startswith("-") or (text == "-" and at > 1):
            return at
        at += 2 if text in valued else 1
    return min(at, len(words))
