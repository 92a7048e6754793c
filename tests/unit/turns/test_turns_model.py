"""Admission, lease, settlement and recovery as a model: the specification in executable form.

Two owners, two sessions, request ids, duplicates, deaths, a wall clock that steps: after every step the store
must hold what the model says.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcode_exec.errors import LeaseLostError
from mcode_exec.records.turn import Accepted, Ending, Rejected, Replayed
from mcode_exec.store import tables, turn_rows
from mcode_exec.turns.admission import admit
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.requests import project_scope, session_scope
from mcode_exec.turns.settlement import settle
from tests.unit.turns.turn_world import World, kill, request

LEASE_S = 1800.0
ENDINGS: dict[str, tuple[Ending, str]] = {
    "completed": (Ending(outcome="completed"), "idle"),
    "waiting": (Ending(outcome="waiting"), "idle"),
    "failed": (Ending(outcome="failed", error=RuntimeError("x")), "error"),
    "aborted": (Ending(outcome="aborted", abort_reason="signal"), "aborted"),
}
LOST = Ending(outcome="failed", abort_reason="lease-lost", error=LeaseLostError())


@dataclass
class TurnModel:
    turn_id: str
    session: str
    digest: str
    request_id: str | None
    attempt: int
    outcome: str | None = None
    reason: str | None = None
    result: bytes | None = None


@dataclass
class LockModel:
    token: str
    owner: str
    turn: str
    expires_boot_ms: int


@dataclass
class SessionModel:
    status: str = "idle"
    lock: LockModel | None = None
    last_turn: str | None = None


@dataclass
class Model:
    sessions: dict[str, SessionModel] = field(default_factory=dict)
    turns: dict[str, TurnModel] = field(default_factory=dict)
    #: by (session, or "" for the project, and request id)
    requests: dict[tuple[str, str], str] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)


class Turns(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        self.world = World(self.root)
        self.model = Model()
        self.accepted: list[Accepted] = []
        self.requested: list[Any] = []
        self.owners: list[Owner] = []
        self.numbers = 0

    @initialize()
    def begin(self) -> None:
        made = [self.world.session() for _ in range(2)]
        self.sessions = [one.id for one in made]
        self.project = made[0].project_id
        self.model.sessions = {one: SessionModel() for one in self.sessions}
        self.owners = [self.new_owner(), self.new_owner()]

    def new_owner(self) -> Owner:
        owner = self.world.owner()
        self.model.alive.add(owner.token)
        return owner

    def teardown(self) -> None:
        self.world.close()
        shutil.rmtree(self.root)

    # what the model knows

    def is_held(self, lock: LockModel | None) -> bool:
        return (
            lock is not None
            and lock.owner in self.model.alive
            and lock.expires_boot_ms > self.world.clock.boot_ms()
        )

    @staticmethod
    def asked(wanted: Any) -> tuple[str, str]:
        by_session = wanted.request_scope == session_scope(wanted.session_id)
        return (wanted.session_id if by_session else "", wanted.request_id)

    def expected(self, owner: Owner, wanted: Any) -> str:
        model = self.model
        session = model.sessions[wanted.session_id]
        same = model.turns.get(wanted.turn_id)
        if same is not None:
            if same.digest != wanted.digest:
                return "ingress-conflict"
            if same.outcome is not None:
                return "replayed"
            if session.lock is None or session.lock.turn != wanted.turn_id:
                return "ingress-conflict"
            return "accepted-again" if session.lock.owner == owner.token else "active-turn"
        if wanted.request_id is not None and self.asked(wanted) in model.requests:
            earlier = model.turns[model.requests[self.asked(wanted)]]
            if earlier.digest != wanted.digest:
                return "ingress-conflict"
            if earlier.outcome == "completed":
                return "replayed"
            lock = model.sessions[earlier.session].lock
            if (
                earlier.outcome is None
                and lock is not None
                and lock.turn == earlier.turn_id
                and self.is_held(lock)
            ):
                return "request-running"
        return "active-turn" if self.is_held(session.lock) else "accepted"

    def end_as_dead(self, session: SessionModel) -> None:
        assert session.lock is not None
        turn = self.model.turns[session.lock.turn]
        if turn.outcome is None:
            turn.outcome, turn.reason = "failed", "process-restart"
        session.status = "interrupted"

    # steps

    @rule(
        owner=st.integers(0, 1),
        session=st.integers(0, 1),
        digest=st.sampled_from(["d", "d", "d", "other"]),
        request_id=st.sampled_from([None, None, "r1", "r2"]),
        by_session=st.booleans(),
    )
    def submit(
        self, owner: int, session: int, digest: str, request_id: str | None, *, by_session: bool
    ) -> None:
        self.numbers += 1
        scope = session_scope(self.sessions[session]) if by_session else project_scope(self.project)
        scope = None if request_id is None else scope
        wanted = request(
            self.sessions[session],
            f"turn_{self.numbers}",
            digest=digest,
            request_id=request_id,
            request_scope=scope,
        )
        self.requested.append(wanted)
        self.ask(self.owners[owner], wanted)

    @precondition(lambda self: self.requested)
    @rule(owner=st.integers(0, 1), data=st.data())
    def submit_again(self, owner: int, data: st.DataObject) -> None:
        self.ask(self.owners[owner], data.draw(st.sampled_from(self.requested)))

    def ask(self, owner: Owner, wanted: Any) -> None:
        expected = self.expected(owner, wanted)
        answer = self.world.do(admit(self.world.store, owner, wanted, self.world.clock, lease_s=LEASE_S))
        session = self.model.sessions[wanted.session_id]
        if expected == "replayed":
            assert isinstance(answer, Replayed), answer
            return
        if expected == "accepted-again":
            assert isinstance(answer, Accepted), answer
            assert session.lock is not None
            assert answer.lease_token == session.lock.token
            return
        if expected != "accepted":
            assert isinstance(answer, Rejected), answer
            assert answer.reason == expected
            return
        assert isinstance(answer, Accepted), answer
        assert answer.is_takeover == (session.lock is not None)
        if session.lock is not None:
            self.end_as_dead(session)
        attempt = 1
        if wanted.request_id is not None:
            requests = self.model.requests
            if self.asked(wanted) in requests:
                attempt = self.model.turns[requests[self.asked(wanted)]].attempt + 1
            there = requests.get(("", wanted.request_id))
            is_theirs = there is not None and self.model.turns[there].session != wanted.session_id
            if not is_theirs or self.asked(wanted)[0] == "":
                requests["", wanted.request_id] = wanted.turn_id
            requests[wanted.session_id, wanted.request_id] = wanted.turn_id
        assert answer.receipt.attempt == attempt
        assert all(answer.receipt.sequence > one.receipt.sequence for one in self.accepted)
        self.model.turns[wanted.turn_id] = TurnModel(
            wanted.turn_id, wanted.session_id, wanted.digest, wanted.request_id, attempt
        )
        session.status, session.last_turn = "started", wanted.turn_id
        session.lock = LockModel(
            answer.lease_token, owner.token, wanted.turn_id, self.world.clock.boot_ms() + int(LEASE_S * 1000)
        )
        self.accepted.append(answer)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), ending=st.sampled_from(sorted(ENDINGS)))
    def settle(self, data: st.DataObject, ending: str) -> None:
        accepted = data.draw(st.sampled_from(self.accepted))
        turn = self.model.turns[accepted.receipt.turn_id]
        session = self.model.sessions[turn.session]
        end, status = ENDINGS[ending]
        result = f"{turn.turn_id} {ending}".encode()
        holds = session.lock is not None and session.lock.token == accepted.lease_token
        written = self.settled(accepted, end, result)
        assert written == (holds or turn.result == result)
        if holds:
            turn.outcome, turn.reason, turn.result = end.outcome, end.abort_reason, result
            session.status, session.lock = status, None
        elif not written:
            # what execution does then: the turn's end is that its lease was lost, unless the taker has spoken
            assert not self.settled(accepted, LOST, b"lost")
            if turn.outcome is None:
                turn.outcome, turn.reason, turn.result = "failed", "lease-lost", b"lost"
                if session.last_turn == turn.turn_id and session.lock is None:
                    session.status = "error"

    def settled(self, accepted: Accepted, ending: Ending, result: bytes) -> bool:
        written = self.world.do(
            settle(
                self.world.store,
                session_id=accepted.receipt.session_id,
                turn_id=accepted.receipt.turn_id,
                lease_token=accepted.lease_token,
                ending=ending,
                result=result,
                clock=self.world.clock,
            )
        )
        return written == "settled"

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        accepted = data.draw(st.sampled_from(self.accepted))
        session = self.model.sessions[accepted.receipt.session_id]
        holds = session.lock is not None and session.lock.token == accepted.lease_token
        until = self.world.clock.boot_ms() + int(LEASE_S * 1000)
        renewed = self.world.do(
            self.world.store.write(
                lambda: turn_rows.extend_lock(
                    accepted.receipt.session_id, accepted.lease_token, self.world.clock.now_ms() + 1, until
                )
            )
        )
        assert renewed == holds
        if holds:
            assert session.lock is not None
            session.lock.expires_boot_ms = until

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def somebody_deletes_the_lock_row(self, data: st.DataObject) -> None:
        accepted = data.draw(st.sampled_from(self.accepted))
        session = self.model.sessions[accepted.receipt.session_id]
        if session.lock is not None:
            token = session.lock.token
            self.world.do(
                self.world.store.write(lambda: turn_rows.delete_lock(accepted.receipt.session_id, token))
            )
            session.lock = None

    @rule(number=st.integers(0, 1))
    def an_owner_dies(self, number: int) -> None:
        kill(self.owners[number])
        self.model.alive.discard(self.owners[number].token)
        self.owners[number] = self.new_owner()

    @rule(number=st.integers(0, 1))
    def recover(self, number: int) -> None:
        self.world.recover(self.owners[number])
        for session in self.model.sessions.values():
            if session.lock is not None and session.lock.owner not in self.model.alive:
                self.end_as_dead(session)
                session.lock = None
            elif session.lock is None and session.status == "started":
                turn = self.model.turns[session.last_turn or ""]
                if turn.outcome is None:
                    turn.outcome, turn.reason = "failed", "process-restart"
                session.status = "interrupted"

    @rule(seconds=st.sampled_from([1, 1799, 1801]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-7200, 7200, 86_400]))
    def the_wall_clock_steps(self, seconds: int) -> None:
        self.world.clock.step_wall(seconds)

    # what must hold

    @invariant()
    def the_store_holds_what_the_model_says(self) -> None:
        for session_id, session in self.model.sessions.items():
            lock = self.world.lock(session_id)
            assert (lock.token if lock else None) == (session.lock.token if session.lock else None)
            assert self.world.find_session(session_id).status == session.status
        for turn in self.model.turns.values():
            receipt = self.world.receipt(turn.turn_id)
            assert (receipt.outcome, receipt.reason, receipt.result) == (
                turn.outcome,
                turn.reason,
                turn.result,
            )
            assert (receipt.settled_ms is None) == (turn.outcome is None)

    @invariant()
    def every_lock_belongs_to_an_unsettled_turn(self) -> None:
        locks = self.world.do(self.world.store.read(lambda: turn_rows.page_locks("", 100)))
        assert len({lock.session_id for lock in locks}) == len(locks)
        for lock in locks:
            assert lock.turn_id is not None
            assert self.world.receipt(lock.turn_id).settled_ms is None
        count = self.world.do(self.world.store.read(lambda: tables.TurnReceipts.select().count()))
        assert count == len(self.model.turns)


TestTurns = Turns.TestCase
TestTurns.settings = settings(
    deadline=None, max_examples=25, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
