"""A store, a clock that tests move, and sessions to run turns in."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from mcode_exec.records.session import Session
from mcode_exec.records.turn import Receipt, TurnRequest
from mcode_exec.sessions.making import create_session, new_session, project_of
from mcode_exec.store import session_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.recovery import Recovered, recover

T = TypeVar("T")


class MovedClock:
    """Time stands still until it is moved; wall and boot time move apart when the wall clock is stepped."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.boot = 5_000_000

    def now_ms(self) -> int:
        return self.wall_ms

    def boot_ms(self) -> int:
        return self.boot

    def monotonic_s(self) -> float:
        return self.boot / 1000

    def advance(self, seconds: float) -> None:
        self.wall_ms += int(seconds * 1000)
        self.boot += int(seconds * 1000)

    def step_wall(self, seconds: float) -> None:
        self.wall_ms += int(seconds * 1000)


class World:
    """One data directory, as far as turns know it."""

    def __init__(self, root: Path, clock: Any = None) -> None:
        self.root = root
        self.clock = clock or MovedClock()
        self.sessions_dir = str(root / "sessions")
        self.run_dir = root / "run"
        self.run_dir.mkdir()
        self.loop = asyncio.new_event_loop()
        self.store = self.do(Store.open(str(root / "mcode.db"), self.clock))
        self.owners: list[Owner] = []

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def owner(self) -> Owner:
        owner = Owner.hold(str(self.run_dir))
        self.owners.append(owner)
        return owner

    def session(self) -> Session:
        project = project_of("/w", None, self.clock.now_ms())
        made = new_session(
            project_id=project.id,
            workspace="/w",
            title="t",
            title_is_default=False,
            now_ms=self.clock.now_ms(),
        )
        return self.do(create_session(self.store, project, made))

    def recover(self, owner: Owner) -> Recovered:
        return self.do(recover(self.store, owner, self.clock, self.sessions_dir))

    def close(self) -> None:
        for owner in self.owners:
            owner.release()
        self.do(self.store.close())
        self.loop.close()

    # what the store holds

    def find_session(self, session_id: str) -> Session:
        found = self.do(self.store.read(lambda: session_rows.find_session(session_id)))
        assert found is not None
        return found

    def lock(self, session_id: str) -> Lock | None:
        return self.do(self.store.read(lambda: turn_rows.find_lock(session_id)))

    def receipt(self, turn_id: str) -> Receipt:
        found = self.do(self.store.read(lambda: turn_rows.find_receipt(turn_id)))
        assert found is not None
        return found


def request(session_id: str, turn_id: str, **more: Any) -> TurnRequest:
    return TurnRequest(session_id=session_id, turn_id=turn_id, **{"digest": "d", **more})


def kill(owner: Owner) -> None:
    """What the kernel does when the process dies: the lock is free, its file stays."""
    os.close(owner._descriptor)
    owner._descriptor = -1
