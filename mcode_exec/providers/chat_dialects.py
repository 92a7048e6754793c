"""What differs between the providers that speak chat completions, by provider id or else by address."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from mcode_exec.providers.wire import OPENAI_HOST, Endpoint
from mcode_exec.records.model import ToolSchema


class Dialect(Struct, frozen=True, kw_only=True):
    #: name of the output limit
    limit_field: str = "max_tokens"
    #: whether the provider's own default limit is too small to leave unsaid
    states_limit: bool = False
    #: how effort is asked for: `flat` reasoning_effort, `nested` reasoning.effort, `thinking` reasoning_effort,
    #: but "none" as thinking.type, `none`
    effort: str = "flat"
    #: levels of effort that the provider has another word for
    words: dict[str, str] = {}
    #: whether a keyword of JSON Schema that it does not know makes it refuse the request
    is_strict_on_schemas: bool = False
    #: how ids of models begin whose prompts are cached only where that is asked for; None: no model's are
    asks_to_cache: str | None = None


_DIALECTS = {
    "openai": Dialect(limit_field="max_completion_tokens"),
    "minimax": Dialect(states_limit=True, effort="none"),
    "deepseek": Dialect(states_limit=True, effort="thinking"),
    "openrouter": Dialect(effort="nested", asks_to_cache="anthropic/"),
    "gemini": Dialect(words={"xhigh": "high"}, is_strict_on_schemas=True),
}
#: the same providers under a name of the configuration's own
_ID_OF_HOST = {
    OPENAI_HOST: "openai",
    "api.minimax.io": "minimax",
    "api.minimaxi.com": "minimax",
    "api.deepseek.com": "deepseek",
    "openrouter.ai": "openrouter",
    "generativelanguage.googleapis.com": "gemini",
}
_USUAL = Dialect()


def dialect_of(endpoint: Endpoint) -> Dialect:
    found = _DIALECTS.get(endpoint.provider_id)
    return found or _DIALECTS.get(_ID_OF_HOST.get(endpoint.host, ""), _USUAL)


def cache_fields(model_id: str, dialect: Dialect) -> dict[str, Any]:
    asked = dialect.asks_to_cache is not None and model_id.startswith(dialect.asks_to_cache)
    return {"cache_control": {"type": "ephemeral"}} if asked else {}


def parameters(tool: ToolSchema, dialect: Dialect) -> dict[str, Any]:
    if not dialect.is_strict_on_schemas:
        return tool.parameters
    from mcode_exec.providers.tool_schemas import GEMINI, narrowed

    return narrowed(tool.parameters, GEMINI)


def effort_fields(level: str, dialect: Dialect) -> dict[str, Any]:
    level = dialect.words.get(level, level)
    if dialect.effort == "nested":
        return {"reasoning": {"effort": level}}
    if dialect.effort == "thinking" and level == "none":
        return {"thinking": {"type": "disabled"}}
    return {} if dialect.effort == "none" else {"reasoning_effort": level}
