"""Validators: what a strict provider would say of a request, for each wire format.

Pure functions from a parsed body to violations, the words being close to those of the real providers.  They
are the strictest reading: a history that passes here passes anywhere.  What they do not
know is left alone.
`parse` comes first: bytes that are no UTF-8, no JSON, or hold half a surrogate pair reach no provider.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.strict_anthropic import check_anthropic
from tests.support.strict_chat import check_chat
from tests.support.strict_responses import check_responses
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES


def parse(raw: bytes) -> tuple[Any, list[str]]:
    """The body and no violations, or None and why it cannot be read."""
    try:
        parsed = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        return None, [f"The request body is not valid UTF-8: byte {error.start}"]
    except ValueError as error:
        return None, [f"The request body is not valid JSON: {error}"]
    try:
        json.dumps(parsed, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return parsed, ["The request body is not valid JSON: no low surrogate in string"]
    return parsed, []


def violations(api: str, body: Any) -> list[str]:
    if not isinstance(body, dict):
        return ["The request body must be a JSON object"]
    if not isinstance(body.get("model"), str) or not body["model"]:
        return ["model: Field required"]
    check: Callable[[dict[str, Any]], Iterator[str]] = {
        ANTHROPIC: check_anthropic,
        CHAT: check_chat,
        RESPONSES: check_responses,
    }[api]
    return list(check(body))


def error_body(api: str, message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    if api == ANTHROPIC:
        return {
            "type": "error",
            "error": {"type": kind, "message": message},
            "request_id": "req_scripted",
        }
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}
