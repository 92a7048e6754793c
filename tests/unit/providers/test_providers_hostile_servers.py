"""Servers that mean harm, over real sockets, in every format: none can hang a call, fill the memory, learn a key."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.assembly import MAX_CONTENT, CallPart, Draft
from mcode_exec.providers.client import RetryPolicy, Timeouts
from mcode_exec.providers.payload import PayloadError, decode
from mcode_exec.providers.reading import MAX_ANSWER_BYTES, assembled, judged
from mcode_exec.providers.sending import wire_module
from mcode_exec.providers.sse import SseEvent
from mcode_exec.records.history import Message, TextBlock, ToolCallBlock
from tests.unit.providers.byte_peer import (
    APIS,
    BytePeer,
    Call,
    Script,
    answered,
    delta,
    endpoint,
    http,
    request,
    run,
    sse,
    stream_head,
)

ONCE = RetryPolicy(max_retries=0)
SHORT = Timeouts(connect_s=2.0, first_byte_s=0.3, idle_s=0.3)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"

each_format = pytest.mark.parametrize("api", APIS)


def failed(script: Script, api: str, **limits: float) -> ModelCallError:
    timeouts = msgspec.structs.replace(SHORT, **limits)
    error, _, _ = run([script], call=Call(retry=ONCE, timeouts=timeouts), api=api)
    assert isinstance(error, ModelCallError), error
    assert error.message.isprintable()
    return error


# without end


def endless(api: str) -> dict[str, tuple[bytes, Callable[[], bytes]]]:
    """How an answer begins, and what follows for ever."""
    error = b"HTTP/1.1 400 No\r\ncontent-type: application/json\r\n\r\n"
    event = sse(delta(api, "x" * 50_000))
    call = {
        "anthropic-messages": {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "a", "name": "b"},
        },
        "openai-completions": {
            "choices": [{"delta": {"tool_calls": [{"id": "ID", "function": {"name": "b"}}]}}]
        },
        "openai-responses": {
            "type": "response.output_item.added",
            "output_index": "ID",
            "item": {"type": "function_call", "call_id": "ID", "name": "b"},
        },
    }[api]
    calls = sse(call)
    numbers = iter(range(10**9))
    return {
        "headers": (b"HTTP/1.1 200 OK\r\n", lambda: b"x-more: y\r\n" * 1000),
        "one header": (b"HTTP/1.1 200 OK\r\nx-more: ", lambda: b"y" * 65536),
        "interim answers": (b"", lambda: b"HTTP/1.1 103 Hints\r\n\r\n" * 100),
        "an event": (HEAD + b"data: ", lambda: b"x" * 65536),
        "an event of many lines": (HEAD, lambda: b"data: xy\n" * 8192),
        "a comment": (HEAD + b":", lambda: b"x" * 65536),
        "a JSON body": (
            HEAD.replace(b"text/event-stream", b"application/json") + b'{"a":"',
            lambda: b"x" * 65536,
        ),
        "an HTML body": (HEAD.replace(b"text/event-stream", b"text/html") + b"<html>", lambda: b"x" * 65536),
        "an error body": (error, lambda: b"x" * 65536),
        "blanks": (HEAD, lambda: b" " * 65536),
        "text": (HEAD, lambda: event),
        "calls": (HEAD, lambda: b"".join(calls.replace(b"ID", b"%d" % next(numbers)) for _ in range(100))),
        "a bomb": (
            HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
            + gzip.compress(b"data: " + b"x" * 10**8, 1),
            lambda: b"",
        ),
    }


ENDLESS = tuple(endless(APIS[0]))


@asynccontextmanager
async def endless_server(api: str) -> AsyncIterator[str]:
    """Answers `/KIND/v1/…` with what that kind begins with, and then for ever; the address."""
    kinds = endless(api)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            begin, more = kinds[ENDLESS[int(head.split(b"/")[1])]]
            writer.write(begin)
            while True:
                writer.write(more())
                await writer.drain()
                await asyncio.sleep(0)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.sleep(0.05)


#: asks every kind one after the other; says how each ended, and by how many KiB the process grew at most
_CHILD = """
import asyncio, json, sys
from mcode_exec.errors import ModelCallError
from mcode_exec.providers.assembly import MAX_CONTENT, CallPart, Draft
from mcode_exec.providers.client import RetryPolicy, Timeouts
from tests.unit.providers.byte_peer import Call, answered, endpoint

def peak():
    with open("/proc/self/status") as file:
        return int(file.read().split("VmHWM:")[1].split()[0])

