"""One worker of the turns benchmark: `turn_worker.py DIR SESSION COUNT admit|bare`; prints how long it took.

`admit`: COUNT admissions with their settlements through mcode's own store.  `bare`: as many pairs of bare
`BEGIN IMMEDIATE … COMMIT` with FULL sync, each changing one row.  Both wait for a file `go` to appear.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main() -> None:
    root, session, count, how = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    if how == "bare":
        _bare(root, session, count)
    else:
        asyncio.run(_admit(root, session, count))


def _wait(root: Path, session: str) -> float:
    (root / f"ready-{session}").touch()
    while not (root / "go").exists():
        time.sleep(0.002)
    return time.perf_counter()


def _bare(root: Path, session: str, count: int) -> None:
    connection = sqlite3.connect(root / "bare.db", timeout=60, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    started = _wait(root, session)
    for number in range(2 * count):
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError:
                time.sleep(0.002)
        connection.execute("UPDATE rows SET value = ? WHERE name = ?", (number, session))
        connection.execute("COMMIT")
    print(time.perf_counter() - started)


async def _admit(root: Path, session: str, count: int) -> None:
    from mcode_exec.clock import SystemClock
    from mcode_exec.ids import new_turn_id
    from mcode_exec.records.turn import Accepted, Ending, TurnRequest
    from mcode_exec.store.database import Store
    from mcode_exec.turns.admission import admit
    from mcode_exec.turns.owner import Owner
    from mcode_exec.turns.settlement import settle

    clock = SystemClock()
    owner = Owner.hold(str(root / "run"))
    store = await Store.open(str(root / "mcode.db"), clock)
    started = _wait(root, session)
    for _ in range(count):
        request = TurnRequest(session_id=session, turn_id=new_turn_id(), digest="d")
        accepted = await admit(store, owner, request, clock)
        assert isinstance(accepted, Accepted), accepted
        settled = await settle(
            store,
            session_id=session,
            turn_id=request.turn_id,
            lease_token=accepted.lease_token,
            ending=Ending(outcome="completed"),
            result=b"{}",
            clock=clock,
        )
        assert settled == "settled"
    print(time.perf_counter() - started)
    await store.close()
    owner.release()


if __name__ == "__main__":
    main()
