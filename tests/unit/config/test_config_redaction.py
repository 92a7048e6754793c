"""Secrets never leave, ordinary text is left alone, and cutting changes nothing."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcode_exec.records.event import AnyEvent
from mcode_exec.records.job import JobResult, TaskRecord, UnrunTask
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.result import Result
from mcode_exec.records.session import Session
from mcode_exec.redaction import MASK, Redactor, StreamRedactor, is_maskable, secret_values

SECRET = 'pa+ss/w"örd&9 %'

SHAPES = [
    "sk-ant-api03-" + "Ab3_" * 10,
    "sk_live_" + "a1B2" * 6,
    "ghp_" + "aB1" * 12,
    "github_pat_" + "aB1_" * 10,
    "glpat-" + "x1-Y" * 6,
    "xoxb-" + "123-abc" * 4,
    "AKIA" + "ABCD" * 4,
    "AIza" + "Sy_D-" * 7,
    "hf_" + "aB1" * 12,
    "npm_" + "aB1" * 12,
]
KEY_BLOCK = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----"


def streamed(redactor: Redactor, pieces: list[str]) -> str:
    stream = StreamRedactor(redactor)
    return "".join([stream.feed(piece) for piece in pieces] + [stream.flush()])


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote_plus(SECRET, safe=""),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_a_known_value_is_masked_in_every_form(form: str) -> None:
    assert Redactor([SECRET]).text(f"a {form} b") == f"a {MASK} b"


@pytest.mark.parametrize("user", ["", "u", "us", "user"])
def test_basic_authorization_does_not_carry_the_secret(user: str) -> None:
    secret = "s3cr3t-value-0815"
    header = base64.b64encode(f"{user}:{secret}".encode()).decode()
    masked = Redactor([secret]).text(f"Authorization: Basic {header}")
    assert MASK in masked
    rest = masked.split("Basic ")[1].replace(MASK, "")
    assert len(rest) < len(header) / 2


@pytest.mark.parametrize("value", ["short", "1234567", "password", "localhost", "aaaaaaaaaaaa", "        "])
def test_values_that_are_ordinary_text_are_not_masked(value: str) -> None:
    text = f"the {value} of the day"
    assert Redactor([value]).text(text) == text


@pytest.mark.parametrize("shape", SHAPES)
def test_well_known_shapes_are_masked_without_being_known(shape: str) -> None:
    assert Redactor().text(f"key={shape}, done") == f"key={MASK}, done"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abc.def0123456789-xyz==", "Authorization: Bearer ***"),
        ("proxy http://user:hunter2!@proxy:3128/", "proxy http://user:***@proxy:3128/"),
        (f"a\n{KEY_BLOCK}\nb", "a\n***\nb"),
        (KEY_BLOCK[:60], "***"),
    ],
)
def test_secrets_inside_a_shape_are_masked(text: str, masked: str) -> None:
    assert Redactor().text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "the task-runner and sk-fading-circle-container-element",
        "https://example.com:8080/a@b",
        "postgres://user:$PASSWORD@host/db",
        "postgres://user:<password>@host/db",
        "Bearer authentication is described in bearer-tokens-overview",
        "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
        "AKIA is a prefix, AKIAB too; ghp_ and sk- as well",
        "ßüé 漢字 \ud800 \0",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    redactor = Redactor(["some-known-secret"])
    assert redactor.text(text) == text
    assert streamed(redactor, list(text)) == text


def test_a_byte_order_mark_before_a_secret_is_no_part_of_it() -> None:
    assert Redactor(["\ufeffk-0123456789\n"]).text("sent k-0123456789.") == f"sent {MASK}."


def test_overlapping_secrets_are_masked_as_one() -> None:
    redactor = Redactor(["abcdefgh12", "gh12345678"])
    assert redactor.text("<abcdefgh12345678>") == f"<{MASK}>"
    assert streamed(redactor, list("<abcdefgh12345678>")) == f"<{MASK}>"


def test_bytes_change_only_where_a_secret_stands() -> None:
    assert Redactor(["s3cr3t-value"]).bytes(b"\xff\x00s3cr3t-value\xfe") == b"\xff\x00***\xfe"


def test_json_data_is_masked_in_keys_and_values() -> None:
    data = {"s3cr3t-value": ["x s3cr3t-value", 1, None, {"a": ("s3cr3t-value",)}]}
    assert Redactor(["s3cr3t-value"]).json(data) == {MASK: [f"x {MASK}", 1, None, {"a": [MASK]}]}


def test_a_stream_of_ordinary_words_is_not_delayed() -> None:
    stream = StreamRedactor(Redactor(["zQ81-secret-of-mine"]))
    assert stream.feed("The tests") == "The tests"
    assert stream.feed(" of this hag") == " of this hag"
    assert stream.flush() == ""


def test_no_more_than_a_possible_beginning_is_held_back() -> None:
    stream = StreamRedactor(Redactor(["zQ81-secret"]))
    assert stream.feed("one zQ81-sec") == "one "
    assert stream.feed("ond") == "zQ81-second"


def test_an_endless_token_is_not_held_for_ever() -> None:
    stream = StreamRedactor(Redactor())
    out = "".join(stream.feed("sk-" if i == 0 else "abcdefgh") for i in range(4000))
    assert out


SECRETS = ["zQ81-secret-of-mine", "abababab-cd", "abab-cdababab", SECRET]
PLAIN = st.text(alphabet="ab zQ8-1:/@sk_gh.\né=%+", max_size=12)


@settings(max_examples=400, deadline=None)
@given(
    parts=st.lists(
        st.one_of(PLAIN, st.sampled_from([*SECRETS, *SHAPES, KEY_BLOCK, "://u:pw0@", "Bearer "])), max_size=7
    ),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_cutting_a_text_never_changes_what_comes_out(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    borders = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in pairwise(borders)]
    redactor = Redactor(SECRETS)
    out = streamed(redactor, pieces)
    assert out == redactor.text(text)
    assert not any(secret in out for secret in SECRETS)


@settings(max_examples=200, deadline=None)
@given(text=st.text(), secret=st.text(min_size=8, max_size=30), where=st.integers(0, 50))
def test_any_secret_is_masked_and_cutting_changes_nothing(text: str, secret: str, where: int) -> None:
    redactor = Redactor([secret])
    whole = text[:where] + secret + text[where:]
    out = redactor.text(whole)
    if (
        is_maskable(secret.strip()) and "*" not in secret
    ):  # with what stands beside it, a mask may look like one
        assert secret.strip() not in out
    assert streamed(redactor, list(whole)) == out


def test_the_values_of_secret_variables_are_found_and_ordinary_ones_are_not() -> None:
    env = {
        "ACME_API_KEY": "value-of-a-key",
        "GH_TOKEN": "value-of-a-token",
        "db_password": "value-of-a-password",
        "ODD": "value-of-the-odd-one",
        "SHORT_KEY": "short",
        "AWS_REGION": "eu-central-1",
        "SIGNING_KEY": "/etc/passwd",
        "PATH": "/usr/bin:/bin",
    }
    assert secret_values(env, ["ODD"]) == [
        "value-of-a-key",
        "value-of-a-token",
        "value-of-a-password",
        "value-of-the-odd-one",
    ]


def test_no_word_of_our_own_records_is_masked() -> None:
    words: set[str] = set()

    def collect(schema: Any) -> None:
        if isinstance(schema, dict):
            words.update(schema.get("properties", ()))
            words.update(
                word for word in (*schema.get("enum", ()), schema.get("const")) if isinstance(word, str)
            )
        for part in schema.values() if isinstance(schema, dict) else schema:
            if isinstance(part, dict | list | tuple):
                collect(part)

    records = [Result, AnyEvent, DisplayMessage, Session, JobResult, TaskRecord, UnrunTask]
    collect(msgspec.json.schema_components(records))
    assert {"sessionId", "succeeded", "exec.completed"} <= words
    assert [word for word in words if is_maskable(word)] == []
    assert not is_maskable("complete")


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("s3cret-value-1", "it is s3cret-value-1"),
        ('s3cret"va\\lue', 'it is s3cret"va\\lue'),
        ('s3cret"va\\lue', json.dumps('it is s3cret"va\\lue')),
        ("zürich-schlüssel", "der zürich-schlüssel"),
        ("other-value-123", "sk-abcdefghij0123456789abcdefghij"),
        ("other-value-123", "https://user:passw0rd@host/"),
        ("other-value-123", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"),
    ],
)
def test_a_document_with_a_secret_is_never_taken_for_one_without(secret: str, text: str) -> None:
    redactor = Redactor([secret])
    value = {"a": [1, {text: "x"}], "b": text}
    assert redactor.json(value) != value
    assert redactor.may_change(msgspec.json.encode(value).decode())


def test_a_document_without_a_secret_is_passed_over() -> None:
    assert not Redactor(["s3cret-value-1"]).may_change('{"a":"nothing of it"}')
