"""What an error object says, whatever its form: message, codes, status, hint; and the words that may be judged.

Providers, gateways and servers each have a form of their own, and some wrap another's.  `words` is
the message without what it quotes: a prompt that an error echoes must not decide what it means.
"""

from __future__ import annotations

import re
from typing import Any

from mcode_exec.providers.payload import PayloadError, as_list, as_object, as_text, clean, decode
from mcode_exec.providers.retry_hints import retry_after_ms

#: how much of a message is judged, and how long one quotation in it may be
_MAX_JUDGED = 4000
_MAX_NESTED = 3

_CODE_KEYS = ("code", "type", "status", "kind", "reason", "error_code", "errorCode", "errcode", "__type")
_STATUS_KEYS = ("code", "status", "status_code", "statusCode", "http_code", "error_code", "errorCode")
_MESSAGE_KEYS = ("message", "Message", "msg", "detail", "error", "error_msg", "errorMessage", "errmsg")
#: where one error object may stand in another, or in a body
_INNER_KEYS = ("error", "message", "detail", "innererror", "cause")
#: words of a code that is none
_BAD = frozenset(("error", "failed", "failure", "fail"))
_GOOD = frozenset(("0", "200", "ok", "success", "successful", "succeeded", "none", "null"))

#: quoted values of what was sent, and quotations in prose
_ECHO = re.compile(
    r"""["'](?:input|content|prompt|text|value|arguments)["']\s*:\s*(?:'[^']*'|"[^"]*"|\[[^]]*\])"""
    r"|input_value=.*?(?=, input_type=|$)"
    r"""|(?<!\w)(?P<mark>['"`])(?:(?!(?P=mark)(?!\w)).)*(?P=mark)(?!\w)"""
    r"|‘[^’]*’|“[^”]*”",
    re.DOTALL,
)
#: what a quotation stands behind that is the message of an error object wrapped in prose
_MESSAGE_BEFORE = re.compile(r"""["'](?:message|msg|error|detail)["']\s*:\s*\Z""")
#: an error in JSON that is all of a message, or stands behind the name of an exception, as LiteLLM has it
_WRAPPED = re.compile(r"""(?:[^{"'`]{0,200}Exception - )?(?:b['"])?\s*\{""")
#: MiniMax puts its own code behind the message where the format has no other place for it
_TRAILING_CODE = re.compile(r"\((\d{4,5})\)\.?$")


class ErrorReport:
    """The facts of an error object."""

    def __init__(self, value: Any, depth: int = 0) -> None:
        if isinstance(value, list) and value:  # Gemini wraps its error in an array
            value = value[0]
        body = as_object(value)
        base = as_object(body.get("base_resp"))
        error, is_flat = _error_of(body, bool(base.get("status_code")))
        #: `base_resp.status_code` of MiniMax; None where it is 0 or none
        self.minimax = _number(base.get("status_code")) or None
        self.message = _message_of(error) or clean(as_text(base.get("status_msg")))
        self.codes = _codes_of(error) + ([] if is_flat else _codes_of(body))
        self.status = _status_of(error) or _status_of(body)
        self.request_id = as_text(body.get("request_id")) or None
        self.details = [as_object(item) for item in as_list(error.get("details"))]
        self.codes += [_normal(reason) for one in self.details if (reason := as_text(one.get("reason")))]
        self.hint_ms = _google_hint_ms(self.details)
        self.words = words_of(self.message)
        found = _TRAILING_CODE.search(self.message[:_MAX_JUDGED].strip())
        self.trailing = int(found[1]) if found else None
        self._take_inner(error, depth)
        self._take_wrapped(self.message, depth)
        self._take_metadata(as_object(error.get("metadata")), depth)

    def _take_inner(self, error: dict[str, Any], depth: int) -> None:
        """Gateways wrap the error that they got in one of their own: the inner one knows more."""
        for key in _INNER_KEYS:
            found = error.get(key)
            if isinstance(found, dict) and found and depth < _MAX_NESTED:
                inner = ErrorReport(found, depth + 1)
                self.codes += inner.codes
                self.minimax = self.minimax or inner.minimax
                self.status = self.status or inner.status
                self.hint_ms = inner.hint_ms if self.hint_ms is None else self.hint_ms
                self.request_id = self.request_id or inner.request_id
                if not self.message:
                    self.message, self.words = inner.message, inner.words

    def _take_wrapped(self, message: str, depth: int) -> None:
        """Gateways put the error that they got, as JSON, where their own words should stand."""
        start = _WRAPPED.match(message[:_MAX_JUDGED])
        if start is None or depth >= _MAX_NESTED:
            return
        try:
            inner = ErrorReport(decode(message[start.end() - 1 : message.rfind("}") + 1]), depth + 1)
        except PayloadError:
            return
        self.codes += inner.codes
        self.minimax = self.minimax or inner.minimax
        self.words = f"{self.words} {inner.words}"

    def _take_metadata(self, metadata: dict[str, Any], depth: int) -> None:
        """OpenRouter passes the provider's own words on, and says why its moderation refused."""
        if metadata.get("flagged_input") is not None or metadata.get("reasons"):
            self.codes.append("contentfilter")
        self.codes += _codes_of({"type": metadata.get("error_type")})
        raw = metadata.get("raw")
        if isinstance(raw, str) and raw.lstrip()[:1] in ("{", "["):
            try:
                raw = decode(raw)
            except PayloadError:
                pass
        if isinstance(raw, dict | list) and depth < _MAX_NESTED:
            inner = ErrorReport(raw, depth + 1)
            self.codes += inner.codes
            self.minimax = self.minimax or inner.minimax
            said, words = inner.message, inner.words
        else:
            said = clean(as_text(raw))
            words = words_of(said)
        if said:
            self.message = f"{self.message}: {said}" if self.message else said
            self.words = f"{self.words} {words}"

    def says(self, texts: tuple[str, ...]) -> bool:
        return any(text in self.words for text in texts)


