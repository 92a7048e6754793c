"""A few hundred inputs that are always the same, and all that fuzzing has ever found; `make fuzz` goes further."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcode_exec.providers.sse import SseEvent
from tests.fuzz.run import corpus_of, input_of, target_of
from tests.fuzz.targets import TARGETS, by_the_standard

FOUND = sorted(path for path in (Path(__file__).parent / "found").iterdir() if target_of(path))


@pytest.mark.parametrize("target", TARGETS)
def test_what_chance_makes_of_the_fixtures_keeps_every_promise(target: str) -> None:
    corpus = corpus_of(target)
    assert len(corpus) > 50
    for number in range(200):
        TARGETS[target](input_of(target, "always", number, corpus))


@pytest.mark.parametrize("path", FOUND, ids=[path.name for path in FOUND])
def test_what_was_found_stays_mended(path: Path) -> None:
    target = target_of(path)
    assert target is not None
    TARGETS[target](path.read_bytes())


def test_an_input_follows_from_its_seed_and_number() -> None:
    corpus = corpus_of("openai-completions")
    inputs = [input_of("openai-completions", "always", number, corpus) for number in range(30)]
    assert inputs == [input_of("openai-completions", "always", number, corpus) for number in range(30)]
    assert len(set(inputs)) > 20
    assert inputs != [input_of("openai-completions", "other", number, corpus) for number in range(30)]


def test_the_oracle_is_right_about_the_example_of_the_standard() -> None:
    """The streams that section 9.2.6 of the HTML standard explains."""
    assert by_the_standard(b"data: YHOO\ndata: +2\ndata: 10\n\n") == [SseEvent("", b"YHOO\n+2\n10")]
    stream = b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n"
    assert by_the_standard(stream) == [SseEvent("", b"first event"), SseEvent("", b"second event")]
    assert by_the_standard(b"data\n\ndata\ndata\n\ndata:") == [SseEvent("", b""), SseEvent("", b"\n")]
    assert by_the_standard(b"data:test\n\ndata: test\n\n") == [SseEvent("", b"test")] * 2
