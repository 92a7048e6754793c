"""Words are replaced however a stream cuts them, and nothing else is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcode_exec.recordings.comparison import Normal, differences, nearest
from mcode_exec.recordings.places import finder
from mcode_exec.recordings.rewriting import recut, rewritten
from mcode_exec.redaction import MASK, Redactor

STREAMS = Path(__file__).resolve().parents[3] / "fixtures" / "streams"
SECRET = "correct-horse-1234"


def masking(text: str) -> list[tuple[int, int, str]]:
    return [(start, end, MASK) for start, end in Redactor([SECRET]).spans(text)]


def text_of(body: bytes) -> str:
    return "".join(
        json.loads(line[5:])["delta"]["text"] for line in body.split(b"\n") if line.startswith(b"data:")
    )


@pytest.mark.parametrize("path", sorted(STREAMS.glob("*.sse")), ids=lambda path: path.name)
def test_a_stream_without_a_find_is_the_same_bytes(path: Path) -> None:
    assert rewritten(path.read_bytes(), masking) == path.read_bytes()


@given(st.text(max_size=20), st.text(max_size=20), st.lists(st.integers(1, 9), min_size=1, max_size=40))
@example('"', "\\", [1])
def test_a_word_is_found_across_the_pieces_of_a_stream(before: str, after: str, sizes: list[int]) -> None:
    text = f"{before} {SECRET} {after}"
    pieces, at = [], 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    body = b"".join(
        b"event: delta\ndata: %s\n\n" % json.dumps({"index": 0, "delta": {"text": piece}}).encode()
        for piece in pieces
    )
    assert text_of(rewritten(body, masking)) == f"{before} {MASK} {after}"


def test_texts_that_stand_side_by_side_are_told_apart() -> None:
    half = len(SECRET) // 2
    body = b"".join(
        b"data: %s\n\n" % json.dumps({"index": index, "delta": {"text": piece}}).encode()
        for index, piece in [(0, SECRET[:half]), (1, "other"), (0, SECRET[half:]), (1, " text")]
    )
    assert text_of(rewritten(body, masking)) == f"{MASK}other text"


def test_an_event_of_several_lines_is_read_as_one() -> None:
    body = b'data: {"delta":\r\ndata: {"text": "%s"}}\r\n\r\n' % SECRET.encode()
    changed = rewritten(body, masking)
    assert SECRET.encode() not in changed
    assert json.loads(b"".join(line[5:] for line in changed.split(b"\r\n") if line)) == {
        "delta": {"text": MASK}
    }


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), min_size=1), st.integers(0, 400))
def test_pieces_add_up_to_the_size_they_have_now(pieces: list[tuple[int, int]], size: int) -> None:
    cut = recut(pieces, size)
    assert sum(length for _, length in cut) == size
    assert [at for at, _ in cut] == [at for at, _ in pieces]


def test_dates_ids_and_places_are_brought_to_one_form() -> None:
    normal = Normal(finder([("/h", "<home>"), ("/h/w", "<workspace>")]))
    first, second = "call_" + "a" * 24, "call_" + "b" * 24
    value = {
        "x": f"in /h/w/f and /h: {first} {second} {first}",
        "y": [
            "2026-12-02",
            "2026-12-02T10:00:00Z",
            "Wed, 02 Dec 2026 10:00:00 GMT",
            "Wed Dec  2 10:02:22 UTC 2026",
        ],
        "z": f"Git branch: main\nPlatform: linux x86_64; date: 2026-12-02 (UTC)\nmvs_{'0' * 32}",
    }
    assert normal.json(value) == {
        "x": "in <workspace>/f and <home>: <id 1> <id 2> <id 1>",
        "y": ["<date>"] * 4,
        "z": "<id 3>",
    }


def test_ids_that_are_swapped_are_a_difference() -> None:
    one, other = "call_" + "a" * 24, "call_" + "b" * 24
    no_places = finder([])
    recorded = Normal(no_places).json([one, other, one])
    assert differences(recorded, Normal(no_places).json([other, one, other])) == []
    (found,) = differences(recorded, Normal(no_places).json([one, other, other]))
    assert found.startswith("[2]")


@pytest.mark.parametrize(
    ("recorded", "now", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, ["a: recorded 1, now true"]),
        ({"a": 1}, {}, ["a: recorded 1, now absent"]),
        ({}, {"a": [1]}, ["a: not recorded, now [1]"]),
        ([1, 2], [1], [": recorded 2 entries, now 1"]),
        ("key is ***.", "key is hunter2.", []),
        ("key is ***.", "key is hunter2", ['all of it: recorded "key is ***.", now "key is hunter2"']),
        ("***a***", "xxayy", []),
        ("aa***aa", "aaa", ['all of it: recorded "aa***aa", now "aaa"']),
        ({"a": None}, {"a": {"ü": [True]}}, ['a: recorded null, now {"ü": [true]}']),
        ("x" * 100 + "A", "x" * 100 + "B", [f'all of it: recorded …"{"x" * 40}A", now …"{"x" * 40}B"']),
    ],
)
def test_a_difference_says_where_it_is(recorded: object, now: object, found: list[str]) -> None:
    assert differences(recorded, now) == found


@given(st.recursive(st.none() | st.booleans() | st.text() | st.integers(), lambda inner: st.lists(inner)))
def test_what_is_the_same_differs_nowhere(value: object) -> None:
    assert differences(value, value) == []


def test_a_text_that_is_as_it_was_recorded_is_no_difference_although_its_directory_moved() -> None:
    moved, recorded = {"a": ["<new>/x", "<new>/y"]}, {"a": ["<old>/x", "<old>/y"]}
    assert nearest(moved, recorded, {"a": ["<old>/x", "<new>/y"]}) == {"a": ["<old>/x", "<new>/y"]}
    assert nearest(moved, recorded, {"a": ["<old>/x"]}) == {"a": ["<old>/x", "<new>/y"]}
    assert nearest(moved, recorded, {"b": 1}) == moved
