"""A session of 20,000 messages: opened for a turn, and forked."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from seeding import multiply_messages
from timing import Row, median, ms, world

if TYPE_CHECKING:
    from tests.support.mcode import Mcode

MESSAGES = 20_000
OPEN_S = 0.150
FORK_S = 0.500


def run(runs: int) -> list[Row]:
    from tests.support.steps import call, say

    rounds = max(3, runs // 4)
    steps = (call("bash", {"command": "seq 300"}), call("bash", {"command": "seq 200"}), say("done " * 20))
    with world(*steps, context=50_000_000) as (mcode, _):
        mcode.exec("do it " * 20).check()
        directory = mcode.session_dir()
        multiply_messages(mcode.data, directory, MESSAGES)
        session_id = directory.name[directory.name.index("mvs_") :]
        size = (directory / "messages.jsonl").stat().st_size
        opened = median([_open_s(directory, session_id) for _round in range(rounds)])
        forked = median([asyncio.run(_fork_s(mcode, session_id)) for _round in range(rounds)])
        whole = [_process_s(mcode, "sessions", "fork", session_id) for _round in range(rounds)]
        looked = [_process_s(mcode, "sessions", "list") for _round in range(rounds)]
    return [
        Row(f"open {MESSAGES} messages ({size >> 20} MiB)", ms(opened), "< 150 ms", opened < OPEN_S),
        Row(
            f"fork {MESSAGES} messages, its store opened and closed", ms(forked), "< 500 ms", forked < FORK_S
        ),
        # told only: it holds the noise of two whole processes
        Row("the same as a process, more than `sessions list`", ms(median(whole) - median(looked)), "", None),
    ]


def _open_s(directory: Path, session_id: str) -> float:
    from mcode_exec.sessions.history import open_history
    from mcode_exec.sessions.layout import history_paths

    sessions_dir = str(directory.parents[3])
    paths = history_paths(sessions_dir, os.path.relpath(directory, sessions_dir))
    known = (directory / "messages.jsonl").stat().st_size
    start = time.perf_counter()
    history = open_history(
        paths, session_id, sessions_dir, known_bytes=known, takeover=False, now_ms=0, may_change=False
    )
    took = time.perf_counter() - start
    history.close()
    return took


async def _fork_s(mcode: Mcode, session_id: str) -> float:
    from mcode_exec.executor.fork_session import fork_session
    from mcode_exec.records.invocation import Invocation

    wanted = Invocation(run_id="", fork=session_id, cwd=str(mcode.workspace))
    start = time.perf_counter()
    await fork_session(wanted, mcode.environment())
    return time.perf_counter() - start


def _process_s(mcode: Mcode, *command: str) -> float:
    start = time.perf_counter()
    mcode.run(*command).check()
    return time.perf_counter() - start
