"""The real command line over an executor that follows a script instead of asking a model.

Run as a program: `python scripted_mcode.py exec …`, with the script's name in `SCRIPT`.  It stands on the other
side of the seam between `cli` and `executor`, so that exits, pipes and signals can be tried without a store.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import types
import warnings
from decimal import Decimal
from typing import Any

from mcode_exec.abort import AbortScope
from mcode_exec.errors import BusyError, ConfigError
from mcode_exec.records.event import Item, ItemCompleted, ItemStarted, ItemUpdated, Notice, PermissionDenied
from mcode_exec.records.model import ModelRef
from mcode_exec.records.result import ErrorInfo, LimitHit, PermissionDenial, Result, ResultUsage
from mcode_exec.redaction import Redactor

SESSION = "mvs_" + "0123456789abcdef" * 2
TURN = "turn_1"


def result_of(invocation: Any, **fields: Any) -> Result:
    base: dict[str, Any] = {
        "run_id": invocation.run_id,
        "session_id": SESSION,
        "turn_id": TURN,
        "status": "succeeded",
        "exit_code": 0,
        "output": os.environ.get("ANSWER", "hello"),
        "model": ModelRef(provider_id="fake", model_id="big-1"),
        "usage": ResultUsage(input_tokens=3, output_tokens=1, total_tokens=4),
        "cost_usd": Decimal("0.00012"),
        "steps": 1,
    }
    return Result(**{**base, **fields})


def aborted(invocation: Any, abort: AbortScope) -> Result:
    status, code = {
        "signal": ("cancelled", 128 + (abort.signum or 0)),
        "deadline": ("timeout", 6),
        "stdout-closed": ("cancelled", 141),
    }[abort.reason or ""]
    info = ErrorInfo(category="runtime", code="TURN_ABORTED", message="aborted", retryable=False)
    return result_of(invocation, status=status, exit_code=code, output=None, partial_output="par", error=info)


async def begin(sink: Any) -> None:
    await sink.preflight()
    await sink.session_known(SESSION)
    await sink.admitted()
    sink.bind(session_id=SESSION, turn_id=TURN)


async def until_aborted(invocation: Any, abort: AbortScope, work: Any) -> Result:
    task = asyncio.get_running_loop().create_task(work)
    abort.bind(task)
    try:
        return await task
    except asyncio.CancelledError:
        return aborted(invocation, abort)
    finally:
        abort.release()


async def hello(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    await begin(sink)
    sink.redact_with(Redactor(["quite-secret-value"]))
    item = Item(id="m:0", type="agent_message", content="")
    await sink.event(ItemStarted(item=item))
    for piece in ("hel", "lo"):
        await sink.event(ItemUpdated(item=Item(id="m:0", type="agent_message", content_delta=piece)))
    await sink.event(ItemCompleted(item=Item(id="m:0", type="agent_message", content="hello")))
    return result_of(invocation)


async def surrogate(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    """The answer's bytes as they are, a lone surrogate among them."""
    await begin(sink)
    return result_of(invocation, output=os.environb[b"ANSWER"].decode("utf-8", "surrogatepass"))