def is_bare_error(value: dict[str, Any]) -> bool:
    """Whether an object that is no answer is an error without an `error`: words, beside a code or a failure."""
    kind = value.get("type")
    if kind is not None and not as_text(kind).lower().endswith(("error", "exception")):
        return False  # an event of its own kind
    if value.get("success") is False or value.get("ok") is False:
        return True
    if any(as_object(one) for one in as_list(value.get("errors"))):
        return True
    if as_object(as_object(value.get("detail")).get("error")):
        return True
    if not any(isinstance(value.get(key), str) and value[key].strip() for key in _MESSAGE_KEYS):
        return False
    if _status_of(value) is not None or as_text(value.get("status")).lower() in _BAD:
        return True
    codes = _codes_of({key: value.get(key) for key in ("code", "error_code", "errorCode", "errcode")})
    return kind is not None or any(code not in _GOOD for code in codes)


def words_of(message: str) -> str:
    """`message` in lower case, without the quotations in it."""
    text = message[:_MAX_JUDGED].lower()
    return " ".join(_ECHO.sub(_without_quotation, text).split())


def _without_quotation(found: re.Match[str]) -> str:
    if found["mark"] is None:
        return " "
    is_message = _MESSAGE_BEFORE.search(found.string, max(found.start() - 40, 0), found.start())
    return found[0] if is_message else " "


def _error_of(body: dict[str, Any], is_minimax: bool) -> tuple[dict[str, Any], bool]:
    """The object that has the message, and whether it is the body itself."""
    inner = body.get("error") or body.get("errors")
    if isinstance(inner, dict) and inner:
        return inner, False
    if isinstance(inner, list) and inner and isinstance(inner[0], dict):
        return inner[0], False
    if isinstance(inner, str) and inner:
        return {"message": inner}, False
    return ({}, False) if is_minimax else (body, True)


def _message_of(error: dict[str, Any]) -> str:
    for key in _MESSAGE_KEYS:
        found = error.get(key)
        if isinstance(found, dict):
            found = _message_of(found)
        elif isinstance(found, list):
            found = "; ".join(filter(None, map(_fault_of, found[:10])))
        if isinstance(found, str) and found.strip():
            return clean(found)
    return ""


def _fault_of(item: Any) -> str:
    """One fault of a validation error as FastAPI lists them, without the input that it found wrong."""
    fault = as_object(item)
    where = ".".join(str(step) for step in as_list(fault.get("loc")) if isinstance(step, str | int))
    said = as_text(fault.get("msg")) or as_text(fault.get("message")) or as_text(item)
    return f"{where}: {said}" if where and said else said


def _codes_of(error: dict[str, Any]) -> list[str]:
    found = (error.get(key) for key in _CODE_KEYS)
    codes = [_normal(str(code)) for code in found if isinstance(code, str | int) and code is not True]
    return [code for code in codes if code]


def _normal(code: str) -> str:
    """`rate_limit_error`, `RateLimitError` and `com.acme#RateLimitException` are one code: `ratelimit`."""
    name = code.rpartition("#")[2]
    text = "".join(char for char in name[:200].lower() if char.isalnum())
    for suffix in ("error", "exception"):
        text = text.removesuffix(suffix) or text
    return text


def _status_of(error: dict[str, Any]) -> int | None:
    """The HTTP status that an object names: a number or its digits."""
    numbers = (_number(error.get(key)) for key in _STATUS_KEYS)
    return next((number for number in numbers if number is not None and 400 <= number < 600), None)


def _number(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9:
        return int(value)
    return None


def _google_hint_ms(details: list[dict[str, Any]]) -> int | None:
    for detail in details:
        delay = as_text(detail.get("retryDelay"))
        if delay.endswith("s"):
            return retry_after_ms([(b"retry-after", delay[:-1].encode("ascii", "replace"))], 0)
    return None
