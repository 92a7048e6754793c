"""A tool loop of 20 steps: mcode's own time between two model calls, and how requests grow."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from timing import Row, median, ms, must_succeed, timed, world

STEPS = 20
STEP_OVERHEAD_S = 0.011
FIRST_REQUEST_BYTES = 8000


def run(runs: int) -> list[Row]:
    from tests.support.steps import call, say

    overheads: list[float] = []
    calls: list[Any] = []
    with world() as (mcode, peer):
        for _round in range(max(1, runs // 5)):
            peer.requests.clear()
            loop = [call("bash", {"command": f"echo step {number}"}) for number in range(STEPS)]
            peer.script(*loop, say("done"))
            mcode.exec("go").check()
            calls = peer.calls
            overheads += [after.arrived_s - (before.answered_s or 0.0) for before, after in pairwise(calls)]
        sizes = [len(request.body) for request in calls]
        fixed = [_fixed_bytes(request.json) for request in calls]
        grown, talked = sizes[-1] - sizes[0], _talk_bytes(calls[-1]) - _talk_bytes(calls[0])
        is_prefix = all(
            _stable(after)[: len(_stable(before))] == _stable(before) for before, after in pairwise(calls)
        )
        peer.requests.clear()
        peer.script(say("hello"))
        mcode.exec("say hello").check()
        hello = len(peer.last.body)
        bare = [
            must_succeed(timed(["bash", "-c", "echo x"], env=mcode.environment(), cwd=mcode.workspace))
            for _ in range(STEPS)
        ]
    overhead = median(overheads)
    grows_alike = grown <= 1.05 * talked + 64 and max(fixed) <= fixed[0] + 64
    return [
        Row("bash -c 'echo x', started by this script", ms(median([one.wall_s for one in bare])), "", None),
        Row("last byte → next request, bash: echo", ms(overhead), "< 11 ms", overhead < STEP_OVERHEAD_S),
        Row("first request of a hello", f"{hello} bytes", "< 8000 bytes", hello < FIRST_REQUEST_BYTES),
        Row(
            f"growth over {STEPS} steps: request / conversation",
            f"{grown} / {talked} bytes",
            "no faster",
            grows_alike,
        ),
        Row("each request begins as the one before", str(is_prefix), "True", is_prefix),
    ]


def _talk(request: Any) -> list[Any]:
    talk: list[Any] = request.messages
    return talk


def _talk_bytes(request: Any) -> int:
    return len(json.dumps(_talk(request), separators=(",", ":"), ensure_ascii=False).encode())


def _fixed_bytes(body: dict[str, Any]) -> int:
    rest = {name: value for name, value in body.items() if name not in ("messages", "input")}
    return len(json.dumps(rest, separators=(",", ":"), ensure_ascii=False).encode())


def _stable(request: Any) -> list[str]:
    """The messages without cache marks, which move on purpose."""
    return [json.dumps(_unmarked(message), sort_keys=True) for message in _talk(request)]


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(inner) for name, inner in value.items() if name != "cache_control"}
    return [_unmarked(inner) for inner in value] if isinstance(value, list) else value
