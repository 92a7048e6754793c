"""Titles: one line that does nothing, and those that tools give for want of a better."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.sessions.titles import MAX_TITLE, default_title, is_default_title, title_in


@given(st.text(st.characters(codec=None), max_size=300))
def test_a_title_is_one_line_of_at_most_80_characters_that_can_be_seen_and_stored(text: str) -> None:
    title = title_in(text)
    if title is None:
        return
    assert 0 < len(title) <= MAX_TITLE
    assert title == " ".join(title.split())
    assert not [char for char in title if unicodedata.category(char) in ("Cc", "Zl", "Zp", "Cs")]
    assert any(char.isprintable() and not char.isspace() for char in title)
    assert title_in(title) == title


@pytest.mark.parametrize(
    "text", ["", " \n\t\r\n", "\x00\x1b\x7f\x9b", "\u202e\u2066\ufeff", "\u200b\n\u200d"]
)
def test_a_text_in_which_nothing_can_be_seen_gives_none(text: str) -> None:
    assert title_in(text) is None


def test_a_line_of_millions_of_characters_is_looked_at_only_as_far_as_a_title_goes() -> None:
    title = title_in("\n" * 1_000_000 + "x" * 5_000_000)
    assert title == "x" * 79 + "…"


def test_default_titles_are_known_again_whoever_made_them() -> None:
    for is_child in (False, True):
        assert is_default_title(default_title(1_700_000_000_123, is_child=is_child))
    assert default_title(1_705_314_645_123) == "New session - 2024-01-15T10:30:45.123Z"
    assert is_default_title("Child session - 2024-01-15T10:35:12.456Z")
    assert is_default_title("New session - 2024-01-15T10:30:45.123Z (fork #2)")


@pytest.mark.parametrize(
    "title",
    [
        "",
        "New session",
        "New session - 2024-01-15T10:30:45Z",
        "New session - 2024-01-15T10:30:45.123Z (fork #x)",
        "Re: New session - 2024-01-15T10:30:45.123Z",
        "new session - 2024-01-15T10:30:45.123Z",
        "New session - ٢٠٢٤-01-15T10:30:45.123Z",
    ],
)
def test_what_somebody_wrote_is_no_default_title(title: str) -> None:
    assert not is_default_title(title)
