"""What a person can do about a failed call: said behind the provider's own words.

Names the provider and where its key came from, never the key.
"""

from __future__ import annotations

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.failures import MAX_MESSAGE
from mcode_exec.providers.wire import Endpoint

#: failures of the account that the key belongs to
_OF_THE_KEY = frozenset({"LLM_AUTH_ERROR", "LLM_CREDITS_EXHAUSTED", "USAGE_LIMIT_EXCEEDED"})
_OVERFLOW = (
    "; begin a new session (the one so far is kept), with less input if it is new already, "
    "or name a model with a larger context"
)


_NO_SUCH_MODEL = "; `mcode models` lists what can be named with --model"
_TOO_LARGE = "; begin a new session, or send less"
_NO_TOOLS = "; --tools none asks without tools"


def advise(failure: ModelCallError, endpoint: Endpoint) -> None:
    """Add to the message of `failure` what can be done about it."""
    advice = _advice(failure, endpoint)
    if advice:
        room = MAX_MESSAGE - len(advice)
        said = failure.message if len(failure.message) <= room else failure.message[: room - 1] + "…"
        failure.args = (said + advice, *failure.args[1:])


def _advice(failure: ModelCallError, endpoint: Endpoint) -> str:
    if failure.code == "LLM_CONTEXT_OVERFLOW":
        return _OVERFLOW
    if failure.code == "MODEL_UNKNOWN":
        return _NO_SUCH_MODEL
    if failure.http_status == 413 or (failure.code == "LLM_BAD_REQUEST" and _is_above_limit(failure)):
        return _TOO_LARGE
    if failure.code == "LLM_BAD_REQUEST" and "support tool" in failure.message:
        return _NO_TOOLS
    if failure.code in _OF_THE_KEY and failure.http_status != 407:  # 407: a proxy's word on its own password
        provider = f" (provider {endpoint.provider_id!r}, "
        replaced = endpoint.key_header
        if replaced is not None:
            return f"{provider}whose configuration sends the header {replaced!r} in place of a key)"
        if endpoint.key_source:
            return f"{provider}its key is from {endpoint.key_source})"
        if endpoint.auth == "none":
            return f"{provider}which was asked without a key)"
        return f"{provider[:-2]})"
    return ""


def _is_above_limit(failure: ModelCallError) -> bool:
    """Whether one call is larger than its rate limit: the only 429 that is a wrong request."""
    return failure.http_status == 429 or "request too large" in failure.message.lower()
