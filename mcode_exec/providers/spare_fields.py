"""Fields of a request that some servers refuse though a call can do without: left out, or named otherwise.

Only what nobody asked for: cache marks and keys, the wish for usage in the
stream, encrypted reasoning, summaries of reasoning; an output limit keeps its
value under its other name.  An effort that a person chose is never left out: its
refusal is the answer.  Who refuses a field is not sent it again in the same turn.
"""

from __future__ import annotations

from typing import Any

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.payload import as_list, as_object, decode, encode
from mcode_exec.records.model import WireFormat

_STATUSES = (400, 422)
#: field -> how a refusal names it
_NAMES = {
    "stream_options": ("stream_options",),
    "prompt_cache_key": ("prompt_cache_key",),
    "include": ("'include'", '"include"', "encrypted content", "encrypted_content"),
    "reasoning.summary": ("reasoning.summary", "reasoning summar"),
    "cache_control": ("cache_control",),
    "max_tokens": ("max_tokens",),
    "max_completion_tokens": ("max_completion_tokens",),
}
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
#: what servers say of a field, or a value of it, that they do not know
_REFUSALS = (
    "not supported",
    "unsupported",
    "not permitted",
    "not allowed",
    "extra_forbidden",
    "extra fields",
    "unrecognized",
    "unknown",
    "cannot find field",
    "unexpected",
    "must be verified",
)


def refused_field(failure: ModelCallError, body: bytes, api: WireFormat) -> str | None:
    """The spare field of `body` that `failure` is about; None if it is about anything else."""
    if failure.http_status not in _STATUSES or failure.code != "LLM_BAD_REQUEST":
        return None
    said = failure.message.lower()
    if not any(words in said for words in _REFUSALS):
        return None
    request = as_object(decode(body))
    for field, names in _NAMES.items():
        if field in _OTHER_NAME and api != "openai-completions":
            continue  # the other formats have one name only
        if any(name in said for name in names) and _holds(request, field):
            return field
    return None


def without(body: bytes, field: str) -> bytes:
    """`body` without `field`, or with it under its other name; the rest keeps its bytes and order."""
    request = as_object(decode(body))
    if field in _OTHER_NAME:
        return encode({_OTHER_NAME[field] if key == field else key: value for key, value in request.items()})
    for holder, key in _places(request, field):
        holder.pop(key, None)
    return encode(request)


def _holds(request: dict[str, Any], field: str) -> bool:
    return any(key in holder for holder, key in _places(request, field))


def _places(request: dict[str, Any], field: str) -> list[tuple[dict[str, Any], str]]:
    """The objects that may hold `field`, and its name there."""
    if field != "cache_control":
        *path, key = field.split(".")
        holder = request
        for name in path:
            holder = as_object(holder.get(name))
        return [(holder, key)]
    marked = [request, *as_list(request.get("tools")), *as_list(request.get("system"))]
    for message in as_list(request.get("messages")):
        marked += as_list(as_object(message).get("content"))
    return [(block, field) for block in marked if isinstance(block, dict)]
