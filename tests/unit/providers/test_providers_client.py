"""Calls over real sockets: what is sent, what counts, what is tried again."""

from __future__ import annotations

import asyncio

import pytest

from mcode_exec.errors import KeyMissingError, ModelCallError
from mcode_exec.providers.client import RetryPolicy, Timeouts
from mcode_exec.records.history import TextBlock
from mcode_exec.records.model import AttemptDiscarded, RetryScheduled, TextDelta
from mcode_exec.records.usage import Usage
from tests.unit.providers.byte_peer import (
    BytePeer,
    Call,
    chat,
    chunk,
    endpoint,
    http,
    run,
    said,
    sse,
    stream_head,
)


def test_a_hello_is_one_request_and_one_answer() -> None:
    answer, peer, call = run([[http(said("done"))]])
    assert answer.content == (TextBlock(text="done"),)
    assert answer.finish_reason == "stop"
    assert answer.usage == Usage(input_tokens=9, output_tokens=2)
    assert call.facts == [TextDelta(0, "done")]
    (sent,) = peer.requests
    assert sent.line == "POST /v1/chat/completions HTTP/1.1"
    assert sent.header("authorization") == "Bearer sk-test-key"
    assert sent.header("accept-encoding") == "identity"
    assert sent.json["stream"] is True
    assert sent.json["stream_options"] == {"include_usage": True}
    assert sent.json["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]


def test_two_steps_share_a_connection() -> None:
    async def two(peer: BytePeer, call: Call) -> None:
        for _ in range(2):
            await call.ask(endpoint(peer.base_url))

    outcome, peer, _ = run([[http(said())]], two)
    assert outcome is None
    assert [received.connection for received in peer.requests] == [1, 1]


def test_a_chunked_answer_whose_last_chunk_comes_late_still_leaves_its_connection_usable() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

    async def two(peer: BytePeer, call: Call) -> None:
        await call.ask(endpoint(peer.base_url))
        await asyncio.sleep(0.05)
        await call.ask(endpoint(peer.base_url))

    outcome, peer, _ = run([[head + chunk(said()), 0.02, b"0\r\n\r\n"]], two)
    assert outcome is None
    assert [received.connection for received in peer.requests] == [1, 1]


def test_a_kept_connection_that_the_peer_closed_is_dialled_anew_without_a_retry() -> None:
    async def two(peer: BytePeer, call: Call) -> int:
        await call.ask(endpoint(peer.base_url))
        await call.ask(endpoint(peer.base_url))
        return len(call.sleeps.asked_s)

    # the second request arrives and is answered by nothing but the end of the connection
    outcome, peer, _ = run([[http(said())], ["close"], [http(said())]], two)
    assert outcome == 0
    assert [received.connection for received in peer.requests] == [1, 1, 2]


def test_a_503_then_an_answer_is_an_answer_with_one_retry() -> None:
    answer, peer, call = run([[http(b"busy", status="503 Busy")], [http(said("done"))]])
    assert answer.retries == 1
    assert answer.content == (TextBlock(text="done"),)
    assert [type(fact) for fact in call.facts] == [RetryScheduled, TextDelta]
    assert call.facts[0].code == "LLM_UPSTREAM_ERROR"
    assert call.sleeps.asked_s == [1.0]
    assert [received.connection for received in peer.requests] == [1, 1]


def test_a_stream_that_breaks_is_discarded_and_told_again_once() -> None:
    first = stream_head() + sse(chat({"content": "Hello"}))
    answer, _, call = run([[first, "reset"], [http(said("Hello again"))]])
    assert answer.content == (TextBlock(text="Hello again"),)
    kinds = [type(fact) for fact in call.facts]
    assert kinds == [TextDelta, AttemptDiscarded, RetryScheduled, TextDelta]


def test_six_attempts_are_all_and_the_error_says_so() -> None:
    error, peer, call = run([[http(b"", status="529 Overloaded")]])
    assert isinstance(error, ModelCallError)
    assert error.code == "LLM_CLUSTER_OVERLOADED"
    assert len(peer.requests) == 6
    assert call.sleeps.asked_s == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert "6 attempts" in error.message


def test_a_hint_replaces_the_backoff_and_the_budget_ends_the_waiting() -> None:
    error, peer, call = run([[http(b"{}", status="429 Slow", extra="retry-after: 25\r\n")]])
    assert error.code == "LLM_RATE_LIMITED"
    assert call.sleeps.asked_s == [25.0] * 4
    assert len(peer.requests) == 5


def test_a_hint_above_thirty_seconds_is_cut_to_it() -> None:
    _, _, call = run([[http(b"{}", status="429 Slow", extra="retry-after: 500\r\n")], [http(said())]])
    assert call.sleeps.asked_s == [30.0]


def test_a_wait_that_would_pass_the_deadline_is_not_begun() -> None:
    error, peer, call = run([[http(b"", status="500 Oops")]], deadline_s=1000.0 + 3.5)
    assert error.code == "LLM_UPSTREAM_ERROR"
    assert call.sleeps.asked_s == [1.0, 2.0]
    assert len(peer.requests) == 3


def test_an_authentication_error_is_not_tried_again() -> None:
    body = b'{"error":{"message":"invalid api key","type":"authentication_error"}}'
    error, peer, _ = run([[http(body, status="401 No", extra="x-request-id: req-7\r\n")]])
    assert (error.code, error.exit_code, error.http_status) == ("LLM_AUTH_ERROR", 77, 401)
    assert error.request_id == "req-7"
    assert len(peer.requests) == 1


def test_a_missing_key_is_said_before_any_request() -> None:
    async def ask(peer: BytePeer, call: Call) -> None:
        await call.ask(endpoint(peer.base_url, api_key=None, key_env="ACME_KEY"))

    error, peer, _ = run([[http(said())]], ask)
    assert isinstance(error, KeyMissingError)
    assert "ACME_KEY" in error.message
    assert peer.requests == []


def test_a_refused_connection_names_host_and_port() -> None:
    async def ask(_: BytePeer, call: Call) -> None:
        await call.ask(endpoint("http://127.0.0.1:9/v1"))

    error, _, call = run([[]], ask)
    assert error.code == "LLM_UPSTREAM_ERROR"
    assert "127.0.0.1:9" in error.message
    assert "refused" in error.message
    assert len(call.sleeps.asked_s) == 5


def test_a_name_that_does_not_resolve_is_named() -> None:
    async def ask(_: BytePeer, call: Call) -> None:
        await call.ask(endpoint("http://no-such-host.invalid/v1"))

    error, _, _ = run([[]], ask, call=Call(retry=RetryPolicy(max_retries=0)))
    assert error.code == "LLM_UPSTREAM_ERROR"
    assert "no-such-host.invalid:80" in error.message


def test_cancelling_a_silent_call_closes_its_socket() -> None:
    async def ask(peer: BytePeer, call: Call) -> bool:
        task = asyncio.create_task(call.ask(endpoint(peer.base_url)))
        while not peer.requests:
            await asyncio.sleep(0.001)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        await asyncio.wait_for(peer.closed_by_client.wait(), 1.0)
        return True

    outcome, _, _ = run([["hold"]], ask)
    assert outcome is True


@pytest.mark.parametrize("api", ["anthropic-messages", "openai-completions", "openai-responses"])
def test_pings_and_comments_do_not_hold_off_the_idle_timer(api: str) -> None:
    ping = b': still here\n\nevent: ping\ndata: {"type": "ping"}\n\n'
    start = {"type": "message_start", "message": {}}
    begun = {"type": "response.created"}
    first = {"anthropic-messages": start, "openai-responses": begun}.get(api, chat({"content": "x"}))
    script = [stream_head() + sse(first), *[ping, 0.03] * 40, "hold"]
    call = Call(timeouts=Timeouts(idle_s=0.2), retry=RetryPolicy(max_retries=0))
    error, _, _ = run([script], call=call, api=api)
    assert error.code == "LLM_STALLED"


def test_a_peer_that_never_begins_is_stalled() -> None:
    call = Call(timeouts=Timeouts(first_byte_s=0.1), retry=RetryPolicy(max_retries=0))
    error, _, _ = run([["hold"]], call=call)
    assert (error.code, error.exit_code) == ("LLM_STALLED", 69)


def test_the_diagnostic_lines_hold_no_key() -> None:
    _, _, call = run([[http(b"{}", status="401 No")]])
    assert call.lines
    assert all("sk-test-key" not in line for line in call.lines)


def test_what_a_failed_attempt_cost_is_kept() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1}
    broken = stream_head() + sse(chat({"content": "He"}, usage=usage))
    answer, _, _ = run([[broken, "close"], [http(said())]])
    assert answer.failed_usage == (Usage(input_tokens=10),), "what was said after the count is not known"
    assert answer.usage == Usage(input_tokens=9, output_tokens=2)
    error, _, _ = run([[broken, "close"]], call=Call(retry=RetryPolicy(max_retries=1)))
    assert error.details["failed_usage"] == (Usage(input_tokens=10),) * 2
    whole = stream_head() + sse(chat({}, finish="content_filter", usage=usage))
    error, _, _ = run([[whole, "close"]], call=Call(retry=RetryPolicy(max_retries=0)))
    assert error.details["failed_usage"] == (Usage(input_tokens=10, output_tokens=1),)


def test_what_a_failed_attempt_said_was_not_free() -> None:
    broken = stream_head() + sse(chat({"content": "He"}))
    answer, _, _ = run([[broken, "close"], [http(said())]])
    assert answer.failed_usage == (Usage(),)
    silent, _, _ = run([[http(b"{}", status="503 No")], [http(said())]])
    assert silent.failed_usage == ()
