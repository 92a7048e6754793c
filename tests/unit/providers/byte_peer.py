"""A peer that reads whole requests and writes exactly the bytes it was told to, one script per answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from mcode_exec.clock import SystemClock
from mcode_exec.providers.client import Endpoint, ModelClient, RetryPolicy, Timeouts
from mcode_exec.providers.http import HttpClient
from mcode_exec.records.history import Message, TextBlock
from mcode_exec.records.model import (
    Answer,
    ModelFact,
    ModelInfo,
    ModelRef,
    ModelRequest,
    ToolSchema,
    WireFormat,
)

#: bytes are written, a number is a pause in seconds, "close" ends, "reset" aborts, "hold" keeps it open in silence
Step = bytes | float | str
Script = Sequence[Step]


class Received(msgspec.Struct):
    head: bytes
    body: bytes
    connection: int

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n")[0].decode()

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def header(self, name: str) -> str | None:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.decode().lower() == name:
                return value.decode().strip()
        return None


class BytePeer:
    """`async with BytePeer(script, script, …)`: the n-th request gets the n-th script, the last one again."""

    def __init__(self, *scripts: Script, context: ssl.SSLContext | None = None) -> None:
        self.scripts = list(scripts)
        self.requests: list[Received] = []
        self.connections = 0
        self.closed_by_client = asyncio.Event()
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> BytePeer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    @property
    def base_url(self) -> str:
        return f"http{'s' if self._context else ''}://127.0.0.1:{self.port}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        try:
            while await self._answer(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            self.closed_by_client.set()
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        received = Received(head, b"", number)
        received.body = await reader.readexactly(int(received.header("content-length") or 0))
        self.requests.append(received)
        script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
        for step in script:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, str):
                if step == "hold":
                    await reader.read()
                    self.closed_by_client.set()
                elif step == "close":
                    writer.close()
                return False
            else:
                await asyncio.sleep(step)
        return True


def http(body: bytes, *, status: str = "200 OK", kind: str = "text/event-stream", extra: str = "") -> bytes:
    """A whole response with a length."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def stream_head(extra: str = "") -> bytes:
    """The head of a response that ends with its connection."""
    return f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n{extra}\r\n".encode()


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def sse(*events: object, name: bool = False) -> bytes:
    """Events as `data:` frames; with `name`, each also names its own `type`."""
    frames = []
    for event in events:
        if isinstance(event, str):
            frames.append(b"data: " + event.encode() + b"\n\n")
            continue
        head = b"event: " + event["type"].encode() + b"\n" if name else b""  # type: ignore[index]
        frames.append(head + b"data: " + msgspec.json.encode(event) + b"\n\n")
    return b"".join(frames)


def chat(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def said(text: str = "done") -> bytes:
    """A complete chat answer."""
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    return sse(chat({"content": text}), chat({}, "stop"), usage, "[DONE]")


APIS: tuple[WireFormat, ...] = ("anthropic-messages", "openai-completions", "openai-responses")


def delta(api: str, text: str) -> dict[str, Any]:
    """An event that brings `text`."""
    if api == "openai-completions":
        return chat({"content": text})
    if api == "openai-responses":
        return {"type": "response.output_text.delta", "output_index": 0, "delta": text}
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


def answered(api: str, text: str = "done") -> bytes:
    """A complete answer in any format."""
    if api == "openai-completions":
        return said(text)
    ends: dict[str, list[object]] = {
        "openai-responses": [
            {"type": "response.completed", "response": {"status": "completed", "output": []}}
        ],
        "anthropic-messages": [
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ],
    }
    return sse(delta(api, text), *ends[api], name=True)


BASH = ToolSchema(
    name="bash",
    description="Run a command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}},
)


def info(model: str = "big-1", provider: str = "acme", **fields: Any) -> ModelInfo:
    values: dict[str, Any] = {
        "ref": ModelRef(provider_id=provider, model_id=model),
        "context_tokens": 100_000,
        "output_tokens": 8_000,
        "price": None,
        "source": "config",
        "takes_images": True,
    }
    return ModelInfo(**(values | fields))


def request(*messages: Message, **fields: Any) -> ModelRequest:
    values: dict[str, Any] = {
        "model": info(),
        "system": "Be brief.",
        "tools": (BASH,),
        "messages": messages or (Message(role="user", content=(TextBlock(text="hi"),)),),
    }
    return ModelRequest(**(values | fields))


def endpoint(base_url: str, api: str = "openai-completions", **fields: Any) -> Endpoint:
    values: dict[str, Any] = {
        "provider_id": "acme",
        "api": api,
        "base_url": base_url,
        "api_key": "sk-test-key",
    }
    return Endpoint(**(values | fields))


class Sleeps:
    """A sleep that only notes what it was asked for, and moves its own clock."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []
        self.now_s = 1000.0

    async def __call__(self, seconds: float) -> None:
        self.asked_s.append(seconds)
        self.now_s += seconds

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    def monotonic_s(self) -> float:
        return self.now_s

    def boot_ms(self) -> int:
        return int(self.now_s * 1000)


class Call:
    """One call against a peer: its facts, its waits, its outcome."""

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.facts: list[ModelFact] = []
        self.sleeps = Sleeps()
        self.lines: list[str] = []
        timeouts = timeouts or Timeouts(connect_s=2.0, first_byte_s=3.0, idle_s=2.0)
        self.client = ModelClient(
            transport=HttpClient(connect_s=timeouts.connect_s, environ=environ or {}),
            timeouts=timeouts,
            retry=retry or RetryPolicy(),
            clock=self.sleeps,
            sleep=self.sleeps,
            rng=lambda: 1.0,
            log=self.lines.append,
        )

    async def ask(self, where: Endpoint, what: ModelRequest | None = None, **options: Any) -> Answer:
        return await self.client.complete(where, what or request(), self.facts.append, **options)


def run(
    scripts: Sequence[Script],
    do: Callable[[BytePeer, Call], Awaitable[Any]] | None = None,
    *,
    api: str = "openai-completions",
    what: ModelRequest | None = None,
    call: Call | None = None,
    provider_id: str = "acme",
    **options: Any,
) -> Any:
    """Answer requests by `scripts` and return (outcome, peer, call); the outcome is an answer or an error."""

    async def main() -> tuple[Any, BytePeer, Call]:
        made = call or Call()
        async with BytePeer(*scripts) as peer:
            try:
                where = endpoint(peer.base_url, api, provider_id=provider_id)
                outcome = await (do(peer, made) if do else made.ask(where, what, **options))
            except Exception as error:  # the outcome under test
                outcome = error
            finally:
                await made.client.close()
            return outcome, peer, made

    return asyncio.run(main())
