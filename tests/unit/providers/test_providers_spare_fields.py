"""A field that a server refuses though the call can do without is left out, from then on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcode_exec.providers.client import Endpoint
from mcode_exec.records.history import TextBlock
from mcode_exec.records.model import ModelRequest
from tests.unit.providers.byte_peer import (
    BytePeer,
    Call,
    Script,
    answered,
    endpoint,
    http,
    info,
    request,
    run,
    said,
)


def refusal(body: Any, status: str = "400 Bad Request") -> Script:
    return [http(msgspec.json.encode(body), status=status, kind="application/json")]


def openai(message: str, param: str | None = None) -> Script:
    return refusal(
        {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}}
    )


def pydantic(*location: str) -> Script:
    """As servers built on FastAPI say it, Mistral's among them."""
    detail = [
        {"type": "extra_forbidden", "loc": ["body", *location], "msg": "Extra inputs are not permitted"}
    ]
    return refusal({"detail": detail}, "422 Unprocessable Entity")


def anthropic(message: str) -> Script:
    return refusal({"type": "error", "error": {"type": "invalid_request_error", "message": message}})


CLAUDE = request(model=info("anthropic/claude-opus-4.6"))
CAPPED = request(max_output_tokens=77)
REASONING = request(model=info(reasons=True), effort="low")

#: format, what is asked, the refusal, what the next request lacks, what it has
REFUSALS: list[tuple[str, ModelRequest, Script, str, dict[str, Any]]] = [
    (
        "openai-completions",
        CAPPED,
        openai(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        ),
        "max_tokens",
        {"max_completion_tokens": 77},
    ),
    ("openai-completions", CAPPED, pydantic("stream_options"), "stream_options", {"max_tokens": 77}),
    (
        "openai-completions",
        CAPPED,
        openai("Unrecognized request argument supplied: stream_options"),
        "stream_options",
        {},
    ),
    (
        "openai-responses",
        REASONING,
        openai("Encrypted content is not supported with this model.", "include"),
        "include",
        {},
    ),
    (
        "openai-responses",
        REASONING,
        openai("Your organization must be verified to generate reasoning summaries.", "reasoning.summary"),
        "summary",
        {"reasoning": {"effort": "low"}},
    ),
    (
        "openai-completions",
        CLAUDE,
        openai("cache_control: Extra inputs are not permitted"),
        "cache_control",
        {"stream": True},
    ),
    (
        "anthropic-messages",
        request(),
        anthropic("messages.0.content.0.text.cache_control: Extra inputs are not permitted"),
        "cache_control",
        {"max_tokens": 8000},
    ),
]


@pytest.mark.parametrize(("api", "what", "script", "lacks", "has"), REFUSALS)
def test_the_call_is_asked_once_more_without_the_field_and_so_is_every_later_one(
    api: str, what: ModelRequest, script: Script, lacks: str, has: dict[str, Any]
) -> None:
    async def twice(peer: BytePeer, call: Call) -> Any:
        provider_id = "openrouter" if what is CLAUDE else "acme"
        where: Endpoint = endpoint(peer.base_url, api, provider_id=provider_id)
        first = await call.ask(where, what)
        return first, await call.ask(where, what)

    (first, second), peer, call = run([script, [http(answered(api))]], twice, api=api)
    assert first.content == second.content == (TextBlock(text="done"),)
    assert (first.retries, first.failed_usage, call.sleeps.asked_s) == (0, (), [])
    refused, again, later = (one.json for one in peer.requests)
    assert lacks in str(refused)
    for one in (again, later):
        assert f"'{lacks}'" not in str(one)
        assert {name: one[name] for name in has} == has
    # what stands before the conversation is left as it was, in its order
    assert [name for name in refused if name in again] == [name for name in again if name in refused]


def test_the_other_name_of_a_limit_that_is_refused_too_is_the_end() -> None:
    error, peer, _ = run(
        [openai("max_tokens is not supported"), openai("max_completion_tokens is not supported")], what=CAPPED
    )
    assert error.code == "LLM_BAD_REQUEST"
    assert len(peer.requests) == 3


@pytest.mark.parametrize(
    "script",
    [
        openai("Unsupported value: 'reasoning_effort' does not support 'low' with this model."),
        openai("max_tokens is too large: 77"),
        openai("tools.0.name is not supported"),
        openai("'stream' is not supported"),
        [http(b'{"error":{"message":"stream_options is not supported"}}', status="404 No")],
    ],
)
def test_any_other_refusal_is_the_answer(script: Script) -> None:
    error, peer, _ = run([script, [http(said())]], what=request(max_output_tokens=77, effort="low"))
    assert error.code == "LLM_BAD_REQUEST"
    assert len(peer.requests) == 1
