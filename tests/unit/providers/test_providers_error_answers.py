"""Errors inside a 200, stream or body, in every format: of their class, and tried again only if that may help."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcode_exec.errors import ModelCallError
from mcode_exec.records.usage import Usage
from tests.unit.providers.byte_peer import chat, http, run, sse

API = ("anthropic-messages", "openai-completions", "openai-responses")
ERRORS: list[tuple[Any, str]] = [
    ({"error": {"message": "model not found", "code": "model_not_found"}}, "MODEL_UNKNOWN"),
    ({"error": {"message": "model not found"}}, "MODEL_UNKNOWN"),
    ({"error": "invalid api key"}, "LLM_AUTH_ERROR"),
    ({"error": {"message": "x", "code": "429"}}, "LLM_RATE_LIMITED"),
    ({"error": {"message": "x", "code": 529}}, "LLM_CLUSTER_OVERLOADED"),
    ({"error": {"message": "x", "code": "insufficient_quota"}}, "LLM_CREDITS_EXHAUSTED"),
    ({"type": "error", "code": "insufficient_quota", "message": "x"}, "LLM_CREDITS_EXHAUSTED"),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "LLM_CLUSTER_OVERLOADED"),
    (
        {"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404},
        "MODEL_UNKNOWN",
    ),
    # wrapped twice and more, wherever the inner one stands
    ({"error": {"error": {"message": "x", "code": "insufficient_quota"}}}, "LLM_CREDITS_EXHAUSTED"),
    ({"error": {"error": {"error": {"message": "x", "code": 401}}}}, "LLM_AUTH_ERROR"),
    ({"error": {"message": {"error": {"message": "x", "type": "overloaded"}}}}, "LLM_CLUSTER_OVERLOADED"),
    (
        {"error": {"message": "failed", "detail": {"message": "x", "code": "content_filter"}}},
        "LLM_CONTENT_REFUSED",
    ),
    # without any `error`: a code, a status or a failure beside the words
    ({"code": 401, "msg": "token expired"}, "LLM_AUTH_ERROR"),
    ({"code": "401", "message": "Unauthorized"}, "LLM_AUTH_ERROR"),
    ({"status": 429, "message": "Too many"}, "LLM_RATE_LIMITED"),
    ({"success": False, "message": "rate limit"}, "LLM_RATE_LIMITED"),
    ({"code": "InvalidApiKey", "message": "x", "request_id": "r"}, "LLM_AUTH_ERROR"),
    ({"type": "rate_limit_error", "message": "x"}, "LLM_RATE_LIMITED"),
    ({"error_code": 503, "error_msg": "x"}, "LLM_UPSTREAM_ERROR"),
    ({"detail": {"error": {"code": "insufficient_quota", "message": "x"}}}, "LLM_CREDITS_EXHAUSTED"),
    ({"success": False, "errors": [{"code": 10000, "message": "Authentication error"}]}, "LLM_AUTH_ERROR"),
    ({"errors": [{"message": "bad", "code": 429}]}, "LLM_RATE_LIMITED"),
    ({"status": "error", "message": "rate limit"}, "LLM_RATE_LIMITED"),
    ({"base_resp": {"status_code": 1002, "status_msg": "x"}, "choices": None}, "LLM_RATE_LIMITED"),
    ({"base_resp": {"status_code": 1004, "status_msg": "x"}, "choices": None}, "LLM_AUTH_ERROR"),
    ({"base_resp": {"status_code": 1008, "status_msg": "x"}}, "LLM_CREDITS_EXHAUSTED"),
    ({"base_resp": {"status_code": 2013, "status_msg": "x"}}, "LLM_BAD_REQUEST"),
    ({"base_resp": {"status_code": 1026, "status_msg": "x"}}, "LLM_CONTENT_REFUSED"),
]


@pytest.mark.parametrize("api", API)
@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "body"])
@pytest.mark.parametrize(("error", "code"), ERRORS)
def test_an_error_inside_a_200_is_of_its_class(error: Any, code: str, is_stream: bool, api: str) -> None:
    body = sse(error) if is_stream else json.dumps(error).encode()
    kind = "text/event-stream" if is_stream else "application/json"
    failure, peer, _ = run([[http(body, kind=kind)]], api=api)
    assert isinstance(failure, ModelCallError)
    assert failure.code == code, failure.message
    assert len(peer.requests) == (6 if failure.is_retried else 1)


@pytest.mark.parametrize("api", API)
@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "body"])
@pytest.mark.parametrize(
    "other",
    [
        {"code": 0, "msg": "success", "data": {}},
        {"code": 200, "message": "OK"},
        {"status": "ok", "message": "welcome"},
        {"message": "Not Found", "documentation_url": "https://a.example"},
        {"code": 404},
        {"type": "metadata", "code": "x", "message": "y"},
    ],
)
def test_json_of_another_kind_is_no_error_of_a_provider(other: Any, is_stream: bool, api: str) -> None:
    body = sse(other) if is_stream else json.dumps(other).encode()
    kind = "text/event-stream" if is_stream else "application/json"
    failure, peer, _ = run([[http(body, kind=kind)]], api=api)
    assert isinstance(failure, ModelCallError)
    assert failure.code == "LLM_BAD_RESPONSE"
    assert len(peer.requests) == 1


OPENAI = {"prompt_tokens": 9, "completion_tokens": 2}
OTHER = {"input_tokens": 9, "output_tokens": 2}
BROKEN = {"code": 502, "message": "broke down"}


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (
            "openai-completions",
            sse(chat({"content": "x"}), {"error": BROKEN, "choices": [], "usage": OPENAI}),
        ),
        (
            "openai-completions",
            sse({"choices": [{"index": 0, "error": BROKEN, "finish_reason": "error"}], "usage": OPENAI}),
        ),
        ("openai-completions", sse(chat({"content": "x"}), chat({}, "error", usage=OPENAI))),
        (
            "openai-responses",
            sse({"type": "response.failed", "response": {"status": "failed", "usage": OTHER}}),
        ),
        (
            "openai-responses",
            json.dumps({"status": "failed", "error": BROKEN, "output": [], "usage": OTHER}).encode(),
        ),
        ("anthropic-messages", sse({"type": "error", "error": BROKEN, "usage": OTHER})),
    ],
)
def test_a_failure_that_says_what_it_used_is_counted(api: str, body: bytes) -> None:
    failure, _, _ = run([[http(body)]], api=api)
    assert isinstance(failure, ModelCallError)
    assert failure.code == "LLM_UPSTREAM_ERROR", failure.message
    assert failure.details["failed_usage"] == (Usage(input_tokens=9, output_tokens=2),) * 6