async def main(address, api, count):
    ends, before = [], peak()
    for number in range(count):
        call = Call(retry=RetryPolicy(max_retries=0), timeouts=Timeouts(first_byte_s=20.0, idle_s=20.0))
        try:
            ends.append(repr(await call.ask(endpoint(f"{address}/{number}/v1", api))))
        except ModelCallError as error:
            ends.append(error.code)
        await call.client.close()
    print(json.dumps([ends, peak() - before]))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@each_format
def test_what_has_no_end_neither_holds_a_call_nor_fills_the_memory(api: str) -> None:
    async def main() -> tuple[list[str], int]:
        async with endless_server(api) as address:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _CHILD,
                address,
                api,
                str(len(ENDLESS)),
                stdout=asyncio.subprocess.PIPE,
                cwd=Path(__file__).parents[3],
            )
            out, _ = await child.communicate()
            ends, grown_kib = json.loads(out)
            return ends, grown_kib

    ends, grown_kib = asyncio.run(main())
    assert dict(zip(ENDLESS, ends, strict=True)) == {
        **dict.fromkeys(ENDLESS, "LLM_BAD_RESPONSE"),
        "an error body": "LLM_BAD_REQUEST",
    }
    # a largest event or body in pieces, joined and decoded; and a whole answer's text
    assert grown_kib * 1024 < 3 * MAX_ANSWER_BYTES


@pytest.mark.parametrize("part", ["text", "thinking", "arguments"])
def test_an_answer_holds_no_more_characters_than_any_model_writes(part: str) -> None:
    draft, call, piece = Draft(lambda _fact: None, "acme"), CallPart(), "x" * (MAX_CONTENT // 16)

    def add() -> None:
        if part == "text":
            draft.add_text(piece)
        elif part == "thinking":
            draft.add_thinking(piece, "reasoning")
        else:
            draft.add_arguments(call, piece)

    for _ in range(16):
        add()
    with pytest.raises(ModelCallError, match="more than 16777216 characters"):
        add()


# slow


@each_format
@pytest.mark.parametrize(
    "drops",
    [
        [b"H", b"T", b"T", b"P"] * 20,
        [HEAD[:-2], *[b"a", b":", b"b", b"\r\n"] * 20],
        [HEAD, *[b":", b" ", b"x", b"\n"] * 20],
        [HEAD, *[b"d", b"a", b"t", b"a", b":", b" ", *[b"x"] * 80]],
        [HEAD.replace(b"text/event-stream", b"application/json") + b"{", *[b" "] * 80],
    ],
)
def test_what_comes_byte_by_byte_holds_off_no_timer(api: str, drops: list[bytes]) -> None:
    script: list[Any] = [piece for drop in drops for piece in (drop, 0.02)]
    if drops[0] == b"H":
        assert failed([*script, "hold"], api).code in ("LLM_STALLED", "LLM_BAD_RESPONSE")
    else:
        assert failed([*script, "hold"], api).code == "LLM_STALLED"


@each_format
def test_an_answer_that_goes_on_for_ever_is_given_up(api: str) -> None:
    script: list[Any] = [stream_head(), *[sse(delta(api, "x")), 0.02] * 100]
    error = failed([*script, "hold"], api, answer_s=0.3)
    assert (error.code, error.message) == ("LLM_STALLED", "the provider's answer did not end within 0.3 s")


@each_format
def test_a_server_that_never_reads_the_request_is_stalled(api: str) -> None:
    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0.6)
        writer.transport.abort()

    async def main() -> ModelCallError:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        call = Call(retry=ONCE, timeouts=SHORT)
        big = Message(role="user", content=(TextBlock(text="x" * 20_000_000),))
        where = endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", api)
        try:
            with pytest.raises(ModelCallError) as caught:
                await call.ask(where, request(big))
            return caught.value
        finally:
            await call.client.close()
            server.close()
            await asyncio.sleep(0.3)

    assert asyncio.run(main()).code == "LLM_STALLED"


# broken off