async def big(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    await begin(sink)
    text = "naïve — 漢字 " * 200_000
    await sink.event(ItemCompleted(item=Item(id="m:0", type="agent_message", content=text)))
    return result_of(invocation, output=text)


async def wait(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    await begin(sink)
    sink.say("waiting")
    return await until_aborted(invocation, abort, asyncio.sleep(1000))


async def stream(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    await begin(sink)

    async def forever() -> None:
        while True:
            await sink.event(ItemUpdated(item=Item(id="m:0", type="agent_message", content_delta="x" * 100)))
            await asyncio.sleep(0)

    return await until_aborted(invocation, abort, forever())


async def noisy(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    await begin(sink)
    print("printed by a dependency")  # noqa: T201
    sys.stdout.write("without newline")
    print()  # noqa: T201
    warnings.warn("old", DeprecationWarning, stacklevel=1)
    os.write(1, b"raw bytes of a C library\n")
    sink.say("from the model: \x1b[31m\r::set-output name=x::y")
    return result_of(invocation)


async def asks(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    await begin(sink)
    event = PermissionDenied(
        tool="bash",
        permission="bash",
        pattern="make all",
        rule="ask bash:make",
        verdict="ask",
        reason="bash: `make all` must be asked for",
    )
    await sink.event(event)
    denial = PermissionDenial(tool="bash", permission="bash", pattern="make all", rule=None, verdict="ask")
    return result_of(
        invocation,
        status="interaction_required",
        exit_code=5,
        permission_denials=(denial,),
        output="done so far",
    )


async def limit(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    await begin(sink)
    info = ErrorInfo(category="runtime", code="LIMIT_STEPS", message="step limit", retryable=False)
    hit = LimitHit(name="steps", value="3", source="--max-steps")
    return result_of(
        invocation,
        status="limit_exceeded",
        exit_code=7,
        output=None,
        partial_output="x",
        error=info,
        limit=hit,
    )


async def busy(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    raise BusyError("session mvs_0 is busy: turn t runs since 12:00")


async def config(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    raise ConfigError("no model is set")


async def bug(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    await begin(sink)
    raise ValueError("no such luck")


async def memory(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    raise MemoryError


async def late(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    """The outcome is decided while the signal is on its way."""
    await begin(sink)
    os.kill(os.getpid(), 15)
    return result_of(invocation)


async def chatty(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    await begin(sink)
    for index in range(200):
        await sink.event(Notice(code="x", message=f"{index} " + "y" * 1000))
    return result_of(invocation)


async def status(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    await begin(sink)
    for step in range(1, 30):
        sink.status(step=step, tool="bash", tokens=1234, cost_usd=Decimal("0.0123"), phase="tool")
        await asyncio.sleep(0.01)
    sink.say("a line of its own")
    sink.status(step=30, tool=None, tokens=1234, cost_usd=None, phase="model")
    await asyncio.sleep(0.15)
    return result_of(invocation)


async def slow_close(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    import threading

    threading.Thread(target=time.sleep, args=(1000,)).start()
    return await hello(invocation, sink, abort)


async def stray(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    """Errors that nobody waits for."""
    import gc
    import threading

    async def lost() -> None:
        raise KeyError("lost task")

    def failing() -> None:
        raise KeyError("lost thread")

    task = asyncio.get_running_loop().create_task(lost())
    await asyncio.sleep(0)
    del task
    gc.collect()
    thread = threading.Thread(target=failing)
    thread.start()
    thread.join()
    return await hello(invocation, sink, abort)


async def stuck(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    """A settlement that takes for ever."""
    await begin(sink)
    sink.say("waiting")
    await until_aborted(invocation, abort, asyncio.sleep(1000))
    sink.say("settling")
    await asyncio.sleep(1000)
    raise AssertionError


async def blocked(invocation: Any, sink: Any, abort: AbortScope) -> Result:
    """A loop that is held up by a call that does not return."""
    await begin(sink)
    sink.say("waiting")
    time.sleep(1000)
    raise AssertionError


class Runtime:
    def __init__(self) -> None:
        self.ended: list[Any] = [None] if os.environ["SCRIPT"] == "broken_pages" else []

    @classmethod
    async def open(cls, invocation: Any) -> Runtime:
        if os.environ["SCRIPT"] == "slow_open":
            await asyncio.sleep(1000)
        return cls()

    async def run(self, invocation: Any, sink: Any, abort: AbortScope) -> Result:
        script = os.environ["SCRIPT"]
        found: Result = await globals()["hello" if script == "broken_pages" else script](
            invocation, sink, abort
        )
        return found

    async def close(self) -> None:
        if os.environ["SCRIPT"] == "slow_close":
            await asyncio.sleep(1000)


if __name__ == "__main__":
    module = types.ModuleType("mcode_exec.executor.runtime")
    module.Runtime = Runtime  # type: ignore[attr-defined]
    sys.modules["mcode_exec.executor.runtime"] = module

    from mcode_exec.cli.main import main

    main()
