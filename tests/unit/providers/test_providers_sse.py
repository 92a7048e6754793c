"""Server-sent events: any cutting of the bytes gives the same events."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.sse import SseEvent, SseParser


def parse(*chunks: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for piece in chunks for event in parser.feed(piece)]


lines = st.sampled_from(
    [
        b"data: a",
        b"data:b",
        b"data:  c",
        b"data",
        b"data:",
        b": comment",
        b"event: named",
        b"id: 7",
        b"retry: 10",
        b"unknown: x",
        b"",
        b"",
        "data: 漢字🙂\u2028\u0085\x0b\x0c\x1c".encode(),
        b"\xef\xbb\xbfdata: bom",
    ]
)
ends = st.sampled_from([b"\n", b"\r", b"\r\n"])
streams = st.lists(st.tuples(lines, ends), max_size=20).map(lambda items: b"".join(a + b for a, b in items))


@given(streams, st.lists(st.integers(0, 400), max_size=12))
def test_any_cutting_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    places = sorted({cut for cut in cuts if cut < len(stream)} | {0, len(stream)})
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert parse(*pieces) == parse(stream)
    assert parse(*[stream[at : at + 1] for at in range(len(stream))]) == parse(stream)


@given(st.lists(st.text(alphabet="abc :漢\u2028\u0085", max_size=8), min_size=1, max_size=5), ends)
def test_data_comes_back_as_it_was_sent(data: list[str], end: bytes) -> None:
    stream = b"".join(b"data: " + line.encode() + end for line in data) + end
    assert parse(stream) == [SseEvent("", "\n".join(data).encode())]


def test_carriage_return_and_line_feed_in_two_pieces_are_one_line_end() -> None:
    assert parse(b"data: x\r", b"\n\r\n") == [SseEvent("", b"x")]
    assert parse(b"data: x\r", b"\r", b"data: y\r\r") == [SseEvent("", b"x"), SseEvent("", b"y")]


def test_an_event_that_the_end_cut_short_is_not_delivered() -> None:
    assert parse(b"data: x\n") == []


def test_the_name_belongs_to_its_event_only() -> None:
    assert parse(b"event: a\ndata: 1\n\ndata: 2\n\nevent: b\n\ndata: 3\n\n") == [
        SseEvent("a", b"1"),
        SseEvent("", b"2"),
        SseEvent("", b"3"),
    ]


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 100, b"x" * 50, b"data: 12345678\n"])
def test_an_event_above_the_cap_is_refused_and_not_kept(piece: bytes) -> None:
    parser = SseParser(max_event_bytes=1000)

    def feed_on() -> None:
        for _ in range(10_000):
            parser.feed(piece)

    with pytest.raises(ModelCallError, match="1000 bytes") as caught:
        feed_on()
    assert caught.value.code == "LLM_BAD_RESPONSE"
