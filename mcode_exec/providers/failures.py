"""What a refused or broken model call means: one class per failure, status and code before text.

Everything a provider may answer instead of an answer comes here, as an HTTP
status with a body or as an error object inside a stream, and leaves as a
`ModelCallError` whose class decides whether the call is tried again.
Messages are at most 500 characters, without control characters; keys that a
provider echoes are masked by `redaction` where the message leaves the process.
"""

from __future__ import annotations

from typing import Any

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.payload import PayloadError, as_list, as_object, as_text, clean, decode
from mcode_exec.providers.retry_hints import retry_after_ms

Headers = list[tuple[bytes, bytes]]

MAX_MESSAGE = 500
SHOWN_BODY = 200

#: public error codes of MiniMax (`base_resp.status_code`)
_MINIMAX = {
    1000: "LLM_UPSTREAM_ERROR",
    1001: "LLM_UPSTREAM_ERROR",
    1002: "LLM_RATE_LIMITED",
    1004: "LLM_AUTH_ERROR",
    1008: "LLM_CREDITS_EXHAUSTED",
    1013: "LLM_UPSTREAM_ERROR",
    1024: "LLM_UPSTREAM_ERROR",
    1026: "LLM_CONTENT_REFUSED",
    1027: "LLM_CONTENT_REFUSED",
    1033: "LLM_UPSTREAM_ERROR",
    1039: "LLM_TPM_RATE_LIMITED",
    1041: "LLM_RATE_LIMITED",
    1042: "LLM_BAD_REQUEST",
    2013: "LLM_BAD_REQUEST",
    2045: "LLM_RATE_LIMITED",
    2049: "LLM_AUTH_ERROR",
    2056: "USAGE_LIMIT_EXCEEDED",
    2061: "USAGE_LIMIT_EXCEEDED",
}

#: `code`, `type` or `status` of an error object, lower case
_BY_CODE = {
    "context_length_exceeded": "LLM_CONTEXT_OVERFLOW",
    "exceed_context_size_error": "LLM_CONTEXT_OVERFLOW",
    "model_max_prompt_tokens_exceeded": "LLM_CONTEXT_OVERFLOW",
    "model_not_found": "MODEL_UNKNOWN",
    "model_not_exist": "MODEL_UNKNOWN",
    "invalid_model": "MODEL_UNKNOWN",
    "insufficient_quota": "LLM_CREDITS_EXHAUSTED",
    "insufficient_balance": "LLM_CREDITS_EXHAUSTED",
    "insufficient_credits": "LLM_CREDITS_EXHAUSTED",
    "billing_error": "LLM_CREDITS_EXHAUSTED",
    "billing_hard_limit_reached": "LLM_CREDITS_EXHAUSTED",
    "billing_not_active": "LLM_CREDITS_EXHAUSTED",
    "usage_limit_reached": "USAGE_LIMIT_EXCEEDED",
    "usage_limit_exceeded": "USAGE_LIMIT_EXCEEDED",
    "usage_not_included": "USAGE_LIMIT_EXCEEDED",
    "content_filter": "LLM_CONTENT_REFUSED",
    "content_policy_violation": "LLM_CONTENT_REFUSED",
    "invalid_prompt": "LLM_CONTENT_REFUSED",
    "responsibleaipolicyviolation": "LLM_CONTENT_REFUSED",
    "data_inspection_failed": "LLM_CONTENT_REFUSED",
}

#: what an error object means when no HTTP status says it (inside a 200 stream)
_BY_CODE_IN_STREAM = {
    "authentication_error": "LLM_AUTH_ERROR",
    "invalid_api_key": "LLM_AUTH_ERROR",
    "permission_error": "LLM_AUTH_ERROR",
    "permission_denied": "LLM_AUTH_ERROR",
    "unauthenticated": "LLM_AUTH_ERROR",
    "not_found_error": "LLM_BAD_REQUEST",
    "invalid_request_error": "LLM_BAD_REQUEST",
    "invalid_argument": "LLM_BAD_REQUEST",
    "bad_request": "LLM_BAD_REQUEST",
    "request_too_large": "LLM_BAD_REQUEST",
    "rate_limit_error": "LLM_RATE_LIMITED",
    "rate_limit_exceeded": "LLM_RATE_LIMITED",
    "too_many_requests": "LLM_RATE_LIMITED",
    "resource_exhausted": "LLM_RATE_LIMITED",
    "overloaded_error": "LLM_CLUSTER_OVERLOADED",
    "overloaded": "LLM_CLUSTER_OVERLOADED",
    "server_overloaded": "LLM_CLUSTER_OVERLOADED",
}

