"""The scripted model server does on the wire what its script says."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, IncompleteRead, RemoteDisconnected
from typing import Any

import pytest

from tests.support.mcode import REPOSITORY
from tests.support.peer import Peer
from tests.support.steps import (
    CLOSE_EARLY,
    CUT,
    MID_CHUNK,
    MID_EVENT,
    RESET,
    Gate,
    answer,
    call,
    close,
    cut_after,
    drip,
    forever,
    gated,
    gzipped,
    hang,
    raw,
    reset,
    say,
    split_everywhere,
    stall_after,
    status,
    stream_error,
    think,
)
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES

PATHS = {ANTHROPIC: "/v1/messages", CHAT: "/v1/chat/completions", RESPONSES: "/v1/responses"}
ASKED = [{"role": "user", "content": "hi"}]


def body_for(api: str, **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "m", "stream": True, "max_tokens": 9}
    body["input" if api == RESPONSES else "messages"] = ASKED
    return {**body, **fields}


class Client:
    """One keep-alive connection."""

    def __init__(self, peer: Peer) -> None:
        self.connection = HTTPConnection("127.0.0.1", peer.port, timeout=5)

    def post(self, path: str, body: Any) -> tuple[int, bytes]:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request("POST", path, sent, {"content-type": "application/json"})
        response = self.connection.getresponse()
        return response.status, response.read()

    def ask(self, api: str, **fields: Any) -> tuple[int, bytes]:
        return self.post(PATHS[api], body_for(api, **fields))


@pytest.fixture
def client(peer: Peer) -> Iterator[Client]:
    one = Client(peer)
    yield one
    one.connection.close()


def datas(stream: bytes) -> list[Any]:
    """Data of each event, `[DONE]` left out."""
    lines = [line[6:] for line in stream.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_text_and_parallel_calls_arrive_whole_in_each_format(api: str, peer: Peer, client: Client) -> None:
    peer.script(
        think("hm") + say("naïve 漢字") + call("a", {"x": 1}, call_id="i1") + call("b", "{", call_id="i2")
    )
    code, stream = client.ask(api)
    assert code == 200
    found = {"text": "", "thinking": "", "i1": "", "i2": ""}
    ids: dict[int, str] = {}
    for one in datas(stream):
        _collect(one, found, ids)
    assert found == {"text": "naïve 漢字", "thinking": "hm", "i1": '{"x": 1}', "i2": "{"}


def _collect(one: dict[str, Any], found: dict[str, str], ids: dict[int, str]) -> None:
    kind = one.get("type")
    if kind == "content_block_start" and one["content_block"]["type"] == "tool_use":
        ids[one["index"]] = one["content_block"]["id"]
    elif kind == "content_block_delta":
        delta = one["delta"]
        found["text"] += delta.get("text", "")
        found["thinking"] += delta.get("thinking", "")
        if "partial_json" in delta:
            found[ids[one["index"]]] += delta["partial_json"]
    elif kind == "response.output_text.delta":
        found["text"] += one["delta"]
    elif kind == "response.reasoning_summary_text.delta":
        found["thinking"] += one["delta"]
    elif kind == "response.output_item.added" and one["item"]["type"] == "function_call":
        ids[one["output_index"]] = one["item"]["call_id"]
    elif kind == "response.function_call_arguments.delta":
        found[ids[one["output_index"]]] += one["delta"]
    elif one.get("object") == "chat.completion.chunk" and one["choices"]:
        delta = one["choices"][0]["delta"]
        found["text"] += delta.get("content") or ""
        found["thinking"] += delta.get("reasoning_content", "")
        for piece in delta.get("tool_calls", ()):
            ids.setdefault(piece["index"], piece.get("id", ""))
            found[ids[piece["index"]]] += piece["function"]["arguments"]


def test_finish_and_usage_are_told_in_each_providers_words(peer: Peer, client: Client) -> None:
    usage = {"input": 10, "output": 5, "reasoning": 2, "cache_read": 3, "cache_write": 1}
    peer.script(forever(answer(say("x"), usage=usage, finish="length")))
    first, *_, ended = datas(client.ask(ANTHROPIC)[1])[:-1]
    assert first["message"]["usage"]["input_tokens"] == 10
    assert (ended["delta"]["stop_reason"], ended["usage"]["output_tokens"]) == ("max_tokens", 7)
    *_, finish, told = datas(client.ask(CHAT, stream_options={"include_usage": True})[1])
    assert finish["choices"][0]["finish_reason"] == "length"
    assert (told["usage"]["prompt_tokens"], told["usage"]["completion_tokens"]) == (14, 7)
    assert told["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    last = datas(client.ask(RESPONSES)[1])[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["usage"]["total_tokens"] == 21
    peer.script(answer(say("x"), usage=None))
    assert not any(
        "usage" in one for one in datas(client.ask(CHAT, stream_options={"include_usage": True})[1])
    )


def test_a_request_without_stream_gets_one_body(api: str, peer: Peer, client: Client) -> None:
    peer.script(say("plain") + call("bash", {"command": "ls"}))
    told = json.loads(client.ask(api, stream=False)[1])
    assert "plain" in json.dumps(told)
    assert "bash" in json.dumps(told)


def test_split_and_gzip_change_nothing_but_the_way(api: str, peer: Peer, client: Client) -> None:
    peer.script(forever(say("漢字 hello")))
    plain = client.ask(api)[1]
    peer.script(forever(split_everywhere("漢字 hello")))
    assert client.ask(api)[1] == plain
    peer.script(forever(gzipped("漢字 hello")))
    assert gzip.decompress(client.ask(api)[1]) == plain


@pytest.mark.parametrize("ending", [CUT, MID_CHUNK])
def test_a_cut_stream_is_an_incomplete_body(api: str, ending: str, peer: Peer, client: Client) -> None:
    peer.script(cut_after("half", ending))
    with pytest.raises(IncompleteRead) as failed:
        client.ask(api)
    assert b"half" in failed.value.partial


@pytest.mark.parametrize("ending", [CLOSE_EARLY, MID_EVENT])
def test_a_clean_end_without_the_terminal_event(api: str, ending: str, peer: Peer, client: Client) -> None:
    peer.script(cut_after("half", ending))
    stream = client.ask(api)[1]
    assert b"half" in stream
    for terminal in (b"message_stop", b'stop_reason": "', b"[DONE]", b'"finish_reason": "stop"'):
        assert terminal not in stream
    assert not stream.endswith(b"\n\n") or ending == CLOSE_EARLY


def test_resets_and_closes(peer: Peer) -> None:
    for step, error in ((reset(), ConnectionResetError), (close(), RemoteDisconnected)):
        client = Client(peer)
        peer.script(step)
        with pytest.raises(error):
            client.ask(ANTHROPIC)
        client.connection.close()
    peer.script(cut_after("half", RESET))
    client = Client(peer)
    with pytest.raises((ConnectionResetError, IncompleteRead)):
        client.ask(ANTHROPIC)
    client.connection.close()


@pytest.mark.parametrize("step", [hang(), stall_after("half")])
def test_silence_lasts_until_the_client_goes_and_that_is_noted(step: Any, peer: Peer, client: Client) -> None:
    peer.script(step)
    client.connection.timeout = 0.2
    with pytest.raises(TimeoutError):
        client.ask(ANTHROPIC)
    assert peer.last.gone_s is None
    client.connection.close()
    deadline = time.monotonic() + 5
    while peer.last.gone_s is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert peer.last.gone_s is not None


def test_steps_go_in_order_and_the_last_repeats(peer: Peer, client: Client) -> None:
    peer.script(status(429, {"error": {}}, {"retry-after": "1"}), lambda request: say(request.json["model"]))
    assert client.ask(CHAT) == (429, b'{"error": {}}')
    for model in ("one", "two"):
        assert model in json.dumps(datas(client.ask(CHAT, model=model)[1]))
    peer.script(forever(status(503)), say("never"))
    assert [client.ask(CHAT)[0] for _ in range(3)] == [503] * 3
    assert [one.connection for one in peer.calls] == [1] * 6


def test_an_error_inside_a_stream_stands_where_its_end_should_be(
    api: str, peer: Peer, client: Client
) -> None:
    peer.script(stream_error("overloaded_error", "Overloaded", after="half"))
    code, stream = client.ask(api)
    assert code == 200
    assert "Overloaded" in json.dumps(datas(stream)[-1])


def test_a_drip_takes_its_time(peer: Peer, client: Client) -> None:
    peer.script(drip(answer(say("abcdef"), piece=1), 0.02))
    begun_s = time.monotonic()
    client.ask(CHAT)
    assert time.monotonic() - begun_s > 0.1


def test_a_gate_holds_an_answer_back(peer: Peer, client: Client) -> None:
    gate = Gate()
    peer.script(gated(say("late"), gate))
    got: list[bytes] = []
    asking = threading.Thread(target=lambda: got.append(client.ask(CHAT)[1]))
    asking.start()
    gate.wait_reached()
    assert got == []
    gate.open()
    asking.join(5)
    assert b"late" in got[0]


def test_raw_bytes_go_as_they_are(peer: Peer) -> None:
    peer.script(raw([b"HTTP/1.1 200 OK\r\n", 0.01, b"x: 1\r\n\r\nhel", b"lo"], with_head=False))
    with socket.create_connection(("127.0.0.1", peer.port), 5) as connection:
        sent = json.dumps(body_for(CHAT)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {len(sent)}\r\n\r\n"
        connection.sendall(head.encode() + sent)
        got = b""
        while piece := connection.recv(4096):
            got += piece
    assert got == b"HTTP/1.1 200 OK\r\nx: 1\r\n\r\nhello"


def test_strict_refuses_an_invalid_history_and_keeps_the_step(peer: Peer, client: Client) -> None:
    peer.script(say("fine"), say("next"))
    code, told = client.ask(ANTHROPIC, messages=[*ASKED, *ASKED])
    assert code == 400
    assert json.loads(told)["error"]["type"] == "invalid_request_error"
    assert "roles must alternate" in peer.last.violations[0]
    assert b"fine" in client.ask(ANTHROPIC)[1]
    assert client.post("/v1/chat/completions", b'{"model": "\xff"}')[0] == 400


def test_paths_with_and_without_a_version_and_chunked_bodies(peer: Peer, client: Client) -> None:
    for path in ("/messages", "/v1/messages", "/v1/messages?beta=true", "/x/v1/v1/messages"):
        assert client.post(path, body_for(ANTHROPIC))[0] == 200
    assert client.post("/v1/other", {})[0] == 404
    sent = json.dumps(body_for(CHAT)).encode()
    client.connection.request("POST", "/chat/completions", iter([sent[:9], sent[9:]]), encode_chunked=True)
    assert client.connection.getresponse().read()
    assert peer.last.json == body_for(CHAT)


def test_the_peer_runs_as_a_process_too(tmp_path: Any) -> None:
    script = tmp_path / "script.json"
    steps = [
        {"status": 429, "body": "slow down", "headers": {"retry-after": "0"}},
        {"think": "hm", "say": "from a file", "call": ["bash", {"command": "ls"}], "times": 2},
        {"say": "end", "forever": True},
    ]
    script.write_text(json.dumps({"strict": True, "steps": steps}))
    command = [sys.executable, "-m", "tests.support.peer", str(script)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=-1, stdout=-1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        connection = HTTPConnection("127.0.0.1", int(process.stdout.readline()), timeout=5)
        got = []
        for _ in range(4):
            connection.request("POST", "/v1/chat/completions", json.dumps(body_for(CHAT)))
            got.append(connection.getresponse().read())
        connection.request("GET", "/__requests")
        told = json.loads(connection.getresponse().read())
        connection.close()
        process.stdin.close()
        assert process.wait(5) == 0
    assert got[0] == b"slow down"
    assert [b"from a file" in one for one in got] == [False, True, True, False]
    assert [one["number"] for one in told] == [1, 2, 3, 4]
