"""What a refused or broken model call means: one class per failure, status and code before text.

Everything a provider may answer instead of an answer comes here, as an HTTP
status with a body or as an error object inside a stream, and leaves as a
`ModelCallError` whose class decides whether the call is tried again.
Messages are at most 500 characters, without control characters; keys that a
provider echoes are masked by `redaction` where the message leaves the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.payload import PayloadError, decode

if TYPE_CHECKING:
    from mcode_exec.providers.error_report import ErrorReport

Headers = list[tuple[bytes, bytes]]

MAX_MESSAGE = 500
SHOWN_BODY = 200
#: how much of an error object that was cut off is searched for its codes
_SEARCHED = 64 * 1024


def from_response(
    status: int, headers: Headers, body: bytes, now_ms: int, *, is_late: bool = False, proxy: str = ""
) -> ModelCallError:
    """The failure that an HTTP answer of 400 or above means; the rest of its body did not come where `is_late`.

    `proxy` is what a message calls the proxy that saw the request and may have answered itself.
    """
    from mcode_exec.providers.error_classes import class_of
    from mcode_exec.providers.retry_hints import retry_after_ms

    hint = retry_after_ms(headers, now_ms)
    report, is_foreign = _read_body(body)
    code = class_of(status, report, is_foreign=is_foreign)
    who = "the provider"
    if proxy and is_foreign:
        who += f", or {proxy},"
        if (
            status == 403
        ):  # no word on the key: a proxy that lets nobody there refuses a tunnel by the same class
            code = "LLM_BAD_RESPONSE"
    said = report.message or (
        _page(body) if is_foreign else shown(body) if body.strip() else _nothing(headers, is_late)
    )
    # 407 is never the provider's word: plain http leads through a proxy without a tunnel
    message = f"{'the proxy' if status == 407 else who} answered {status}: {said}"
    if code == "LLM_BAD_RESPONSE":
        message = f"{who} answered {status} with a foreign body; is the base URL right? {shown(body)}"
    elif status in (404, 405) and code == "LLM_BAD_REQUEST" and not report.codes:
        message += " (is the base URL right?)"
    return ModelCallError(
        code,
        printable(message),
        http_status=status,
        request_id=request_id_of(headers) or _as_id(report.request_id),
        retry_after_ms=report.hint_ms if hint is None else hint,
    )


def from_error_object(value: Any, headers: Headers, now_ms: int) -> ModelCallError:
    """The failure that an error object inside a 200 answer means."""
    from mcode_exec.providers.error_classes import class_of
    from mcode_exec.providers.error_report import ErrorReport
    from mcode_exec.providers.retry_hints import retry_after_ms

    report = ErrorReport(value)
    code = class_of(report.status, report)
    hint = retry_after_ms(headers, now_ms)
    return ModelCallError(
        code,
        printable(f"the provider reported an error: {report.message or _shown_value(value)}"),
        http_status=report.status or 200,
        request_id=request_id_of(headers) or _as_id(report.request_id),
        retry_after_ms=report.hint_ms if hint is None else hint,
    )


def foreign_body(headers: Headers, body: bytes) -> ModelCallError:
    """A 200 answer that no model gave in this format: HTML, plain text, another kind of JSON."""
    said = "the answer is not a model's; are base_url and api of the provider right?"
    message = f"{said} It begins: {shown(body)}"
    return ModelCallError(
        "LLM_BAD_RESPONSE", printable(message), http_status=200, request_id=request_id_of(headers)
    )


def _read_body(body: bytes) -> tuple[ErrorReport, bool]:
    """The error object, and whether the body is none."""
    from mcode_exec.providers.error_report import ErrorReport

    for text in _may_be_json(body):
        try:
            value = decode(text)
            if isinstance(value, str):  # encoded twice
                value = decode(value)
        except PayloadError:
            continue
        if isinstance(value, dict | list):
            return ErrorReport(value), False
    text = body.lstrip()[:15].lower()
    if text.startswith(b"{"):
        return ErrorReport({"error": _codes_in(body)}), False
    return ErrorReport({}), text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml", b"<body"))


def _codes_in(body: bytes) -> dict[str, str]:
    """The codes that an error object names before it is cut off."""
    import re

    found = re.findall(rb'"(code|type|status)"\s{0,9}:\s{0,9}"([\w.-]{1,100})"', body[:_SEARCHED])
    return {name.decode(): code.decode("utf-8", "replace") for name, code in reversed(found)}


def _may_be_json(body: bytes) -> Iterator[bytes]:
    """The body, or the first event of one that is a stream though the call was refused."""
    text = body.removeprefix(b"\xef\xbb\xbf").strip()
    yield text
    for line in text.splitlines():
        if line.startswith(b"data:"):
            yield line[5:]
            return


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
            return _as_id(value)
    return None


def _as_id(value: str | None) -> str | None:
    """An id that a provider gave, fit to be shown."""
    return printable(value)[:200] if value else None


def shown(body: bytes) -> str:
    """The beginning of a body, for people."""
    return body[: SHOWN_BODY * 4].decode("utf-8", "replace")[:SHOWN_BODY]


def _nothing(headers: Headers, is_late: bool) -> str:
    """What to say of an empty body: one that was promised and did not come is none that is empty."""
    length = header(headers, b"content-length") or "0"
    is_missing = is_late or length.strip("0")
    return "its explanation did not arrive" if is_missing else "no explanation"


def _page(body: bytes) -> str:
    """What an HTML page calls itself: a firewall's or a gateway's word, not the provider's."""
    import re

    title = re.search(rb"<title[^>]*>(.{1,200}?)</title", body[:8192], re.IGNORECASE | re.DOTALL)
    shown_title = f" ({' '.join(title[1].decode('utf-8', 'replace').split())})" if title else ""
    return f"an HTML page{shown_title}, no answer of the provider's own"


def _shown_value(value: Any) -> str:
    return str(value)[:SHOWN_BODY]


def why(error: OSError) -> str:
    """What the system says of a connection that broke; a closed one may come without a word."""
    return error.strerror or str(error) or "the other side closed it"


def printable(text: str) -> str:
    """`text` in one line of at most 500 characters; control characters become their escapes."""
    shown = "".join(
        character if character.isprintable() else _escaped(character) for character in text[:MAX_MESSAGE]
    )
    return shown if len(shown) <= MAX_MESSAGE else shown[: MAX_MESSAGE - 1] + "…"


def _escaped(character: str) -> str:
    return " " if character in "\r\n\t" else character.encode("unicode_escape").decode("ascii")