_OVERFLOW_TEXTS = (
    "maximum context length",
    "context length exceeded",
    "context_length_exceeded",
    "exceeds the context window",
    "exceeds model context window",
    "context window exceeds",
    "exceeds the available context size",
    "exceed context limit",
    "greater than the context length",
    "larger than the context",
    "context size has been exceeded",
    "exceeded model token limit",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "too many tokens in the prompt",
    "maximum prompt length",
    "reduce the length of the messages",
    "exceeds the maximum number of tokens",
    "exceeds the maximum allowed input length",
    "input length and `max_tokens` exceed",
)
_MODEL_TEXTS = (
    "not found",
    "does not exist",
    "not exist",
    "not a valid model",
    "unknown model",
    "no such model",
)
_CREDIT_TEXTS = (
    "exceeded your current quota",
    "credit balance",
    "insufficient balance",
    "insufficient credit",
    "insufficient funds",
    "insufficient_quota",
    "requires more credits",
    "out of credits",
)
_PLAN_TEXTS = ("usage limit", "plan limit", "monthly limit", "weekly limit", "spend limit")
_REFUSAL_TEXTS = ("content management policy", "content policy", "flagged as potentially violating")
_SHORT_TERM_TEXTS = (
    "per minute",
    "per-minute",
    "perminute",
    "per min",
    "per second",
    "tpm",
    "rpm",
    "tokens per",
    "requests per",
    "tokens_per",
    "requests_per",
)


class _Report:
    """The facts of an error object, whatever its form."""

    def __init__(self, value: Any) -> None:
        if isinstance(value, list) and value:  # Gemini wraps its error in an array
            value = value[0]
        body = as_object(value)
        base = as_object(body.get("base_resp"))
        inner = body.get("error")
        error = as_object(inner)
        if not error and isinstance(inner, str):
            error = {"message": inner}
        if not error and not base:
            error = body
        self.minimax = base.get("status_code") if base.get("status_code") else None
        self.message = clean(
            as_text(error.get("message"))
            or as_text(base.get("status_msg"))
            or as_text(error.get("msg"))
            or as_text(error.get("detail"))
            or as_text(error.get("error"))
        )
        metadata = as_object(error.get("metadata"))
        if raw := as_text(metadata.get("raw")):  # OpenRouter passes the provider's own words on
            self.message = f"{self.message}: {clean(raw)}"
        self.codes = [
            code.lower()
            for key in ("code", "type", "status", "kind")
            if isinstance(code := error.get(key), str)
        ]
        number = error.get("code")
        self.number = number if isinstance(number, int) and not isinstance(number, bool) else None
        self.request_id = printable(as_text(body.get("request_id")))[:200] or None
        self.details = [as_object(item) for item in as_list(error.get("details"))]
        self.hint_ms = _google_hint_ms(self.details)
        self.text = " ".join([self.message.lower(), *self.codes])

    def says(self, texts: tuple[str, ...]) -> bool:
        return any(text in self.text for text in texts)


def _google_hint_ms(details: list[dict[str, Any]]) -> int | None:
    for detail in details:
        delay = as_text(detail.get("retryDelay"))
        if delay.endswith("s"):
            return retry_after_ms([(b"retry-after", delay[:-1].encode("ascii", "replace"))], 0)
    return None


def from_response(status: int, headers: Headers, body: bytes, now_ms: int) -> ModelCallError:
    """The failure that an HTTP answer of 400 or above means."""
    hint = retry_after_ms(headers, now_ms)
    report, is_foreign = _read_body(body)
    code = _class_of(status, report, is_foreign)
    said = report.message or (shown(body) if body.strip() else "no explanation")
    # 407 is never the provider's word: plain http leads through a proxy without a tunnel
    message = f"the {'proxy' if status == 407 else 'provider'} answered {status}: {said}"
    if code == "LLM_BAD_RESPONSE":
        message = f"the provider answered {status} with a foreign body; is the base URL right? {shown(body)}"
    elif status in (404, 405) and code == "LLM_BAD_REQUEST":
        message += " (is the base URL right?)"
    return ModelCallError(
        code,
        printable(message),
        http_status=status,
        request_id=request_id_of(headers) or report.request_id,
        retry_after_ms=report.hint_ms if hint is None else hint,
    )


def from_error_object(value: Any, headers: Headers, now_ms: int) -> ModelCallError:
    """The failure that an error object inside a 200 answer means."""
    report = _Report(value)
    status = report.number if report.number is not None and 400 <= report.number < 600 else None
    code = _class_of(status, report, is_foreign=False)
    hint = retry_after_ms(headers, now_ms)
    return ModelCallError(
        code,
        printable(f"the provider reported an error: {report.message or _shown_value(value)}"),
        http_status=status or 200,
        request_id=request_id_of(headers) or report.request_id,
        retry_after_ms=report.hint_ms if hint is None else hint,
    )


def foreign_body(headers: Headers, body: bytes) -> ModelCallError:
    """A 200 answer that no model gave in this format: HTML, plain text, another kind of JSON."""
    said = "the answer is not a model's; are base_url and api of the provider right?"
    message = f"{said} It begins: {shown(body)}"
    return ModelCallError(
        "LLM_BAD_RESPONSE", printable(message), http_status=200, request_id=request_id_of(headers)
    )


