"""Answers that never come to their end: which timer ends them, and what the sentence says had come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.client import RetryPolicy, Timeouts
from mcode_exec.providers.reading import read_answer
from mcode_exec.providers.sending import wire_module
from tests.unit.providers.byte_peer import Call, Script, chat, http, run, said, sse, stream_head

APIS = ("anthropic-messages", "openai-completions", "openai-responses")
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
COMMENT = b": still here\n\n"

BEGUN: dict[str, list[dict[str, Any]]] = {
    "anthropic-messages": [{"type": "message_start", "message": {"usage": {"input_tokens": 5}}}],
    "openai-completions": [chat({"role": "assistant"})],
    "openai-responses": [{"type": "response.created", "response": {}}, {"type": "response.in_progress"}],
}
TEXT: dict[str, list[dict[str, Any]]] = {
    "anthropic-messages": [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    ],
    "openai-completions": [chat({"content": "Hello"})],
    "openai-responses": [{"type": "response.output_text.delta", "output_index": 0, "delta": "Hello"}],
}
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "anthropic-messages": [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": "bash"}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"co'},
        },
    ],
    "openai-completions": [
        chat({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "bash", "arguments": ""}}]}),
        chat({"tool_calls": [{"index": 0, "function": {"arguments": '{"co'}}]}),
    ],
    "openai-responses": [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "function_call", "name": "bash"},
        },
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"co'},
    ],
}


def failed(script: Script, api: str = "openai-completions", **limits: float) -> ModelCallError:
    timeouts = Timeouts(**({"connect_s": 2.0, "first_byte_s": 0.6, "idle_s": 0.3} | limits))
    error, _, _ = run([script], call=Call(timeouts=timeouts, retry=RetryPolicy(max_retries=0)), api=api)
    assert isinstance(error, ModelCallError)
    return error


def events(count: int) -> str:
    return "1 event came" if count == 1 else f"{count} events came"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("keep_alive", [b"", PING, COMMENT])
def test_from_the_first_event_on_the_idle_timer_rules_and_the_sentence_says_what_came(
    api: str, keep_alive: bytes
) -> None:
    # a first-byte timer that would never fire in this test
    for more, what in ((None, "none with content"), (TEXT, "ending in text"), (ARGUMENTS, "a call of bash")):
        told = BEGUN[api] + (more[api] if more else [])
        begin = stream_head() + sse(*told, name=api != "openai-completions")
        script: Script = [begin, *[keep_alive, 0.03] * 30, "hold"]
        error = failed(script, api, first_byte_s=600.0)
        assert error.code == "LLM_STALLED"
        assert f"went silent: {events(len(told))}, " in error.message
        assert what in error.message
        assert "then none for 0.3 s" in error.message


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("came", "sentence"),
    [
        ([], "the provider answered 200, but nothing followed within 0.6 s"),
        ([COMMENT, 0.03] * 30, "the provider answered 200, but nothing but comments and pings followed"),
        ([PING, 0.03] * 30, "the provider answered 200, but nothing but comments and pings followed"),
        ([b"event: message_start\n"], "the provider answered 200, but no whole event followed"),
        ([b"d", 0.03, b"ata: {"], "the provider answered 200, but no whole event followed"),
        ([b": still he", 0.03], "the provider answered 200, but nothing but comments and pings followed"),
    ],
)
def test_before_the_first_event_the_first_byte_timer_rules(
    api: str, came: list[bytes | float], sentence: str
) -> None:
    error = failed([stream_head(), *came, "hold"], api, idle_s=600.0)
    assert error.code == "LLM_STALLED"
    assert sentence in error.message


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\ncontent-ty"])
def test_a_head_that_never_comes_to_its_end_is_no_answer(head: bytes) -> None:
    error = failed([head, "hold"])
    assert error.code == "LLM_STALLED"
    assert error.message.startswith("http://127.0.0.1:")
    assert error.message.endswith(" did not answer within 0.6 s")


def test_a_whole_body_that_never_ends_is_told_from_silence() -> None:
    error = failed([b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"id": "x",', "hold"])
    assert error.code == "LLM_STALLED"
    assert "its answer was not over within 0.6 s" in error.message


@pytest.mark.parametrize(
    "nothing",
    [
        {"id": "x", "object": "chat.completion.chunk"},
        {"choices": []},
        {"choices": None},
        {"choices": [], "usage": None},
        {"choices": [], "usage": {"prompt_tokens": 9}},
        {"choices": [], "prompt_filter_results": []},
    ],
)
def test_chunks_that_tell_nothing_of_an_answer_do_not_hold_off_the_timer(nothing: dict[str, Any]) -> None:
    empty = sse(nothing)
    error = failed([stream_head() + sse(chat({"content": "He"})), *[empty, 0.03] * 40, "hold"])
    came = 2 if nothing.get("usage") else 1  # the first count is news
    assert f"went silent: {events(came)}, ending in text" in error.message


@pytest.mark.parametrize(
    ("api", "nothing"),
    [
        ("openai-completions", chat({"content": ""})),
        ("openai-completions", chat({"role": "assistant", "content": None, "tool_calls": []})),
        ("openai-completions", {"choices": [{"index": 0, "delta": {}}]}),
        (
            "anthropic-messages",
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}},
        ),
        ("anthropic-messages", {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 5}}),
        ("anthropic-messages", {"type": "message_start", "message": {"usage": {"input_tokens": 5}}}),
        ("openai-responses", {"type": "response.output_text.delta", "output_index": 0, "delta": ""}),
        ("openai-responses", {"type": "response.in_progress"}),
    ],
)
def test_events_that_say_nothing_do_not_hold_off_the_timer(api: str, nothing: dict[str, Any]) -> None:
    name = api != "openai-completions"
    empty = sse(nothing, name=name)
    error = failed(
        [stream_head() + sse(*BEGUN[api], *TEXT[api], name=name), *[empty, 0.03] * 40, "hold"], api
    )
    assert f"went silent: {events(len(BEGUN[api]) + 1)}, ending in text" in error.message


def test_what_azure_says_of_the_prompt_begins_an_answer_and_usage_that_grows_goes_on_with_it() -> None:
    filters = {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    counts = [
        sse({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": n}}) for n in range(1, 20)
    ]
    answer: Script = [stream_head() + sse(filters), *[step for count in counts for step in (0.03, count)]]
    limits = Timeouts(first_byte_s=5.0, idle_s=0.4)
    retry = RetryPolicy(max_retries=0)
    found, _, _ = run([[*answer, said(), "close"]], call=Call(timeouts=limits, retry=retry))
    assert found.finish_reason == "stop"


@pytest.mark.parametrize("api", APIS)
def test_a_stream_that_is_cut_says_what_came_of_it(api: str) -> None:
    told = BEGUN[api] + TEXT[api]
    error = failed([stream_head() + sse(*told) + b'data: {"unfinished', "close"], api)
    assert error.code == "LLM_UPSTREAM_ERROR"
    assert f"ended in the middle of the answer ({events(len(told))}, ending in text)" in error.message


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], "the provider's answer is empty"),
        ([http(b"")], "the provider's answer is empty"),
        ([http(COMMENT * 5)], "the provider's stream ended before its first event"),
    ],
)
def test_an_answer_with_no_event_is_tried_again_and_said_to_be_none(script: Script, sentence: str) -> None:
    error = failed(script)
    assert (error.code, error.is_retried) == ("LLM_UPSTREAM_ERROR", True)
    assert error.message == sentence


@pytest.mark.parametrize("api", APIS)
def test_a_stream_of_another_format_is_a_wrong_configuration(api: str) -> None:
    other = {"openai-completions": "anthropic-messages"}.get(api, "openai-completions")
    error = failed([http(sse(*BEGUN[other], *TEXT[other], name=other != "openai-completions"))], api)
    assert (error.code, error.exit_code, error.is_retried) == ("LLM_BAD_RESPONSE", 3, False)
    assert "base_url and api" in error.message
    stalled = failed([stream_head() + sse(*BEGUN[other]), "hold"], api)
    assert stalled.code == "LLM_STALLED"
    assert "it sent: {" in stalled.message


@pytest.mark.parametrize(
    "body",
    [
        http(b"Welcome: this is a service\n"),
        http(b'{"message":"a","done":false}\n{"message":"b","done":true}\n', kind="application/x-ndjson"),
        http(b'data: "hi"\n\ndata: 5\n\n'),
    ],
)
def test_what_only_looks_like_an_answer_is_shown_and_not_asked_for_again(body: bytes) -> None:
    error = failed([body])
    assert (error.code, error.is_retried) == ("LLM_BAD_RESPONSE", False)
    assert "It begins: " in error.message


@pytest.mark.parametrize("api", APIS)
def test_an_error_event_is_heard_in_every_format(api: str) -> None:
    error = failed([http(b'event: error\ndata: {"message": "out of order"}\n\n')], api)
    assert error.code == "LLM_UPSTREAM_ERROR"
    assert error.message == "the provider reported an error: out of order"


def test_an_event_that_is_no_json_is_not_called_an_error_of_the_provider() -> None:
    error = failed([http(b"data: {nope\n\n")])
    assert (error.code, error.is_retried) == ("LLM_UPSTREAM_ERROR", True)
    assert error.message == "an event of the provider's stream is no JSON: {nope"


@pytest.mark.parametrize("choices", [b"[]", b"null"])
def test_a_whole_body_without_choices_says_nothing_as_a_stream_would(choices: bytes) -> None:
    error = failed([http(b'{"choices":%s,"usage":{"prompt_tokens":9}}' % choices)])
    assert error.code == "LLM_EMPTY_RESPONSE"


def test_an_error_body_that_stalls_is_read_as_far_as_it_came() -> None:
    head = b"HTTP/1.1 401 No\r\ncontent-length: 999\r\n\r\n"
    error = failed([head + b'{"error":{"message":"bad key"}}', "hold"])
    assert (error.code, error.http_status) == ("LLM_AUTH_ERROR", 401)
    assert "bad key" in error.message


def test_a_good_answer_may_begin_with_any_number_of_pings() -> None:
    answer, _, _ = run([[stream_head() + (PING + COMMENT) * 1000 + said(), "close"]])
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 401 No\r\ncontent-length: 999\r\n\r\n", b"HTTP/1.1 401 No\r\n\r\n"]
)
def test_an_error_body_that_never_comes_is_said_not_to_have_arrived(head: bytes) -> None:
    error = failed([head, "hold"])
    assert (error.code, error.http_status) == ("LLM_AUTH_ERROR", 401)
    assert "the provider answered 401: its explanation did not arrive" in error.message
    empty = failed([http(b"", status="401 No")])
    assert "the provider answered 401: no explanation" in empty.message


@pytest.mark.parametrize("size", [5_000, 70_000, 2_000_000])
@pytest.mark.parametrize(
    ("status", "code", "found"),
    [
        ("400 No", "context_length_exceeded", "LLM_CONTEXT_OVERFLOW"),
        ("429 No", "insufficient_quota", "LLM_CREDITS_EXHAUSTED"),
    ],
)
def test_a_code_behind_a_long_message_is_found(status: str, code: str, found: str, size: int) -> None:
    body = b'{"error": {"message": "%s", "code": "%s"}}' % (b"y" * size, code.encode())
    error = failed([http(body, status=status, kind="application/json")], first_byte_s=30.0)
    assert error.code == found
    assert len(error.message) <= 500


def test_an_error_body_without_end_is_read_no_further_than_its_bound() -> None:
    head = b"HTTP/1.1 500 No\r\ncontent-type: text/plain\r\n\r\n"
    error = failed([head, *[b"z" * 65536] * 1000, "hold"], first_byte_s=30.0)
    assert (error.code, error.http_status) == ("LLM_UPSTREAM_ERROR", 500)


@pytest.mark.parametrize(
    ("status", "begin", "code"),
    [
        ("429 No", b'{"error": {"code": "insufficient_quota", "message": "You exc', "LLM_CREDITS_EXHAUSTED"),
        ("400 No", b'{"error": {"type": "content_filter", "innererror": {"code": "x"', "LLM_CONTENT_REFUSED"),
        ("429 No", b'{"error": {"message": "slow do', "LLM_RATE_LIMITED"),
    ],
)
def test_a_code_of_an_error_body_that_is_cut_off_counts(status: str, begin: bytes, code: str) -> None:
    head = f"HTTP/1.1 {status}\r\ncontent-length: 9999\r\n\r\n".encode()
    error = failed([head + begin, "close"])
    assert error.code == code
    assert begin.decode() in error.message


@pytest.mark.parametrize(("left_s", "most_s"), [(None, 2.0), (0.5, 0.0), (60.0, 2.0)])
def test_the_usage_of_a_complete_answer_is_waited_for_no_longer_than_the_turn_may_take(
    left_s: float | None, most_s: float
) -> None:
    class Body:
        headers: list[tuple[bytes, bytes]] = [(b"content-type", b"text/event-stream")]  # noqa: RUF012
        pieces = [sse(chat({"content": "done"}, finish="stop"))]  # noqa: RUF012
        wait_s = 0.0

        async def read(self) -> bytes:
            if self.pieces:
                return self.pieces.pop()
            self.wait_s = (timers[0].when() or 0.0) - asyncio.get_running_loop().time()
            return b""

    timers = []
    body = Body()

    async def main() -> None:
        reader = wire_module("openai-completions").Reader(lambda _fact: None, "acme", [], 0)
        async with asyncio.timeout(None) as timer:
            timers.append(timer)
            await read_answer(body, reader, timer, idle_s=60.0, left_s=left_s)

    asyncio.run(main())
    assert most_s - 1.0 < body.wait_s <= most_s


@pytest.mark.parametrize(
    "more", [chat({}, finish="stop"), chat({"content": "more"})], ids=["finish again", "text behind it"]
)
def test_nothing_that_follows_a_complete_answer_makes_the_wait_for_its_usage_longer(more: Any) -> None:
    class Body:
        headers: list[tuple[bytes, bytes]] = [(b"content-type", b"text/event-stream")]  # noqa: RUF012
        left = 5
        ends: list[float] = []  # noqa: RUF012

        async def read(self) -> bytes:
            self.ends.append(timers[0].when() or 0.0)
            self.left -= 1
            return sse(more) if self.left else b""

    timers = []
    body = Body()

    async def main() -> None:
        reader = wire_module("openai-completions").Reader(lambda _fact: None, "acme", [], 0)
        first = sse(chat({"content": "done"}, finish="stop"))

        class Begun(Body):
            async def read(self) -> bytes:
                nonlocal first
                if first:
                    data, first = first, b""
                    return data
                return await body.read()

        async with asyncio.timeout(None) as timer:
            timers.append(timer)
            await read_answer(Begun(), reader, timer, idle_s=60.0)

    asyncio.run(main())
    assert len(body.ends) == 5
    assert len(set(body.ends)) == 1
