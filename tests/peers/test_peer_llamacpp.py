"""mcode against a real model: llama.cpp's own server over its three APIs, and `local` models."""

from __future__ import annotations

import signal

import pytest

from mcode_exec.providers.local import find_built_in
from tests.support.mcode import Mcode
from tests.support.third_party import Llama

pytestmark = [pytest.mark.model, pytest.mark.timeout(180)]

JSON = ("--output-format", "json")
QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."


@pytest.fixture
def llama_mcode(mcode: Mcode, api: str, llama: Llama) -> Mcode:
    """mcode bound to the real server over the `api` of the test."""
    return mcode.configure(api=api, base_url=llama.base_url, context=8192, output=256)


def test_a_real_answer_with_real_usage(llama_mcode: Mcode, plain: list[str], llama: Llama) -> None:
    run = llama_mcode.exec(QUESTION, *plain, *JSON, env={"FAKE_KEY": llama.api_key}).check()
    assert run.result["output"] == ANSWER
    usage = run.result["usage"]
    assert usage["inputTokens"] + usage["cacheReadTokens"] > 10
    assert usage["outputTokens"] > 5
    assert run.result["finishReason"] == "stop"


def test_a_session_goes_on_with_a_real_model(llama_mcode: Mcode, plain: list[str], llama: Llama) -> None:
    key = {"FAKE_KEY": llama.api_key}
    first = llama_mcode.exec(QUESTION, *plain, *JSON, env=key).check().result
    second = llama_mcode.exec("And of Italy?", "--continue", *plain, *JSON, env=key).check().result
    assert second["sessionId"] == first["sessionId"]
    assert second["output"]
    assert [message["role"] for message in llama_mcode.messages()] == ["user", "assistant"] * 2


def test_a_true_context_overflow_is_named(llama_mcode: Mcode, plain: list[str], llama: Llama) -> None:
    run = llama_mcode.exec(
        "--input", "-", *plain, *JSON, input="word " * 9000, env={"FAKE_KEY": llama.api_key}
    ).check(4)
    assert run.result["error"]["code"] == "LLM_CONTEXT_OVERFLOW"


def test_a_wrong_key_is_refused(llama_mcode: Mcode, plain: list[str]) -> None:
    run = llama_mcode.exec(QUESTION, *plain, *JSON).check(77)
    assert run.result["error"]["code"] == "LLM_AUTH_ERROR"


def test_an_interrupt_in_the_middle_of_tokens_ends_the_run(
    llama_mcode: Mcode, plain: list[str], llama: Llama
) -> None:
    key = {"FAKE_KEY": llama.api_key}
    prompt = "Count from one to one hundred in words."
    running = llama_mcode.start("exec", prompt, *plain, "--output-format", "stream-json", env=key)
    running.wait_event("item.updated")
    running.send(signal.SIGINT)
    run = running.finish(20)
    assert run.code in (130, -signal.SIGINT)
    assert run.result["status"] == "cancelled"
    llama_mcode.exec(QUESTION, "--continue", *plain, env=key).check()


def local_only(mcode: Mcode) -> Mcode:
    """A configuration that names no provider at all."""
    mcode.config.write_text('model = "local/smollm2"\n')
    return mcode


def test_the_built_in_model_answers_and_says_what_it_is(mcode: Mcode) -> None:
    run = local_only(mcode).exec(QUESTION).check()
    assert run.out == f"{ANSWER}\n"
    assert "135 million parameters" in run.err
    assert all(line.startswith("mcode: ") for line in run.err.splitlines())


def test_a_session_with_the_built_in_model_goes_on(mcode: Mcode) -> None:
    first = local_only(mcode).exec(QUESTION, *JSON).check().result
    second = mcode.exec("And of Italy?", "--continue", *JSON).check().result
    assert second["sessionId"] == first["sessionId"]
    assert second["output"]


def test_an_interrupt_while_the_built_in_model_talks_ends_the_process(mcode: Mcode) -> None:
    prompt = "Write a long story about a cat and a dog that travel around the world."
    running = local_only(mcode).start("exec", prompt, "--output-format", "stream-json")
    running.wait_event("item.updated")
    running.send(signal.SIGINT)
    assert running.finish(10).code in (130, -signal.SIGINT)


def test_a_gguf_by_path_is_served_too(mcode: Mcode) -> None:
    mcode.config.write_text(
        f'model = "local/mine"\n[providers.local]\napi = "local"\npath = "{find_built_in()}"\n'
        '[providers.local.models."mine"]\ncontext = 8192\noutput = 64\n'
    )
    run = mcode.exec(QUESTION, *JSON).check()
    assert run.result["output"]
    assert run.result["model"]["modelId"] == "mine"
