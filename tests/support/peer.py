"""The scripted model server: HTTP/1.1 on loopback, answers by script, remembers every request.

`Peer` runs on a thread of its own with its own loop, so that it goes on when the test blocks; `python -m
tests.support.peer script.json` runs it as a process (its port is the first line on stdout, `GET /__requests`
tells what came).  Requests are told apart by path: the three wire formats, with or without `/v1`.  In strict
mode a request with an invalid history is refused with 400 as a real provider would, and consumes no step.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import strict, wire
from tests.support.script import Script, steps_from_json
from tests.support.sending import send
from tests.support.steps import Step, status


@dataclass
class Request:
    """One request as it came, and when."""

    number: int
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int
    #: monotonic seconds: last byte of the request, last byte of the answer, the client's leaving
    arrived_s: float = 0.0
    answered_s: float | None = None
    gone_s: float | None = None
    json: Any = None
    api: str | None = None
    violations: list[str] = field(default_factory=list)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def messages(self) -> list[Any]:
        """The conversation as this wire format carries it."""
        found = self.json.get("input" if self.api == wire.RESPONSES else "messages")
        return found if isinstance(found, list) else [found]

    @property
    def text(self) -> str:
        """The body as text, escapes resolved: for `in`."""
        return json.dumps(self.json, ensure_ascii=False)


class Peer:
    """`with Peer(say("hi")) as peer: … peer.url …`; steps are used in order and the last one repeats."""

    def __init__(self, *steps: Step, strict: bool = False, keep_alive: bool = True) -> None:
        self.strict = strict
        self.keep_alive = keep_alive
        self.requests: list[Request] = []
        self.models: list[str] = ["big-1"]
        self._script = Script(steps)
        self._changed = threading.Condition()
        self._connections = 0
        self._loop = asyncio.new_event_loop()
        self._port = 0
        self._thread = threading.Thread(target=self._serve, name="peer", daemon=True)

    # life

    def start(self, port: int = 0) -> Peer:
        ready = threading.Event()
        self._port = port
        self._ready = ready
        self._thread.start()
        assert ready.wait(10), "the peer did not start"
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(10)

    def __enter__(self) -> Peer:
        return self if self._thread.is_alive() else self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """The base URL as a provider's configuration names it."""
        return f"http://127.0.0.1:{self._port}/v1"

    # script and record

    def script(self, *steps: Step) -> Peer:
        """Forget what is left of the script and go on with `steps`."""
        self._script = Script(steps)
        return self

    @property
    def calls(self) -> list[Request]:
        """The model calls among the requests."""
        return [request for request in self.requests if request.api]

    @property
    def last(self) -> Request:
        return self.calls[-1]

    def wait_for(self, count: int, timeout_s: float = 20.0) -> Request:
        """The request number `count` (from 1), when it has come."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.calls) >= count, timeout_s)
        assert came, f"only {len(self.calls)} of {count} model calls came"
        return self.calls[count - 1]

    def _note(self, request: Request) -> None:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()

    # serving

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()

    async def _main(self) -> None:
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=1 << 26)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(3):  # transports close in the loop's next rounds
            await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        try:
            await self._converse(reader, writer, self._connections)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went, or the peer stops
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        while True:
            request = await read_request(reader, writer, connection, len(self.requests) + 1)
            if request is None:
                return
            self._note(request)
            step = self._step_for(request)
            is_open = await send(step, request, reader, writer, keep_alive=self.keep_alive)
            if not is_open:
                return

    def _step_for(self, request: Request) -> Step:
        if request.method == "GET" and request.path.endswith("/models"):
            return status(200, {"object": "list", "data": [{"id": one} for one in self.models]})
        if request.path == "/__requests":
            return status(200, [as_record(one) for one in self.requests if one.api])
        if request.api is None:
            return status(404, {"error": {"message": f"no such path: {request.path}"}})
        if self.strict and request.violations:
            return status(400, strict.error_body(request.api, request.violations[0]))
        return self._script.next(request)


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int, number: int
) -> Request | None:
    """The next request of a connection, None at its end."""
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    line, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _ = line.split(" ", 2)
    headers = [(name.strip(), value.strip()) for name, _, value in (one.partition(":") for one in lines)]
    lowered = {name.lower(): value for name, value in headers}
    if lowered.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in lowered.get("transfer-encoding", ""):
        body = await _read_chunked(reader)
    else:
        body = await reader.readexactly(int(lowered.get("content-length", "0")))
    request = Request(number, method, path, headers, body, connection, arrived_s=time.monotonic())
    if method == "POST":
        request.api = wire.api_of(path)
        request.json, request.violations = strict.parse(body)
        if request.api and not request.violations:
            request.violations = strict.violations(request.api, request.json)
    return request


async def _read_chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        body += await reader.readexactly(size)
        await reader.readexactly(2)
        if size == 0:
            return body


def as_record(request: Request) -> dict[str, Any]:
    """A request as JSON, for a peer that runs in another process."""
    return {
        "number": request.number,
        "path": request.path,
        "headers": request.headers,
        "bytes": len(request.body),
        "json": request.json,
        "arrivedS": request.arrived_s,
        "answeredS": request.answered_s,
        "violations": request.violations,
    }


def main(arguments: Sequence[str]) -> None:
    """Serve the script in a JSON file (or `-` for one hello) until stdin ends or we are killed."""
    source: Any = [{"say": "hello"}]
    if arguments and arguments[0] != "-":
        source = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    options: Mapping[str, Any] = source if isinstance(source, dict) else {"steps": source}
    peer = Peer(*steps_from_json(options["steps"]), strict=bool(options.get("strict")))
    with peer:
        sys.stdout.write(f"{peer.port}\n")
        sys.stdout.flush()
        try:
            sys.stdin.buffer.read()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
