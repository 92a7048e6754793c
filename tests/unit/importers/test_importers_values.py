"""Values of foreign JSON are taken for what they are, and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from mcode_exec.ids import is_alias
from mcode_exec.importers.values import (
    UnreadableError,
    bytes_of_data_url,
    clean_value,
    cost_of,
    count_of,
    moment_of,
    read_object,
)
from mcode_exec.sessions.titles import is_default_title


@pytest.mark.parametrize(
    ("value", "digits"),
    [
        (0.000411, "0.000411"),
        (1e-7, "0.0000001"),
        (0, "0"),
        (12, "12"),
        (100.0, "100"),
        (0.1 + 0.2, "0.30000000000000004"),
    ],
)
def test_a_cost_is_the_decimal_that_was_stored(value: float, digits: str) -> None:
    assert cost_of(value) == digits


@pytest.mark.parametrize("value", [None, True, "1", -1, float("nan"), float("inf"), 1e12])
def test_what_is_no_amount_is_unknown(value: Any) -> None:
    assert cost_of(value) is None


@pytest.mark.parametrize("value", [None, True, "1", -1, float("nan"), 2.0**60])
def test_what_is_no_count_is_unknown(value: Any) -> None:
    assert count_of(value) is None


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        (1796159518848, 1796159518848),
        (1796159518, 1796159518000),
        ("2026-12-01T22:07:24.240Z", 1796162844240),
        ("2026-12-01T22:07:24", 1796162844000),
        ("yesterday", None),
        (None, None),
        (10**18, None),
    ],
)
def test_moments_are_milliseconds_whatever_they_were(value: Any, moment: int | None) -> None:
    assert moment_of(value) == moment


def test_lone_surrogates_which_javascript_writes_are_read() -> None:
    assert clean_value(read_object(b'{"a": "x\\ud83d"}')) == {"a": "x\ufffd"}


def test_a_byte_order_mark_before_an_object_is_passed_over() -> None:
    assert read_object(b'\xef\xbb\xbf{"a": 1}') == read_object('\ufeff{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"42", b'"x"', b"[" * 100_000, b"\xff\xfe"])
def test_what_is_no_object_is_unreadable(raw: bytes) -> None:
    with pytest.raises(UnreadableError):
        read_object(raw)


def test_data_urls_are_decoded_and_others_are_not_followed() -> None:
    assert bytes_of_data_url("data:image/png;base64,aGk=") == ("image/png", b"hi")
    assert bytes_of_data_url("file:///etc/passwd") is None
    assert bytes_of_data_url("data:image/png;base64,***") is None


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("ses_dcc8cc780ffe6mvcJ78rPYr11r", True),
        ("1136bfb1-fa01-48c7-895a-7ae02556bb05", True),
        ("mvs_00000000000000000000000000000000", False),
        ("../../etc/passwd", False),
        ("-rf-ses_1234", False),
        ("ses_1", False),
        ("something", False),
        ("ses_" + "x" * 200, False),
        ("ses_12345\n678", False),
    ],
)
def test_an_alias_is_no_path_no_option_and_no_word(text: str, is_one: bool) -> None:
    assert is_alias(text) is is_one


@pytest.mark.parametrize(
    ("title", "is_default"),
    [
        ("New session - 2024-01-15T10:30:45.123Z", True),
        ("Child session - 2024-01-15T10:35:12.456Z", True),
        ("New session - 2026-12-01T21:13:17.580Z (fork #1)", True),
        ("New session - about dates", False),
        ("Fix the parser", False),
    ],
)
def test_default_titles_are_known(title: str, is_default: bool) -> None:
    assert is_default_title(title) is is_default
