"""Admission and settlement, alone and in a crowd; how soon a waiter wakes; a long queue."""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from timing import ROOT, Row, world

PROCESSES = 16
EACH = 40  # admissions of each process
_WORKER = Path(__file__).with_name("turn_worker.py")


def run(runs: int) -> list[Row]:
    return [_uncontended(), _crowd(), _wake(runs), *_queue()]


def _sessions(root: Path, count: int) -> list[str]:
    """A data directory with so many sessions."""
    sys.path.insert(0, str(ROOT))
    from mcode_exec.clock import SystemClock
    from mcode_exec.sessions.making import create_session, new_session, project_of
    from mcode_exec.store.database import Store

    (root / "run").mkdir(exist_ok=True)

    async def make() -> list[str]:
        clock = SystemClock()
        store = await Store.open(str(root / "mcode.db"), clock)
        project = project_of("/w", None, clock.now_ms())
        made = []
        for number in range(count):
            session = new_session(
                project_id=project.id,
                workspace="/w",
                title=str(number),
                title_is_default=False,
                now_ms=clock.now_ms(),
            )
            made.append((await create_session(store, project, session)).id)
        await store.close()
        return made

    return asyncio.run(make())


def _workers(root: Path, names: list[str], count: int, how: str) -> float:
    """Seconds until all of them are done."""
    (root / "go").unlink(missing_ok=True)
    running = [
        subprocess.Popen(
            [sys.executable, str(_WORKER), str(root), name, str(count), how], stdout=subprocess.PIPE
        )
        for name in names
    ]
    while not all((root / f"ready-{name}").exists() for name in names):
        time.sleep(0.01)
    started = time.perf_counter()
    (root / "go").touch()
    for one in running:
        one.communicate()
        assert one.returncode == 0
    for name in names:
        (root / f"ready-{name}").unlink()
    return time.perf_counter() - started


def _uncontended() -> Row:
    count = 200
    with tempfile.TemporaryDirectory(prefix="mcode-bench-") as directory:
        root = Path(directory)
        (session,) = _sessions(root, 1)
        per_pair_ms = _workers(root, [session], count, "admit") / count * 1000
    return Row("admission and settlement, alone", f"{per_pair_ms:.2f} ms", "< 3 ms", per_pair_ms < 3)


def _crowd() -> Row:
    with tempfile.TemporaryDirectory(prefix="mcode-bench-") as directory:
        root = Path(directory)
        names = _sessions(root, PROCESSES)
        bare = sqlite3.connect(root / "bare.db")
        bare.execute("PRAGMA journal_mode = wal")
        bare.execute("CREATE TABLE rows (name TEXT PRIMARY KEY, value INTEGER)")
        bare.executemany("INSERT INTO rows VALUES (?, 0)", [(name,) for name in names])
        bare.commit()
        bare.close()
        ours, theirs = [], []
        for _ in range(3):
            theirs.append(PROCESSES * EACH / _workers(root, names, EACH, "bare"))
            ours.append(PROCESSES * EACH / _workers(root, names, EACH, "admit"))
    admitted, bare_pairs = statistics.median(ours), statistics.median(theirs)
    ratio = admitted / bare_pairs
    return Row(
        f"{PROCESSES} processes on {PROCESSES} sessions: turns / pairs of bare transactions",
        f"{admitted:.0f} / {bare_pairs:.0f} per s = {ratio:.2f}",
        "≥ 0.6",
        ratio >= 0.6,
    )


def _wake(runs: int) -> Row:
    from tests.support.steps import Gate, forever, gated, say

    waits = []
    for _ in range(max(5, runs // 4)):
        gate = Gate()
        with world(gated(say("first"), gate), forever(say("next"))) as (mcode, _peer):
            first = mcode.start("exec", "begin")
            gate.wait_reached()
            session = mcode.query("SELECT id FROM sessions")[0]["id"]
            waiting = mcode.start("exec", "w", "--session", session, "--when-busy", "wait")
            while not mcode.query("SELECT id FROM queue_items"):
                time.sleep(0.01)
            time.sleep(0.3)
            gate.open()
            first.finish().check()
            waiting.finish().check()
            rows: list[dict[str, Any]] = mcode.query(
                "SELECT accepted_ms, settled_ms FROM turn_receipts ORDER BY sequence"
            )
            waits.append(rows[1]["accepted_ms"] - rows[0]["settled_ms"])
    wake_ms = statistics.median(waits)
    return Row("release → the waiter's admission", f"{wake_ms:.0f} ms", "< 300 ms", wake_ms < 300)


def _queue() -> list[Row]:
    rows = []
    small, large = _per_item(10), _per_item(100)
    for what in ("list", "claim", "drain"):
        growth = large[what] / small[what]
        rows.append(
            Row(
                f"queue of 100,000 items: {what}, per item, beside 10,000",
                f"{large[what] * 1e6:.0f} µs = {growth:.2f} ×",
                "flat (< 1.5 ×)",
                growth < 1.5,
            )
        )
    return rows


def _per_item(sessions: int) -> dict[str, float]:
    """Seconds per item for a queue of 1,000 items in each of so many sessions."""
    with tempfile.TemporaryDirectory(prefix="mcode-bench-") as directory:
        root = Path(directory)
        names = _sessions(root, sessions)
        return asyncio.run(_measure(root, names))


async def _measure(root: Path, names: list[str]) -> dict[str, float]:
    from mcode_exec.clock import SystemClock
    from mcode_exec.records.history import TextBlock
    from mcode_exec.records.queue import QueueItem, QueuePayload
    from mcode_exec.store import queue_rows
    from mcode_exec.store.database import Store
    from mcode_exec.turns import claims
    from mcode_exec.turns.owner import Owner

    clock = SystemClock()
    owner = Owner.hold(str(root / "run"))
    store = await Store.open(str(root / "mcode.db"), clock)
    now_ms = clock.now_ms()

    def fill(session: str) -> None:
        for number in range(1000):
            queue_rows.insert_item(
                QueueItem(
                    id=f"qi_{session[4:20]}{number:016x}",
                    session_id=session,
                    position=0,
                    state="queued",
                    source="api",
                    digest="d",
                    payload=QueuePayload(content=(TextBlock(text=f"item {number}"),)),
                    turn_id=f"turn_{session}-{number}",
                    created_ms=now_ms,
                    expires_ms=now_ms + 86_400_000,
                )
            )

    for name in names:
        await store.write(lambda session=name: fill(session))  # type: ignore[misc]
    session = names[len(names) // 2]
    measured: dict[str, float] = {}
    started = time.perf_counter()
    for _ in range(20):
        await store.read(lambda: queue_rows.page_items(session, limit=200))
    measured["list"] = (time.perf_counter() - started) / (20 * 200)
    started = time.perf_counter()
    for _ in range(200):
        item = await claims.claim_next(store, owner, session, clock)
        assert item is not None
        await claims.release(store, item)
    measured["claim"] = (time.perf_counter() - started) / 200
    started = time.perf_counter()
    for _ in range(400):
        item = await claims.claim_next(store, owner, session, clock)
        assert item is not None
        await claims.drop(store, item)
    measured["drain"] = (time.perf_counter() - started) / 400
    await store.close()
    owner.release()
    return measured
