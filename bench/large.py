"""Large stores: resuming a session of 10,000 messages, continuing among 100,000 sessions."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from seeding import multiply_messages, multiply_sessions
from timing import Row, median, ms, world

if TYPE_CHECKING:
    from tests.support.mcode import Mcode
    from tests.support.peer import Peer

MESSAGES = 10_000
SESSIONS = 100_000
RESUME_S = 0.300
CONTINUE_S = 0.020


def run_resume(runs: int) -> list[Row]:
    """The time from the start of the process to its request."""
    rounds = max(3, runs // 4)
    # a window that holds it all: what is measured is reading and sending, not compaction
    with world(context=50_000_000) as (mcode, peer):
        mcode.exec("say hello").check()
        small = mcode.session_dir()
        mcode.exec("say hello").check()
        large = next(one for one in mcode.session_dirs() if one != small)
        multiply_messages(mcode.data, large, MESSAGES)
        times: dict[str, list[float]] = {"small": [], "large": []}
        for _round in range(rounds):
            for name, directory in (("small", small), ("large", large)):
                times[name].append(_first_request_s(mcode, peer, "--session", _id(directory.name)))
        sent = len(peer.last.messages)
    empty, full = median(times["small"]), median(times["large"])
    return [
        Row(
            f"resume {sent} messages: to the first request",
            f"{ms(full)} (empty: {ms(empty)})",
            "< 300 ms more",
            full - empty < RESUME_S and sent >= MESSAGES,
        )
    ]


def run_continue(runs: int) -> list[Row]:
    rounds = max(3, runs // 4)
    with world() as (mcode, peer):
        mcode.exec("say hello").check()
        before = median([_first_request_s(mcode, peer, "--continue") for _round in range(rounds)])
        multiply_sessions(mcode.data, SESSIONS)
        after = median([_first_request_s(mcode, peer, "--continue") for _round in range(rounds)])
        assert len(mcode.session_dirs()) == 1, "--continue did not find the newest session"
        store_s = median([asyncio.run(_store_time_s(mcode)) for _round in range(rounds)])
    return [
        Row(
            f"--continue among {SESSIONS} sessions: in the store",
            ms(store_s),
            "< 20 ms",
            store_s < CONTINUE_S,
        ),
        # told only: it holds the noise of two whole processes
        Row("the same, to the first request", f"{ms(after)} (one session: {ms(before)})", "", None),
    ]


def _first_request_s(mcode: Mcode, peer: Peer, *selector: str) -> float:
    count = len(peer.calls)
    start = time.monotonic()
    mcode.exec("go on", *selector, timeout=120).check()
    return peer.calls[count].arrived_s - start


def _id(directory: str) -> str:
    return directory[directory.index("mvs_") :]


async def _store_time_s(mcode: Mcode) -> float:
    """What the query of `--continue` takes in an open store, the first time it is asked."""
    from mcode_exec.clock import SystemClock
    from mcode_exec.sessions.finding import find_latest
    from mcode_exec.store.database import Store

    store = await Store.open(str(mcode.data / "mcode.db"), SystemClock())
    try:
        start = time.perf_counter()
        await find_latest(store, str(mcode.workspace), str(mcode.data / "sessions"))
        return time.perf_counter() - start
    finally:
        await store.close()
