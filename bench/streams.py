"""One long answer in each wire format: what reading it costs beside h11 alone, and how soon its tool call starts."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h11
from timing import Row, median, ms, must_succeed, timed, world

DELTAS = 2000
ANSWER_CPU_S = 0.060
BESIDE_HTTP = 1.5
TOOL_START_S = 0.003

_READ_BYTES = 65536
_HERE = Path(__file__).resolve().parent


def run(runs: int) -> list[Row]:
    rows: list[Row] = []
    for api in ("anthropic-messages", "openai-completions", "openai-responses"):
        data = _stream(api)
        with _server(data) as port:
            bare = [asyncio.run(_bare(port)) for _ in range(runs)]
            ours = [asyncio.run(_answer(api, port)) for _ in range(runs)]
        reading = median([_read(api, data) for _ in range(runs)])
        whole = median(ours) / median(bare)
        rows += [
            Row(
                f"{DELTAS} deltas, {api}: CPU of the answer",
                ms(median(ours)),
                "< 60 ms",
                median(ours) < ANSWER_CPU_S,
            ),
            Row(
                "  SSE and assembly, beside h11's event loop on the same bytes",
                f"{reading / median(bare):.2f} x {ms(median(bare))}",
                "< 1.5 x",
                reading / median(bare) < BESIDE_HTTP,
            ),
            Row("  the whole call beside it", f"{whole:.2f} x", "", None),
        ]
    started = _tool_starts(max(3, runs // 4))
    rows.append(
        Row(
            "last byte of the answer → its tool starts",
            ms(median(started)),
            "< 3 ms",
            median(started) < TOOL_START_S,
        )
    )
    return rows


def _stream(api: str) -> bytes:
    from tests.support import wire
    from tests.support.steps import answer, say

    words = "".join(f"word {number:05} " for number in range(DELTAS))
    return b"".join(wire.events(api, answer(say(words), piece=len(words) // DELTAS), {}))


@contextlib.contextmanager
def _server(data: bytes) -> Iterator[int]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        command = [sys.executable, str(_HERE / "stream_server.py"), file.name]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield int(process.stdout.readline())
            process.kill()


async def _bare(port: int) -> float:
    """CPU seconds of the library's own loop: bytes in, events out, nothing done with them."""
    start = time.process_time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = h11.Connection(h11.CLIENT)
    headers = [("host", "x"), ("content-length", "2")]
    for event in (
        h11.Request(method="POST", target="/", headers=headers),
        h11.Data(data=b"{}"),
        h11.EndOfMessage(),
    ):
        writer.write(connection.send(event) or b"")
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ_BYTES))
    writer.close()
    return time.process_time() - start


def _read(api: Any, data: bytes) -> float:
    """CPU seconds of what is done with the bytes of a body: events, deltas, blocks."""
    from mcode_exec.providers.sending import wire_module
    from mcode_exec.providers.sse import SseParser

    told: list[Any] = []
    start = time.process_time()
    parser, reader = SseParser(), wire_module(api).Reader(told.append, "bench", [], 0)
    for at in range(0, len(data), _READ_BYTES):
        for event in parser.feed(data[at : at + _READ_BYTES]):
            reader.feed(event)
    assert reader.is_complete
    reader.finish()
    took_s = time.process_time() - start
    assert len(told) >= DELTAS
    return took_s


async def _answer(api: Any, port: int) -> float:
    """CPU seconds of a whole model call, from the request to the answer."""
    from mcode_exec.clock import SystemClock
    from mcode_exec.providers.client import Endpoint, ModelClient
    from mcode_exec.providers.http import HttpClient
    from mcode_exec.records.history import Message, TextBlock
    from mcode_exec.records.model import ModelInfo, ModelRef, ModelRequest

    info = ModelInfo(
        ref=ModelRef(provider_id="bench", model_id="m"),
        context_tokens=100_000,
        output_tokens=8192,
        price=None,
        source="",
    )
    request = ModelRequest(
        model=info, system="", tools=(), messages=(Message(role="user", content=(TextBlock(text="go"),)),)
    )
    endpoint = Endpoint(
        provider_id="bench", api=api, base_url=f"http://127.0.0.1:{port}", api_key=None, auth="none"
    )
    told: list[Any] = []
    client = ModelClient(transport=HttpClient(environ={}), clock=SystemClock())
    start = time.process_time()
    await client.complete(endpoint, request, told.append)
    took_s = time.process_time() - start
    await client.close()
    assert len(told) >= DELTAS
    return took_s


def _tool_starts(runs: int) -> list[float]:
    """Seconds from the answer's last byte to the start of the tool that it calls; of the second call in a run."""
    from tests.support.steps import call, drip, say

    found: list[float] = []
    with world() as (mcode, peer):
        (mcode.workspace / "one.txt").write_text("text\n")
        command = [sys.executable, str(_HERE / "stamped.py"), "exec", "go"]
        for _ in range(runs):
            peer.requests.clear()
            # a model that answers at once would wait for the rows of the step before, as none does
            calls = [drip(call("read", {"file_path": "one.txt", "offset": line}), 0.01) for line in (1, 2)]
            peer.script(*calls, say("done"))
            ended = must_succeed(timed(command, env=mcode.environment(), cwd=mcode.workspace))
            starts = [float(line.split()[1]) for line in ended.err.splitlines() if line.startswith("tool ")]
            found.append(starts[1] - (peer.calls[1].answered_s or 0.0))
    return found
