"""What a person types are words, whatever it looks like; and a text has them where the index says so."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from mcode_exec.errors import InvocationError
from mcode_exec.records.finding import Term, Words
from mcode_exec.sessions.snippets import SNIPPET_CHARS, snippet
from mcode_exec.sessions.words import Finder, parse, spaced
from mcode_exec.store.search_rows import _expression


def terms(text: str) -> list[str]:
    return [term.text + ("*" if term.is_prefix else "") for term in parse(text)[0].terms]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two words", ["two", "words"]),
        ('"in a row" other', ["in a row", "other"]),
        ("migrat*", ["migrat*"]),
        ('foo" OR (', ["foo", "OR"]),
        ('"unbalanced', ["unbalanced"]),
        ('a"b c"d', ["a", "b c", "d"]),
        ("NEAR(a b, 5) AND NOT title:x", ["NEAR(a", "b,", "5)", "AND", "NOT", "title:x"]),
        ("same same", ["same"]),
        ("- ( ) * ** ^ word", ["word"]),
        ("a\tb\nc", ["a", "b", "c"]),
        ("foo_bar/baz.py", ["foo_bar/baz.py"]),
        ("*middle*", ["*middle*"]),
        ("服务器", [" 服  务  器 "]),
    ],
)
def test_words_phrases_and_beginnings_are_understood_and_nothing_else(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize("text", ["", "   ", '"', '""', "( * )", "—", "👍", "_", '" " "'])
def test_a_text_without_a_word_is_refused(text: str) -> None:
    with pytest.raises(InvocationError, match=r"word"):
        parse(text)


@pytest.mark.parametrize("text", ["x" * 10_001, " ".join(f"w{number}" for number in range(65))])
def test_far_too_much_is_refused(text: str) -> None:
    with pytest.raises(InvocationError, match="too much"):
        parse(text)


def test_a_beginning_that_is_too_short_is_a_word_and_that_is_said() -> None:
    words, notices = parse("ab* abc*")
    assert [term.is_prefix for term in words.terms] == [False, True]
    assert "'ab*'" in notices[0]


#: what may stand in a text or a query, brackets, quotes and operators above all
_TEXT = some.lists(
    some.sampled_from(
        [*"ab\"()*:^-+{},.;\\'`~!|&_ \n\t\0", "é", "e\u0301", "字", "АБ", "👍", "ß", "İ", "\u200b"]
    ),
    max_size=30,
).map("".join)


def _index() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE found USING fts5 (session, title, prompt, answer, tool, columnsize = 0,"
        ' tokenize = "unicode61 remove_diacritics 2")'
    )
    return connection


@given(text=_TEXT)
@example(text='foo" OR (')
@example(text='" OR session:"s1')
@example(text="a AND b) OR (c")
@example(text="} : a {")
def test_no_text_is_syntax(text: str) -> None:
    try:
        words = parse(text)[0]
    except InvocationError:
        return
    connection = _index()
    for numbers in ((), (1, 2)):
        connection.execute(
            "SELECT rowid FROM found WHERE found MATCH ?", (_expression(words, numbers),)
        ).fetchall()
    connection.close()


@given(text=_TEXT, around=_TEXT)
@example(text="e\u0301b", around="éb")
@example(text='"a b"', around="a_b")
@example(text="字字", around="x字字字y")
def test_what_the_index_finds_stands_in_the_text_for_the_snippet_too(text: str, around: str) -> None:
    try:
        words = parse(text)[0]
    except InvocationError:
        return
    whole = f"{around} {text} {around}"
    connection = _index()
    connection.execute("INSERT INTO found (rowid, answer) VALUES (1, ?)", (spaced(whole),))
    rows = connection.execute(
        "SELECT rowid FROM found WHERE found MATCH ?", (_expression(words, ()),)
    ).fetchall()
    connection.close()
    assert rows, "a text has its own words"
    assert snippet(whole, Finder(words)) is not None


def finder(*texts: str, is_prefix: bool = False) -> Finder:
    return Finder(Words(terms=tuple(Term(text=text, is_prefix=is_prefix) for text in texts)))


@pytest.mark.parametrize(
    ("text", "word", "is_there"),
    [
        ("the Deadlock here", "deadlock", True),
        ("deadlocks", "deadlock", False),
        ("undeadlock", "deadlock", False),
        ("ÄRGER", "arger", True),
        ("Arger", "ärger", True),
        ("a foo-bar b", "foo bar", True),
        ("foobar", "foo bar", False),
        ("foo_bar", "bar", True),
        ("x1", "1", False),
    ],
)
def test_a_word_is_whole_and_case_and_accents_make_no_difference(
    text: str, word: str, is_there: bool
) -> None:
    assert bool(finder(word).spans(text)) is is_there


def test_a_beginning_is_the_beginning_of_a_word() -> None:
    assert finder("dead", is_prefix=True).spans("a deadlock")
    assert not finder("lock", is_prefix=True).spans("a deadlock")


def test_a_snippet_is_one_line_around_the_first_of_the_words() -> None:
    text = "begin " + "before " * 50 + "the\nneedle\t \n stands  here " + "after " * 100
    found = snippet(text, finder("stands", "needle"))
    assert found is not None
    assert found.startswith("…before before")
    assert "the needle stands here after" in found
    assert found.endswith("…")
    assert len(found) <= SNIPPET_CHARS + 2


def test_a_short_text_is_its_own_snippet() -> None:
    assert snippet("just a needle.", finder("needle")) == "just a needle."
    assert snippet("nothing", finder("needle")) is None


def test_a_snippet_of_megabytes_of_white_space_takes_no_time() -> None:
    text = " " * 5_000_000 + "needle" + "\n" * 5_000_000
    assert snippet(text, finder("needle")) == "…needle…"
