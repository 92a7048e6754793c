"""Queue, claims, fence, pauses, steering, aborts and settlement against the model, on the real store.

Three processes and two sessions: whatever they do, and whenever they die or sleep, the store holds what the
model says.  `MCODE_MODEL_EXAMPLES` and `MCODE_MODEL_STEPS` make the run longer.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from mcode_exec.errors import SessionError
from tests.unit.turns.line_machine import OWNERS, SESSIONS
from tests.unit.turns.line_model import Session, Signal
from tests.unit.turns.line_queue import QueueRules
from tests.unit.turns.turn_world import kill


class Lines(QueueRules):
    """All rules, and what holds after each."""

    # what is said to a turn

    @rule(
        owner=OWNERS,
        session=SESSIONS,
        is_machine=st.booleans(),
        key=st.sampled_from([None, None, "k"]),
        text=st.sampled_from(["a", "a", "b"]),
    )
    def steer(self, owner: int, session: int, is_machine: bool, key: str | None, text: str) -> None:
        session_id, by = self.ids[session], self.owners[owner]
        model = self.model.sessions[session_id]
        how = {"idempotency_key": key, "is_machine": is_machine}
        same = [one for one in model.signals if key is not None and one.key == key]
        known = next((one for one in same if one.state != "dropped"), None)
        if known is not None and known.text != text:
            with pytest.raises(SessionError):
                self.world.steer(by, session_id, text, **how)
            return
        if known is not None and known.state == "dropped":
            model.signals.remove(known)  # words that nobody took may be said again
            known = None
        steered = self.world.steer(by, session_id, text, **how)
        if known is not None:
            assert steered.is_duplicate
            assert steered.signal is not None
            assert steered.signal.id == known.id
        elif not self.model.is_held(model):
            assert steered.signal is None
        else:
            assert steered.signal is not None
            assert model.lock is not None
            assert steered.signal.turn_id == model.lock.id
            for one in same:
                one.key = None  # what was dropped may be said again
            said = Signal("steer", model.lock.id, is_machine, text, key, self.clock.now_ms())
            said.id, said.message_id = steered.signal.id, steered.signal.message_id
            model.signals.append(said)

    @rule(owner=OWNERS, session=SESSIONS, data=st.data())
    def abort(self, owner: int, session: int, data: st.DataObject) -> None:
        session_id = self.ids[session]
        known = [item.turn for _, item in self.lined() if item.turn] + list(self.model.turns)[-3:]
        turn_id = data.draw(st.sampled_from([None, None, f"turn_{self.numbers + 1}", *known]))
        expected = self.expected_abort(session_id, turn_id)
        target = self.world.abort(self.owners[owner], session_id, turn_id)
        assert (target.outcome, target.turn_id) == expected

    def expected_abort(self, session_id: str, turn_id: str | None) -> tuple[str | None, str | None]:
        session = self.model.sessions[session_id]
        running = session.lock.id if session.lock is not None and self.model.is_held(session) else None
        nothing = "not-running" if running is None else "turn-mismatch"
        if turn_id is None and running is None:
            item = self.model.claimed(session)
            if item is None or not self.model.is_live(session, item):
                return "not-running", None
            return self.tell(session, item.turn)
        if turn_id in (None, running):
            return self.tell(session, running)
        assert turn_id is not None
        turn = self.model.turns.get(turn_id)
        if turn is not None:
            is_over = turn.session != session_id or turn.outcome is not None
            return (nothing, running) if is_over else ("released", turn_id)
        item = next((one for one in session.line if one.turn == turn_id), None)
        if item is not None and item.is_claimed and self.model.is_live(session, item):
            return self.tell(session, turn_id)
        if item is not None:
            self.model.leave(session, item, "cancelled")
            return "aborted", turn_id
        if running is not None or any(one.turn == turn_id for _, one in self.lined()):
            return nothing, running
        self.tell(session, turn_id)
        return "not-running", turn_id

    def tell(self, session: Session, turn_id: str | None) -> tuple[str | None, str | None]:
        assert turn_id is not None
        if not any(self.model.pending(one, turn_id, "abort") for one in self.model.sessions.values()):
            session.signals.append(Signal("abort", turn_id, False, "", None, self.clock.now_ms()))
        return None, turn_id

    # what happens to processes

    @rule(number=OWNERS)
    def an_owner_dies(self, number: int) -> None:
        kill(self.owners[number])
        self.model.die(self.owners[number].token)
        self.owners[number] = self.new_owner()

    @rule(number=OWNERS)
    def recover(self, number: int) -> None:
        self.model.recover()
        self.world.recover(self.owners[number])
        assert self.world.recover(self.owners[number]).turns == 0

    @rule(seconds=st.sampled_from([1, 29, 31, 61, 1801, 90_000]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-7200, 7200, 86_400]))
    def the_wall_clock_steps(self, seconds: int) -> None:
        self.clock.step_wall(seconds)

    # what must hold

    @invariant()
    def the_lines_are_the_models(self) -> None:
        for session_id, session in self.sessions():
            rows = [
                row
                for row in self.world.items(session_id)
                if row.waiter is None or row.state == "claimed" or row.waiter in self.model.alive
            ]
            assert len(rows) == len(session.line), (rows, session.line)
            for row, item in zip(rows, session.line, strict=True):
                self.named(item, row)
                held = (row.id, row.turn_id, row.digest, row.state, row.waiter, row.claim_token)
                state = "claimed" if item.is_claimed else "queued"
                assert held == (item.id, item.turn, item.digest, state, item.waiter, item.claim_token)
            assert sum(item.is_claimed for item in session.line) <= 1
            pause = self.world.pause(session_id)
            assert (pause.reason if pause else None) == session.pause
            said = [(row.kind, row.turn_id, row.state) for row in self.world.signals(session_id)]
            assert said == [(one.kind, one.turn, one.state) for one in session.signals]

    @invariant()
    def locks_and_receipts_are_the_models(self) -> None:
        for session_id, session in self.sessions():
            lock = self.world.lock(session_id)
            assert (lock.token if lock else None) == (session.lock.token if session.lock else None)
            assert self.world.find_session(session_id).status == session.status
        for turn in self.model.turns.values():
            receipt = self.world.receipt(turn.id)
            held = (receipt.outcome, receipt.reason, receipt.result, receipt.is_dispatched)
            assert held == (turn.outcome, turn.reason, turn.result, turn.is_dispatched)
            if turn.outcome is None:
                assert self.model.sessions[turn.session].lock is turn

    @invariant()
    def no_item_is_lost_or_delivered_twice(self) -> None:
        lined = [item for _, item in self.lined()]
        for item in self.model.items:
            assert (item.fate is None) == (item in lined)
            assert item.prompts <= 1
            assert (item.fate == "delivered") <= (item.prompts == 1)


_EXAMPLES = int(os.environ.get("MCODE_MODEL_EXAMPLES", "60"))
_STEPS = int(os.environ.get("MCODE_MODEL_STEPS", "50"))

TestLines = pytest.mark.timeout(0)(Lines.TestCase)
TestLines.settings = settings(
    deadline=None,
    max_examples=_EXAMPLES,
    stateful_step_count=_STEPS,
    suppress_health_check=list(HealthCheck),
)
