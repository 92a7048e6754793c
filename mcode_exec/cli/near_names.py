"""What a misspelt command or flag was meant to be; nothing where nothing is near."""

from __future__ import annotations

from collections.abc import Iterable

#: below this two names are not the same one misspelt
_LIKENESS = 0.7
_SHORTEST_BEGINNING = 3  # characters


def suggestion(given: str, known: Iterable[str]) -> str:
    """` Did you mean …?`, or nothing."""
    from difflib import get_close_matches

    by_word = {name.lstrip("-"): name for name in known if len(name.lstrip("-")) > 1}
    word = given.lstrip("-")
    near = get_close_matches(word, by_word, n=2, cutoff=_LIKENESS)
    if not near and len(word) >= _SHORTEST_BEGINNING:
        near = [name for name in by_word if name.startswith(word)][:2]
    names = " or ".join(repr(by_word[word]) for word in near)
    return f" Did you mean {names}?" if names else ""
