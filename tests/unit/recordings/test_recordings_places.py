"""Directories of a recorded run are found wherever they are named, and moved once."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcode_exec.recordings.layout import Place
from mcode_exec.recordings.places import finder, moved, named
from mcode_exec.recordings.rewriting import relocated, replaced

#: what a directory may be called, and still be found: names with what JSON escapes, and without
NAMES = [
    "plain",
    "with space",
    'q"q',
    "b\\x",
    "n\nl",
    "ü",
    "\U0001f600",
    "<workspace>",
    "a.b",
    "-x",
    "sub/dir",
]


def places(**paths: str) -> list[Place]:
    return [Place(name=name, path=path) for name, path in paths.items()]


def move(text: str, was: Sequence[Place], here: Sequence[Place]) -> str:
    return replaced(text, finder(moved(was, here)))


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("/w/a", "/new"),
        ("/w/a/", "/new/"),
        ("/w/a/b.txt (/w/a). /w/a: x", "/new/b.txt (/new). /new: x"),
        ("A=/w/a:/w/a/bin --x=/w/a 2>/w/a/err", "A=/new:/new/bin --x=/new 2>/new/err"),
        ("file:///w/a/x file://host/w/a/x 'scp' user@host:/w/a @/w/a/body", None),
        ("cc -I/w/a/include -L/w/a", "cc -I/new/include -L/new"),
        ("+/w/a/added\n-/w/a/removed", "+/new/added\n-/new/removed"),
        ("\x1b[01;34m/w/a\x1b[0m \x1b[35m\x1b[K/w/a/f", "\x1b[01;34m/new\x1b[0m \x1b[35m\x1b[K/new/f"),
        (r'"one\n/w/a\n"', r'"one\n/new\n"'),
        ("读取/w/a/f", "读取/new/f"),
        # other directories
        ("/w/ab /w/a-b /w/a.b /w/a+b /w/a@2 /w/a%20b /w/aü /w", "="),
        ("/data/w/a/x ./w/a ../w/a ~/w/a $X/w/a ${X}/w/a $(x)/w/a **/w/a src/w/a //w/a", "="),
        ("/资料/w/a https://example.com/w/a C:\\/w/a", "="),
    ],
)
def test_a_directory_is_found_at_the_borders_of_a_path_only(text: str, there: str | None) -> None:
    expected = text if there == "=" else there or text.replace("/w/a", "/new")
    assert move(text, places(workspace="/w/a"), places(workspace="/new")) == expected


def test_a_directory_is_moved_once() -> None:
    was, here = places(workspace="/r/w"), places(workspace="/r/w/sub")
    text = json.dumps({"in": "/r/w/f", "nested": json.dumps({"at": "/r/w"})})
    assert json.loads(move(text, was, here)) == {"in": "/r/w/sub/f", "nested": '{"at": "/r/w/sub"}'}
    # one becomes what the other was
    was, here = places(workspace="/one", home="/two"), places(workspace="/two", home="/one")
    assert move("/one/x /two/y", was, here) == "/two/x /one/y"


def test_a_directory_that_stayed_shields_what_is_in_it() -> None:
    was, here = places(workspace="/h/w", home="/h"), places(workspace="/h/w", home="/other")
    assert move("/h/w/f /h/w2/f /h", was, here) == "/h/w/f /other/w2/f /other"


def test_two_places_in_one_directory_move_as_the_first() -> None:
    was, here = places(workspace="/h", home="/h"), places(workspace="/a", home="/b")
    assert move("/h/f", was, here) == "/a/f"


def test_what_is_no_directory_or_is_not_in_both_runs_stays() -> None:
    assert move("/ /x x", places(home="/", temp="x"), places(home="/a", temp="/b")) == "/ /x x"
    assert move("/x/f", places(home="/x"), places(home="/")) == "/x/f"
    assert move("/x/f", places(data="/x"), places(home="/y")) == "/x/f"
    assert named(places(home="/h", data="/d"), places(home="/r")) == [("/h", "<home>")]


@given(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 3), st.booleans())
@example('q"q', "plain", 2, False)
@example("plain", 'q"q', 2, True)
def test_a_directory_is_found_however_it_is_escaped(old: str, new: str, depth: int, is_ascii: bool) -> None:
    def text(name: str, is_ascii: bool) -> str:
        value = f"see /w/{name}/f.txt and /w/{name}"
        for level in range(depth):
            value = json.dumps({f"/w/{name}": [value, level]}, ensure_ascii=is_ascii)
        return value

    def meant(value: object) -> object:
        if isinstance(value, str):
            return meant(json.loads(value)) if value[:1] in "{[" else value
        if isinstance(value, dict):
            return {meant(key): meant(inner) for key, inner in value.items()}
        return [meant(inner) for inner in value] if isinstance(value, list) else value

    there = move(text(old, is_ascii), places(workspace=f"/w/{old}"), places(workspace=f"/w/{new}"))
    assert meant(there) == meant(text(new, True))


@given(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(1, 9), st.booleans())
def test_a_directory_in_the_arguments_of_a_call_is_found_across_the_pieces_of_a_stream(
    old: str, new: str, size: int, is_ascii: bool
) -> None:
    arguments = json.dumps({"file_path": f"/w/{old}/f", "n": 1}, ensure_ascii=is_ascii)
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    body = "".join(
        f"data: {json.dumps({'index': 0, 'partial_json': piece}, ensure_ascii=is_ascii)}\n\n"
        for piece in pieces
    )
    find = finder(moved(places(workspace=f"/w/{old}"), places(workspace=f"/w/{new}")))
    moved_body = relocated(f": /w/{old}\n{body}data: [DONE]\n\n".encode(), find).decode()
    told = "".join(
        json.loads(line[5:])["partial_json"] for line in moved_body.split("\n") if line.startswith("data: {")
    )
    assert json.loads(told) == {"file_path": f"/w/{new}/f", "n": 1}
    if "\n" not in old + new:
        assert moved_body.startswith(f": /w/{new}\n")
    if old == new:
        assert moved_body == f": /w/{old}\n{body}data: [DONE]\n\n"


def test_directories_in_a_text_that_quotes_json_are_found_as_they_stand_there() -> None:
    was, here = places(workspace='/w/q"ü'), places(workspace="/w/b\\x")
    quoted = json.dumps({"a": '/w/q"ü/f'})
    assert move(f"```json\n{quoted}\n```", was, here) == "```json\n" + r'{"a": "/w/b\\x/f"}' + "\n```"
    twice = json.dumps(quoted)
    assert json.loads(json.loads(move(f"x {twice}", was, here)[2:])) == {"a": "/w/b\\x/f"}


def test_calls_that_stand_one_after_the_other_are_json() -> None:
    text = '{"a": "/w/old"}\n{"b": "/w/old/x"} and /w/old'
    there = move(text, places(workspace="/w/old"), places(workspace='/w/"'))
    assert there == r'{"a": "/w/\""}' + "\n" + r'{"b": "/w/\"/x"}' + ' and /w/"'


def test_names_of_fields_in_events_are_texts_too() -> None:
    body = b'data: {"input":{"/w/a/f":[1]}}\n\n'
    find = finder([("/w/a", "/new")])
    assert relocated(body, find) == b'data: {"input":{"/new/f":[1]}}\n\n'
    assert relocated(b'data: "/w/a"\n\ndata: /w/a/x\n\n', find) == b'data: "/new"\n\ndata: /new/x\n\n'


@given(st.text(max_size=60))
@example('{"\\ud83d\\ude00 \\u00fc \\/ \\n": 1}')
def test_a_text_without_a_directory_is_the_same(text: str) -> None:
    assert replaced(text, finder([("/nowhere/at/all", "/x")])) == text
