"""Which class a failure is of: status and code before text; hints in every odd form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.errors import MODEL_CALL_CODES
from mcode_exec.providers.advice import advise
from mcode_exec.providers.failures import from_error_object, from_response
from mcode_exec.providers.retry_hints import retry_after_ms
from tests.unit.providers.byte_peer import endpoint

NOW_MS = 1_790_000_000_000  # 2026-09-21

CASES = [
    (400, {"error": {"message": "tools.0.name invalid"}}, "LLM_BAD_REQUEST"),
    (401, {"error": {"message": "bad key"}}, "LLM_AUTH_ERROR"),
    (403, {"error": {"type": "permission_error", "message": "no"}}, "LLM_AUTH_ERROR"),
    (403, {"error": {"message": "billing is not active"}}, "LLM_CREDITS_EXHAUSTED"),
    (402, {"error": {"message": "pay"}}, "LLM_CREDITS_EXHAUSTED"),
    (404, {"error": {"code": "model_not_found", "message": "The model `x` does not exist"}}, "MODEL_UNKNOWN"),
    (
        404,
        {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-x"}},
        "MODEL_UNKNOWN",
    ),
    (404, {"error": {"message": "model 'x' not found"}}, "MODEL_UNKNOWN"),
    (404, {"detail": "Not Found"}, "LLM_BAD_REQUEST"),
    (400, {"error": {"message": "x/y is not a valid model ID", "code": 400}}, "MODEL_UNKNOWN"),
    (400, {"error": {"message": "Model Not Exist", "code": "invalid_request_error"}}, "MODEL_UNKNOWN"),
    (408, {}, "LLM_UPSTREAM_ERROR"),
    (409, {}, "LLM_UPSTREAM_ERROR"),
    (413, {"error": {"message": "too large", "type": "request_too_large"}}, "LLM_BAD_REQUEST"),
    (422, {"detail": [{"msg": "bad"}]}, "LLM_BAD_REQUEST"),
    (425, {}, "LLM_UPSTREAM_ERROR"),
    (429, {"error": {"type": "rate_limit_error", "message": "limit"}}, "LLM_RATE_LIMITED"),
    (429, {"error": {"message": "Rate limit reached on tokens per min (TPM)"}}, "LLM_TPM_RATE_LIMITED"),
    (429, {"error": {"message": "slow", "type": "requests"}}, "LLM_TPM_RATE_LIMITED"),
    (429, {"error": {"code": "insufficient_quota"}}, "LLM_CREDITS_EXHAUSTED"),
    (
        429,
        {"error": {"message": "You exceeded your current quota, check your plan and billing"}},
        "LLM_CREDITS_EXHAUSTED",
    ),
    (429, {"error": {"message": "You have hit your usage limit."}}, "USAGE_LIMIT_EXCEEDED"),
    (
        400,
        {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}},
        "LLM_CREDITS_EXHAUSTED",
    ),
    (451, {"error": {"message": "legal"}}, "LLM_BAD_REQUEST"),
    (500, {"error": {"message": "oops"}}, "LLM_UPSTREAM_ERROR"),
    (502, {}, "LLM_UPSTREAM_ERROR"),
    (503, {"error": {"message": "overloaded"}}, "LLM_UPSTREAM_ERROR"),
    (504, {}, "LLM_UPSTREAM_ERROR"),
    (529, {}, "LLM_CLUSTER_OVERLOADED"),
    (400, {"error": {"code": "content_filter", "message": "filtered"}}, "LLM_CONTENT_REFUSED"),
    (200, {"base_resp": {"status_code": 2049, "status_msg": "invalid api key"}}, "LLM_AUTH_ERROR"),
]
OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "prompt is too long: 213462 tokens > 200000 maximum",
    "Your input exceeds the context window of this model",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
    "the request exceeds the available context size, try increasing it",
    "tokens to keep from the initial prompt is greater than the context length",
    "invalid params, context window exceeds limit (2013)",
    "input length and `max_tokens` exceed context limit: 1 + 2 > 3",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
]


@pytest.mark.parametrize(("status", "body", "code"), CASES)
def test_a_refused_call_is_of_its_class(status: int, body: object, code: str) -> None:
    failure = from_response(status, [], json.dumps(body).encode(), NOW_MS)
    assert failure.code == code, failure.message
    assert failure.http_status == status


#: how providers, gateways and servers word their refusals; status 200: an error object inside an answer
WORDED = [
    json.loads(line)
    for line in Path(__file__).with_name("errors.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("case", WORDED, ids=[f"{one['of']}-{one['status']}" for one in WORDED])
def test_every_dialect_of_refusal_is_of_its_class(case: dict[str, object]) -> None:
    body, status = case["body"], case["status"]
    assert isinstance(status, int)
    if status == 200:
        failure = from_error_object(body, [], NOW_MS)
    else:
        raw = body if isinstance(body, str) else json.dumps(body)
        failure = from_response(status, [], raw.encode(), NOW_MS)
    assert failure.code == case["code"], failure.message
    assert failure.message.isprintable()


@pytest.mark.parametrize("text", OVERFLOWS)
@pytest.mark.parametrize("status", [400, 413, 500])
def test_an_overflow_is_known_by_its_words(status: int, text: str) -> None:
    failure = from_response(status, [], json.dumps({"error": {"message": text}}).encode(), NOW_MS)
    assert failure.code == "LLM_CONTEXT_OVERFLOW"


def test_llama_cpp_says_an_overflow_by_type() -> None:
    error = {"code": 400, "message": "request (9000 tokens) is too big", "type": "exceed_context_size_error"}
    assert from_response(400, [], json.dumps({"error": error}).encode(), 0).code == "LLM_CONTEXT_OVERFLOW"
    assert from_error_object({"error": error}, [], 0).code == "LLM_CONTEXT_OVERFLOW"


def test_html_is_a_wrong_base_url_and_its_beginning_is_shown() -> None:
    failure = from_response(404, [], b"<html>\x1b[31m" + b"x" * 1000, NOW_MS)
    assert failure.code == "LLM_BAD_RESPONSE"
    assert "<html>\\x1b[31m" in failure.message
    assert len(failure.message) <= 500
    assert from_response(502, [], b"<html>bad gateway", NOW_MS).code == "LLM_UPSTREAM_ERROR"


@pytest.mark.parametrize(
    "echo",
    ["the '{}' was", 'at "{}"', "`{}`", "{{'input': '{}'}}", "[type=x, input_value='{}', input_type=str]"],
)
@pytest.mark.parametrize(
    "words",
    ["maximum context length", "insufficient balance", "unknown model", "usage limit", "invalid api key"],
)
def test_an_echo_of_what_was_sent_decides_nothing(echo: str, words: str) -> None:
    error = {"message": f"bad request: {echo.format(words)}", "type": "invalid_request_error"}
    assert from_response(400, [], json.dumps({"error": error}).encode(), 0).code == "LLM_BAD_REQUEST"
    assert from_error_object({"error": error}, [], 0).code == "LLM_BAD_REQUEST"


@pytest.mark.parametrize("piece", ["'a ", "input_value=", "'input': [", "“", "model "])
def test_a_hostile_message_is_judged_in_no_time_worth_naming(piece: str) -> None:
    body = json.dumps({"error": {"message": piece * 20_000}}).encode()
    assert from_response(400, [], body, 0).code == "LLM_BAD_REQUEST"


def test_what_is_wrong_is_told_without_what_was_sent() -> None:
    fault = {"type": "missing", "loc": ["body", "messages", 0], "msg": "Field required", "input": "a secret"}
    failure = from_response(422, [], json.dumps({"detail": [fault]}).encode(), 0)
    assert "body.messages.0: Field required" in failure.message
    assert "a secret" not in failure.message


def test_gemini_says_when_to_come_back_in_its_details() -> None:
    error = {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "message": "You exceeded your current quota, please check your plan and billing details.",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}],
    }
    failure = from_response(429, [], json.dumps([{"error": error}]).encode(), NOW_MS)
    assert (failure.code, failure.retry_after_ms) == ("LLM_RATE_LIMITED", 34_500)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("retry-after", "Mon, 21 Sep 2026 14:13:50 GMT")], 30_000),
        ([("retry-after", "Wed, 21 Oct 2020 07:28:00 GMT")], 0),
        ([("retry-after", "Monday, 21-Sep-26 14:13:50 GMT")], 30_000),
        ([("retry-after", "Mon Sep 21 14:13:50 2026")], 30_000),
        ([("retry-after", "2026-09-21T14:13:50Z")], 30_000),
        ([("retry-after", "2026-09-21T16:13:50.500+02:00")], 30_500),
        ([("retry-after", "2026-09-21 14:13:50")], 30_000),
        ([("retry-after", "2020-01-01T00:00:00Z")], 0),
        ([("retry-after", "9" * 5000)], 86_400_000),
        ([("retry-after-ms", "9" * 5000)], 86_400_000),
        ([("retry-after", "1e999")], 86_400_000),
        ([("retry-after", "9999-12-31T23:59:59-23:59")], 86_400_000),
        ([("retry-after", "2026-13-41T00:00:00Z")], None),
        ([("retry-after", "-5")], None),
        ([("retry-after-ms", "-5"), ("retry-after", "9")], 9000),
        ([("retry-after-ms", "nan"), ("retry-after", "9")], 9000),
        ([("retry-after", "0")], 0),
        ([("retry-after", "1.5")], 1500),
        ([("retry-after", "1e9")], 86_400_000),
        ([("retry-after", "abc")], None),
        ([("retry-after", "nan")], None),
        ([("retry-after", "inf")], None),
        ([("retry-after", "1_0")], None),
        ([("retry-after", "")], None),
        ([("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")], 86_400_000),
        ([("retry-after", "Thu, 01 Jan 0001 00:00:00 GMT")], 0),
        ([("retry-after", "Mon, 21 Sep 2026 14:13:50")], 30_000),
        ([("retry-after", "Mon, 21 Sep 2026 16:13:50 +0200")], 30_000),
        ([("retry-after", "Mon, 32 Sep 2026 14:13:50 GMT")], None),
        ([("retry-after", "Mon, 21 Sep 2026 25:61:61 GMT")], None),
        ([("retry-after", "Mon, 21 Sep 2026 14:13:60 GMT")], 39_000),
        ([("retry-after", "Fri, 31 Dec 9999 23:59:59 -0500")], 86_400_000),
        ([("retry-after", "Thu, 01 Jan 0001 00:00:00 +0500")], 0),
        ([("retry-after", " 7 ")], 7000),
        ([("retry-after", "7, 9")], 7000),
        ([("retry-after-ms", "250, 250")], 250),
        ([("retry-after", "7 s")], None),
        ([("retry-after", "99999999999999999999")], 86_400_000),
        ([("x-ratelimit-reset-requests", "7")], None),
        ([("retry-after", "abc"), ("retry-after", "3")], 3000),
        ([("retry-after-ms", "1500"), ("retry-after", "9")], 1500),
        ([], None),
    ],
)
def test_a_hint_is_read_in_every_form(headers: list[tuple[str, str]], expected: int | None) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    assert retry_after_ms(raw, NOW_MS + 0) == expected


@given(st.binary(max_size=40))
def test_no_hint_raises(value: bytes) -> None:
    found = retry_after_ms([(b"retry-after", value)], NOW_MS)
    assert found is None or 0 <= found <= 86_400_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "base_resp", "status_code", "details", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.integers(400, 599), json_values)
def test_every_body_gets_a_class_and_a_printable_sentence(status: int, body: object) -> None:
    failure = from_response(status, [], json.dumps(body).encode(), NOW_MS)
    assert failure.code in MODEL_CALL_CODES
    assert failure.message.isprintable()
    assert len(failure.message) <= 500
    assert from_error_object(body, [], NOW_MS).code in MODEL_CALL_CODES


@pytest.mark.parametrize("status", [413, 429, 200])
def test_a_call_larger_than_its_limit_is_advised_to_be_smaller(status: int) -> None:
    said = "Request too large for big-1 on tokens per min (TPM): Limit 10000, Requested 20000."
    error = {"error": {"message": said, "type": "tokens", "code": "rate_limit_exceeded"}}
    failure = (
        from_error_object(error, [], NOW_MS)
        if status == 200
        else from_response(status, [], json.dumps(error).encode(), NOW_MS)
    )
    advise(failure, endpoint("http://127.0.0.1:1/v1"))
    assert not failure.is_retried
    assert failure.message.endswith("; begin a new session, or send less")
