"""One form of duration, and a sentence that shows it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.durations import MAX_DURATION_S, format_duration, parse_duration
from mcode_exec.errors import ConfigError, InvocationError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("1d", 86400.0),
        ("0s", 0.0),
        ("007s", 7.0),
    ],
)
def test_a_number_with_a_unit_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


NOT_DURATIONS = (
    [
        "",
        " ",
        "5",
        "1.5",
        "-1s",
        "+1s",
        "nans",
        "infs",
        "1e3s",
        "1_0s",
        "1 s",
        " 1s",
        "1s ",
        "s",
        ".5s",
        "1.s",
        "1S",
    ],
    ["1m30s", "1,5s", "١s", "1µs", "²s", "1w", "9" * 400 + "s", "1\0s"],
)


@pytest.mark.parametrize("text", [text for texts in NOT_DURATIONS for text in texts])
def test_anything_else_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(InvocationError) as caught:
        parse_duration(text, name="--timeout", error=InvocationError)
    assert caught.value.message.startswith("--timeout: ")
    assert caught.value.exit_code == 2
    assert "36500d" in caught.value.message or "ms, s, m, h or d" in caught.value.message


def test_a_bare_number_is_shown_with_its_unit() -> None:
    with pytest.raises(ConfigError, match="write 30s or 30m"):
        parse_duration("30")


@given(st.text(max_size=12))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        assert 0.0 <= parse_duration(text) <= MAX_DURATION_S
    except ConfigError:
        pass


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.35, "350ms"),
        (0.9996, "1s"),
        (1.5, "1.5s"),
        (59.96, "1m 00s"),
        (125, "2m 05s"),
        (3599.7, "1h 00m"),
        (3725, "1h 02m"),
        (86399, "1d 0h"),
        (273600, "3d 4h"),
    ],
)
def test_people_read_durations_in_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