def begun(api: str) -> Iterator[bytes]:
    """An answer as far as it may have come when it breaks."""
    body = answered(api)
    yield b""
    yield b"HTTP/1.1 2"
    yield HEAD[:-2]
    yield HEAD
    yield HEAD + body[: len(body) // 3]
    yield b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n" + body[:60]
    yield b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:"


@each_format
@pytest.mark.parametrize("end", ["reset", "close"])
def test_a_connection_that_breaks_anywhere_is_dialled_again(api: str, end: str) -> None:
    for begin in begun(api):
        answer, peer, _ = run([[begin, 0.01, end], [http(answered(api))]], api=api)
        assert answer.content == (TextBlock(text="done"),), begin
        assert answer.retries == 1
        assert len(peer.requests) == 2


# not what they seem


@each_format
def test_bytes_that_are_no_text_become_text_or_an_error(api: str) -> None:
    bad = b"a\xff\xfe\xed\xa0\x80z"
    good = answered(api, "aQz")
    answer, _, _ = run([[http(good.replace(b"Q", b"\xff\xfe"))]], api=api)
    assert answer.content == (TextBlock(text="a\ufffd\ufffdz"),)
    # in an event's name, in a comment, in a header
    odd = http(
        b": " + bad + b"\n\n" + b"event: " + bad + b"\ndata: {}\n\n" + good, extra="x-odd: \xff\xfe\r\n"
    )
    answer, _, _ = run([[odd]], api=api)
    assert answer.content == (TextBlock(text="aQz"),)
    for answer_bytes in (
        http(b'{"error":{"message":"' + bad + b'"}}', status="400 No", kind="application/json"),
        http(bad, status="400 No"),
        http(sse("{}").replace(b"{}", b'{"error":{"message":"' + bad + b'"}}')),
        http(b'{"x":"' + bad + b'"}', kind="application/json"),
        http(bad),
        http(b"data: " + bad + b"\n\n"),
    ):
        failed([answer_bytes], api)


@each_format
def test_a_request_id_cannot_write_to_the_terminal(api: str) -> None:
    body = {
        "type": "error",
        "request_id": "\x1b[31mred\n",
        "error": {"type": "x", "message": "\x1b]0;t\x07m"},
    }
    error = failed([http(msgspec.json.encode(body), status="400 No", kind="application/json")], api)
    assert error.request_id is not None
    assert error.request_id.isprintable()
    error = failed([http(b"{}", status="400 No", extra="x-request-id: \x1b[31mred\r\n")], api)
    assert error.request_id == "\\x1b[31mred"


@each_format
@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"]
)
def test_a_redirect_to_another_host_takes_no_key_there(api: str, status: str) -> None:
    async def main() -> tuple[Any, BytePeer, BytePeer]:
        async with BytePeer([http(answered(api))]) as other:
            target = f"location: http://localhost:{other.port}/v1/chat/completions\r\n"
            async with BytePeer([http(b"", status=status, extra=target)]) as peer:
                call = Call(retry=ONCE)
                try:
                    await call.ask(endpoint(peer.base_url, api))
                except ModelCallError as error:
                    return error, peer, other
                finally:
                    await call.client.close()
        raise AssertionError("it was followed")

    error, peer, other = asyncio.run(main())
    assert (error.code, other.connections, len(peer.requests)) == ("LLM_BAD_RESPONSE", 0, 1)
    assert "sk-test-key" not in error.message


# deep

#: an event or body of each format with a place for anything
PLACES = {
    "anthropic-messages": [
        '{"type":"message_start","message":{"usage":@}}',
        '{"type":"error","error":@}',
        '{"type":"error","error":{"message":@}}',
        '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"b","input":@}}',
        '{"type":"content_block_start","index":@,"content_block":{"type":"text","text":"x"}}',
        '{"type":"message_delta","delta":@,"usage":@}',
        '{"content":[{"type":"tool_use","id":"a","name":"b","input":@}]}',
    ],
    "openai-completions": [
        '{"choices":[{"delta":{"content":"x"}}],"usage":@}',
        '{"error":@}',
        '{"error":{"message":@,"details":@}}',
        '{"choices":[{"delta":@}]}',
        '{"choices":[{"delta":{"content":@}}]}',
        '{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"b","arguments":@}}]}}]}',
        '{"choices":[{"delta":{"content":"x","reasoning_details":[@]}}]}',
        '{"choices":[{"delta":{"tool_calls":[{"id":"a","extra_content":@,"function":{"name":"b"}}]}}]}',
        '{"base_resp":{"status_code":@}}',
    ],
    "openai-responses": [
        '{"type":"response.completed","response":{"status":"completed","usage":@,"output":[]}}',
        '{"type":"response.failed","response":{"error":@}}',
        '{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","name":"b","arguments":@}}',
        '{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":@}}',
        '{"type":"response.completed","response":{"output":[@]}}',
        '{"type":"error","error":@}',
    ],
}
#: around the limits of ours, around the one of the interpreter, and beyond all
DEPTHS = [100, 127, 129, 250, 257, 600, *range(880, 1000, 6), 100_000]


