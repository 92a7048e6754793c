"""The state machine of a session's line, without its rules: three processes, two sessions, and the model."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from mcode_exec.errors import BusyError
from mcode_exec.records.queue import QueueItem
from mcode_exec.records.turn import TurnRequest
from mcode_exec.turns.owner import Owner
from tests.unit.turns.line_model import Item, Model, Session, Turn
from tests.unit.turns.line_world import LineWorld

OWNERS = st.integers(0, 2)
SESSIONS = st.integers(0, 1)


class LineMachine(RuleBasedStateMachine):
    """The world, the model of it, and what every rule asks them."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        self.world = LineWorld(self.root)
        self.clock = self.world.clock
        self.model = Model(self.clock.now_ms, self.clock.boot_ms)
        self.owners: list[Owner] = []
        #: (claimant, claim) of every claim ever made
        self.claims: list[tuple[Owner, QueueItem, Item]] = []
        #: what is in a session's history and has no rows yet: (turn id, message id)
        self.tails: dict[str, list[tuple[str, str]]] = {}
        self.asked: list[tuple[Owner, TurnRequest, Item | None]] = []
        self.numbers = 0

    @initialize()
    def begin(self) -> None:
        self.ids = [self.world.session().id for _ in range(2)]
        self.model.sessions = {one: Session() for one in self.ids}
        self.tails = {one: [] for one in self.ids}
        self.owners = [self.new_owner() for _ in range(3)]

    def new_owner(self) -> Owner:
        owner = self.world.owner()
        self.model.alive.add(owner.token)
        return owner

    def teardown(self) -> None:
        self.world.close()
        shutil.rmtree(self.root)

    # helpers

    def sessions(self) -> list[tuple[str, Session]]:
        return list(self.model.sessions.items())

    def lined(self) -> list[tuple[str, Item]]:
        return [(one, item) for one, session in self.sessions() for item in session.line]

    def locked(self) -> list[Turn]:
        """Turns whose token signs a lock and whose process lives: those that may write."""
        return [
            session.lock
            for _, session in self.sessions()
            if session.lock is not None and session.lock.owner in self.model.alive
        ]

    def owner_of(self, token: str) -> Owner:
        return next(owner for owner in self.world.owners if owner.token == token)

    def busy_unless(self, is_free: bool, work: Any) -> Any:
        if is_free:
            return self.world.do(work)
        with pytest.raises(BusyError):
            self.world.do(work)
        return None

    def named(self, item: Item, row: QueueItem) -> None:
        """Fill in what the store has made up."""
        if item.id is None:
            assert row.source == "steer"
            item.id, item.digest = row.id, row.digest
        if item.turn is None:
            assert row.turn_id not in self.model.turns
            assert all(one.turn != row.turn_id for _, one in self.lined())
            item.turn = row.turn_id