def _read_body(body: bytes) -> tuple[_Report, bool]:
    """The error object, and whether the body is none."""
    try:
        value = decode(body)
    except PayloadError:
        value = None
    if isinstance(value, dict | list):
        return _Report(value), False
    text = body.lstrip()[:15].lower()
    return _Report({}), text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml", b"<body"))


def _class_of(status: int | None, report: _Report, is_foreign: bool) -> str:
    if isinstance(report.minimax, int) and report.minimax in _MINIMAX:
        return _overflow_or(report, _MINIMAX[report.minimax])
    for code in report.codes:
        if code in _BY_CODE:
            return _BY_CODE[code]
    if status is not None:
        return _class_of_status(status, report, is_foreign)
    for code in report.codes:
        if code in _BY_CODE_IN_STREAM:
            found = _BY_CODE_IN_STREAM[code]
            if found == "LLM_BAD_REQUEST":
                return _bad_request(report)
            return _throttled(report) if found == "LLM_RATE_LIMITED" else found
    return _overflow_or(report, "LLM_UPSTREAM_ERROR")


def _class_of_status(status: int, report: _Report, is_foreign: bool) -> str:
    if status == 429:
        return _throttled(report)
    if status == 402:
        return "LLM_CREDITS_EXHAUSTED"
    if status in (401, 403):
        if status == 403 and report.says((*_CREDIT_TEXTS, "billing")):
            return "LLM_CREDITS_EXHAUSTED"
        return "LLM_AUTH_ERROR"
    if status == 529 or "overloaded_error" in report.codes:
        return "LLM_CLUSTER_OVERLOADED"
    if status in (408, 409, 425):
        return "LLM_UPSTREAM_ERROR"
    if status >= 500:
        # llama.cpp and some gateways report an overflow as a server error
        return _overflow_or(report, "LLM_UPSTREAM_ERROR")
    if status in (404, 405) and is_foreign:
        return "LLM_BAD_RESPONSE"
    if status == 404 and "model" in report.text:
        return "MODEL_UNKNOWN"
    return _bad_request(report)


def _throttled(report: _Report) -> str:
    text = report.text + " ".join(str(detail) for detail in report.details).lower()
    is_short_term = any(word in text for word in _SHORT_TERM_TEXTS) or (
        "tokens" in report.codes or "requests" in report.codes
    )
    if report.hint_ms is not None:  # Gemini: who says when to come back means a limit, whatever its words
        return "LLM_TPM_RATE_LIMITED" if is_short_term else "LLM_RATE_LIMITED"
    if report.says(_CREDIT_TEXTS):
        return "LLM_CREDITS_EXHAUSTED"
    if is_short_term:  # before the weaker words: such texts link to billing pages
        return "LLM_TPM_RATE_LIMITED"
    if report.says(_PLAN_TEXTS):
        return "USAGE_LIMIT_EXCEEDED"
    return "LLM_CREDITS_EXHAUSTED" if report.says(("billing",)) else "LLM_RATE_LIMITED"


def _bad_request(report: _Report) -> str:
    if report.says(_OVERFLOW_TEXTS):
        return "LLM_CONTEXT_OVERFLOW"
    if report.says(_CREDIT_TEXTS):
        return "LLM_CREDITS_EXHAUSTED"
    if report.says(("usage limits", "usage limit")):
        return "USAGE_LIMIT_EXCEEDED"
    if "model" in report.text and report.says(_MODEL_TEXTS):
        return "MODEL_UNKNOWN"
    if report.says(_REFUSAL_TEXTS):
        return "LLM_CONTENT_REFUSED"
    return "LLM_BAD_REQUEST"


def _overflow_or(report: _Report, code: str) -> str:
    return "LLM_CONTEXT_OVERFLOW" if report.says(_OVERFLOW_TEXTS) else code


def header(headers: Headers, name: bytes) -> str | None:
    """The first value of a header; names are lower case."""
    for key, value in headers:
        if key == name:
            return value.decode("latin-1").strip()
    return None


def request_id_of(headers: Headers) -> str | None:
    """The id under which the provider knows the call."""
    for name in (b"request-id", b"x-request-id", b"trace-id", b"x-amzn-requestid", b"cf-ray"):
        if value := header(headers, name):
            return printable(value)[:200]
    return None


def shown(body: bytes) -> str:
    """The beginning of a body, for people."""
    return body[: SHOWN_BODY * 4].decode("utf-8", "replace")[:SHOWN_BODY]


def _shown_value(value: Any) -> str:
    return str(value)[:SHOWN_BODY]


def printable(text: str) -> str:
    """`text` in one line of at most 500 characters; control characters become their escapes."""
    shown = "".join(
        character if character.isprintable() else _escaped(character) for character in text[:MAX_MESSAGE]
    )
    return shown if len(shown) <= MAX_MESSAGE else shown[: MAX_MESSAGE - 1] + "…"


def _escaped(character: str) -> str:
    return " " if character in "\r\n\t" else character.encode("unicode_escape").decode("ascii")