@each_format
@pytest.mark.parametrize("level", ['{"a":|1|}', "[|1|]", '[{"a":|1|}]'])
def test_no_depth_of_json_breaks_anything(api: str, level: str) -> None:
    begin, leaf, end = level.split("|")
    for place in PLACES[api]:
        for depth in DEPTHS:
            raw = place.replace("@", begin * depth + leaf + end * depth).encode()
            for is_event in (True, False):
                reader = wire_module(api).Reader(lambda _fact: None, "acme", [], 0)  # type: ignore[arg-type]
                try:
                    reader.feed(SseEvent("", raw)) if is_event else reader.feed_body(decode(raw))
                    answer = judged(assembled(reader, []), request(), may_be_empty=True)
                except (ModelCallError, PayloadError):
                    continue
                kept = msgspec.json.encode(Message(role="assistant", content=answer.content))
                again = msgspec.json.decode(kept, type=Message)
                wire_module(api).encode(request(again), endpoint("http://h/v1", api))  # type: ignore[arg-type]


@each_format
def test_arguments_of_any_depth_are_kept_as_broken(api: str) -> None:
    text = json.dumps("[" * 100_000)[1:-1]
    events = {
        "anthropic-messages": [
            {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "b"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            {"type": "message_stop"},
        ],
        "openai-completions": [
            {"choices": [{"delta": {"tool_calls": [{"id": "a", "function": {"name": "b", "arguments": text}}]}}]},
            "[DONE]",
        ],
        "openai-responses": [
            {"type": "response.output_item.done", "output_index": 0,
             "item": {"type": "function_call", "call_id": "a", "name": "b", "arguments": text}},
            {"type": "response.completed", "response": {"status": "completed", "output": []}},
        ],
    }  # fmt: skip
    answer, _, _ = run([[http(sse(*events[api]))]], api=api)
    (call,) = answer.content
    assert isinstance(call, ToolCallBlock)
    assert (call.arguments, call.broken_arguments) == ({}, text)


#: 1,000,001 values, written in a few bytes each; in memory they take many times that
WIDE = {what: f"[{(what + ',') * 1_000_000}{what}]" for what in ("[]", "{}", "1", '""', r'"\ud800"')}


@each_format
@pytest.mark.parametrize("what", WIDE)
def test_an_event_or_body_of_more_values_than_any_answer_has_is_refused_before_they_are_made(
    api: str, what: str
) -> None:
    begun = json.dumps(delta(api, "x")).encode()
    wide = b'{"x":' + WIDE[what].encode() + b"," + begun[1:]
    reader = wire_module(api).Reader(lambda _fact: None, "acme", [], 0)  # type: ignore[arg-type]
    with pytest.raises(ModelCallError, match="of more than 1,000,000 values") as caught:
        reader.feed(SseEvent("", wide))
    assert caught.value.code == "LLM_BAD_RESPONSE"
    assert failed([http(wide, kind="application/json")], api).code == "LLM_BAD_RESPONSE"


@each_format
@pytest.mark.parametrize("text", ["[{,", '\\"[{,', "\\\\"])
def test_marks_of_json_inside_of_a_text_are_no_values(api: str, text: str) -> None:
    answer, _, _ = run([[http(answered(api, text * 400_000))]], api=api)
    assert answer.content == (TextBlock(text=text * 400_000),)


def test_what_never_ends_is_gone_through_once() -> None:
    for text in (
        '["' + '\\"[,' * 1_000_000,
        '["' + '\\"[,' * 1_000_000 + "\\",
        '"' * 3_000_001 + "," * 2_000_000,
    ):
        for data in (text, text.encode()):
            with pytest.raises(PayloadError):
                decode(data)


@pytest.mark.parametrize("what", ["[]", "1"])
def test_arguments_of_more_values_than_any_call_has_are_kept_as_broken(what: str) -> None:
    call = CallPart()
    call.pieces.append(f'{{"a":{WIDE[what]}}}')
    block = call.block("acme")
    assert isinstance(block, ToolCallBlock)
    assert (block.arguments, block.broken_arguments) == ({}, call.arguments_text)


def test_details_and_blocks_that_are_only_begun_are_counted_too() -> None:
    details = [{"type": "reasoning.text", "index": number} for number in range(5000)]
    chat = {"choices": [{"delta": {"reasoning_details": details}}]}
    blocks = [
        {"type": "content_block_start", "index": number, "content_block": {"type": "text", "text": ""}}
        for number in range(5000)
    ]
    assert "more than 4096 blocks" in failed([http(sse(chat))], "openai-completions").message
    assert "more than 4096 blocks" in failed([http(sse(*blocks))], "anthropic-messages").message


def test_an_error_body_of_any_depth_is_an_error() -> None:
    for depth in DEPTHS:
        body = b'{"error":' * depth + b"1" + b"}" * depth
        error = failed([http(body, status="400 No", kind="application/json")], APIS[0])
        assert error.code == "LLM_BAD_REQUEST"
