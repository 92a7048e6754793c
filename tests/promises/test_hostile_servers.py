"""A server that means harm, met by the real command: it ends, its memory stays bounded, no key goes elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.mcode import KEY, Mcode, Run
from tests.support.peer import Peer
from tests.support.steps import call, raw, say, status
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES
from tests.unit.providers.test_providers_hostile_servers import ENDLESS, endless_server

JSON = ("--output-format", "json")


@contextmanager
def hostile(api: str) -> Iterator[str]:
    """The address of a server whose answers have no end, on a thread of its own."""
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    addresses: list[str] = []

    async def main() -> None:
        async with endless_server(api) as address:
            addresses.append(address)
            ready.set()
            await stop.wait()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:  # who served a run that is gone must not outlive the loop
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def peak_kib(pid: int) -> int:
    """The most memory that a process has had; 0 while it is still a copy of this one."""
    try:
        if Path(f"/proc/{pid}/cmdline").read_bytes() == Path("/proc/self/cmdline").read_bytes():
            return 0
        found = Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()
    except OSError:
        return 0
    return int(found[0]) if found else 0


@pytest.mark.parametrize(
    ("api", "kind", "code"),
    [
        (ANTHROPIC, "an event", 3),
        (CHAT, "text", 3),
        (RESPONSES, "a JSON body", 3),
        (CHAT, "an error body", 4),
        (ANTHROPIC, "headers", 3),
        (RESPONSES, "a bomb", 3),
    ],
)
def test_an_answer_without_end_ends_the_run_within_bounds(
    mcode: Mcode, api: str, kind: str, code: int
) -> None:
    with hostile(api) as address:
        mcode.configure(api=api, base_url=f"{address}/{ENDLESS.index(kind)}/v1")
        running = mcode.start("exec", "go", *JSON)
        peak = 0
        while running.process.poll() is None:
            peak = max(peak, peak_kib(running.process.pid))
        run = running.finish()
    assert run.code == code, run.err
    assert ("(LLM_BAD_RESPONSE" if code == 3 else "(LLM_BAD_REQUEST") in run.err
    assert peak < 600 * 1024


def test_an_event_of_millions_of_values_is_refused_with_a_result_and_little_memory(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    peer.script(raw(b'data: {"x":[' + b"[]," * 9_000_000 + b"[]]}\n\n"))
    running = mcode.start("exec", "go", *JSON, "--result", "r.json")
    peak = 0
    while running.process.poll() is None:
        peak = max(peak, peak_kib(running.process.pid))
    run = running.finish()
    assert run.code == 3, run.err
    assert run.result["error"]["code"] == "LLM_BAD_RESPONSE"
    assert "of more than 1,000,000 values" in run.result["error"]["message"]
    assert (mcode.workspace / "r.json").read_text() == run.out
    assert peak < 300 * 1024


def ended(mcode: Mcode, *, code: int) -> Run:
    run = mcode.exec("go", *JSON, "-v").check(code)
    assert KEY not in run.out + run.err
    return run


def test_a_redirect_to_another_host_takes_no_key_there(mcode: Mcode, peer: Peer, api: str) -> None:
    with Peer(say("you should not be here")) as other:
        for number in (301, 302, 307, 308):
            target = other.url.replace("127.0.0.1", "localhost")
            peer.script(status(number, "", {"location": f"{target}/messages?key={KEY}"}))
            run = ended(mcode, code=3)
            assert "which is not followed" in run.result["error"]["message"]
        assert other.requests == []


def test_nothing_that_a_server_sends_reaches_the_terminal_raw(mcode: Mcode, peer: Peer) -> None:
    escape = "\x1b]0;title\x07\x1b[2J"
    body = {
        "type": "error",
        "request_id": f"req{escape}",
        "error": {"type": "invalid_request_error", "message": f"bad {escape}"},
    }
    peer.script(status(400, body))
    shown = mcode.exec("go", "-v").check(4)
    assert "\x1b" not in shown.out + shown.err
    assert "\x07" not in shown.err
    found = ended(mcode, code=4).result["error"]
    assert found["requestId"].isprintable()


def test_a_header_cannot_write_to_the_terminal_either(mcode: Mcode, peer: Peer) -> None:
    head = b"HTTP/1.1 400 No\r\nrequest-id: \x1b[31mred\r\ncontent-length: 0\r\n\r\n"
    peer.script(raw(head, with_head=False))
    shown = mcode.exec("go", "-v").check(4)
    assert "\x1b" not in shown.out + shown.err
    assert ended(mcode, code=4).result["error"]["requestId"] == "\\x1b[31mred"


def test_deep_json_in_an_error_is_an_error_of_the_provider(mcode: Mcode, peer: Peer) -> None:
    """Depths that an interpreter can just read, and can no longer write."""
    for depth in (300, 850, 900, 930, 950, 970, 985, 100_000):
        deep = '{"type":"error","error":' * depth + "1" + "}" * depth
        peer.script(status(400, deep.encode()))
        assert ended(mcode, code=4).result["error"]["code"] == "LLM_BAD_REQUEST"


def test_arguments_of_any_depth_are_refused_and_the_run_goes_on(mcode: Mcode, peer: Peer, api: str) -> None:
    depths = (100, 140, 300, 900, 960, 100_000)
    # beside a good call each, so that nothing looks like a loop
    asked = [
        call("bash", '{"command":' * depth + '"ls"' + "}" * depth)
        + call("bash", {"command": f"echo {depth}"})
        for depth in depths
    ]
    peer.script(*asked, say("done"))
    run = mcode.exec("go", *JSON).check()
    assert run.result["toolErrors"] == len(depths)
    # what is kept of them goes back as a valid history, now and in the next turn
    peer.script(say("on"))
    mcode.exec("go on", "--continue").check()
    assert not [request.violations for request in peer.calls if request.violations]
