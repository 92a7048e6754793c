"""Queue, claims, fence, pauses, steering, aborts and settlement against the model, on the real store.

Three processes and two sessions: whatever they do, and whenever they die or sleep, the store holds what the
model says.  `MCODE_MODEL_EXAMPLES` and `MCODE_MODEL_STEPS` make the run longer.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcode_exec.errors import BusyError, SessionError
from mcode_exec.records.queue import QueueItem
from mcode_exec.records.turn import Accepted, Ending, Rejected, Replayed, TurnRequest
from mcode_exec.store import queue_state_rows, turn_rows
from mcode_exec.turns import claims, queue
from mcode_exec.turns.admission import admit
from mcode_exec.turns.owner import Owner
from tests.unit.turns.line_model import CLAIM_MS, LEASE_MS, Item, Model, Session, Signal, Turn
from tests.unit.turns.line_world import LineWorld, payload
from tests.unit.turns.turn_world import kill, request

ENDINGS = {
    "completed": (Ending(outcome="completed"), "idle"),
    "waiting": (Ending(outcome="waiting"), "idle"),
    "failed": (Ending(outcome="failed", error=RuntimeError("x")), "error"),
    "signal": (Ending(outcome="aborted", abort_reason="signal"), "aborted"),
    "user-stop": (Ending(outcome="aborted", abort_reason="user-stop"), "aborted"),
    "deadline": (Ending(outcome="aborted", abort_reason="deadline"), "aborted"),
    "limit": (Ending(outcome="aborted", abort_reason="limit"), "aborted"),
    "stdout-closed": (Ending(outcome="aborted", abort_reason="stdout-closed"), "aborted"),
}
OWNERS = st.integers(0, 2)
SESSIONS = st.integers(0, 1)


class Lines(RuleBasedStateMachine):
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

    # the line

    @rule(owner=OWNERS, session=SESSIONS, ttl_s=st.sampled_from([60, 1e6, 1e6]), waits=st.booleans())
    def add(self, owner: int, session: int, ttl_s: float, waits: bool) -> None:
        self.numbers += 1
        by, session_id = self.owners[owner], self.ids[session]
        added = self.world.add(by, session_id, f"text {self.numbers}", ttl_s=ttl_s, waits=waits)
        waiter = by.token if waits else None
        item = Item(added.id, added.turn_id, added.digest, self.clock.now_ms() + int(ttl_s * 1000), waiter)
        self.model.append(self.model.sessions[session_id], item)

    @precondition(lambda self: self.lined())
    @rule(data=st.data(), what=st.sampled_from(["remove", "edit", "move", "move"]), place=st.integers(0, 5))
    def change(self, data: st.DataObject, what: str, place: int) -> None:
        session_id, item = data.draw(st.sampled_from(self.lined()))
        session = self.model.sessions[session_id]
        assert item.id is not None
        store = self.world.store
        if what == "remove":
            work: Any = queue.remove(store, item.id, "taken-back", self.clock)
            if self.busy_unless(not item.is_claimed, work):
                self.model.leave(session, item, "removed")
        elif what == "edit":
            self.numbers += 1
            text = f"edited {self.numbers}"
            work = queue.edit(store, item.id, lambda _: payload(text), lambda _: "digest of " + text)
            if self.busy_unless(not item.is_claimed and item.waiter is None, work):
                item.digest = "digest of " + text
        else:
            self.move(session_id, item, place)

    def move(self, session_id: str, item: Item, place: int) -> None:
        # The places of dead waiters count until somebody clears them away; the model knows none.
        by_id = {one.id: one for _, one in self.lined()}
        line = [by_id.get(one.id) for one in self.world.items(session_id)]
        after = [one for one in line if one is not item]
        after.insert(min(max(place - 1, 0), len(after)), item)
        keeps = all(one is None or not one.is_claimed or line.index(one) == after.index(one) for one in after)
        assert item.id is not None
        work = queue.move(self.world.store, item.id, place)
        if self.busy_unless(not item.is_claimed and keeps, work):
            self.model.sessions[session_id].line = [one for one in after if one is not None]

    @rule(session=SESSIONS, what=st.sampled_from(["pause", "unpause", "unpause", "clear"]))
    def hold(self, session: int, what: str) -> None:
        session_id, store = self.ids[session], self.world.store
        model = self.model.sessions[session_id]
        if what == "pause":
            paused = self.world.do(queue.pause(store, session_id, self.clock))
            assert paused == bool(self.model.delivered(model))
            model.pause = "user-stop" if paused else model.pause
        elif what == "unpause":
            assert self.world.do(queue.unpause(store, session_id)) == (model.pause is not None)
            model.pause = None
        else:
            before = len(model.line)
            self.model.clear(model)
            assert self.world.do(queue.clear(store, session_id, self.clock)) == before - len(model.line)

    @rule(owner=OWNERS, session=st.integers(0, 2), leaves=st.booleans())
    def drain(self, owner: int, session: int, leaves: bool) -> None:
        token = self.owners[owner].token
        of = queue_state_rows.EVERY_SESSION if session == 2 else self.ids[session]
        now_ms = self.clock.now_ms()
        if leaves:
            self.world.write(lambda: queue_state_rows.delete_drainer(of, token))
        else:
            self.world.write(lambda: queue_state_rows.put_drainer(of, token, now_ms))
        for one, model in self.sessions():
            if of in (one, queue_state_rows.EVERY_SESSION):
                held = self.world.read(lambda one=one: token in queue_state_rows.drainers(one))
                (model.drainers.add if held else model.drainers.discard)(token)

    # claims

    @rule(owner=OWNERS, session=SESSIONS, data=st.data())
    def claim_next(self, owner: int, session: int, data: st.DataObject) -> None:
        session_id = self.ids[session]
        model = self.model.sessions[session_id]
        places = [one for one in model.line if one.waiter == self.owners[owner].token and not one.is_claimed]
        before = data.draw(st.sampled_from([None, *places]))
        position = None
        if before is not None and before.id is not None:
            place = self.world.item(before.id)
            position = place.position if place is not None else None
        expected = self.model.next_to_claim(model, before)
        claimed = self.world.claim(self.owners[owner], session_id, position)
        assert (claimed is None) == (expected is None), (claimed, expected)
        if claimed is not None and expected is not None:
            self.claimed(self.owners[owner], claimed, expected)

    @precondition(lambda self: self.lined())
    @rule(owner=OWNERS, data=st.data())
    def claim_by_name(self, owner: int, data: st.DataObject) -> None:
        self.claim(self.owners[owner], *data.draw(st.sampled_from(self.lined())))

    def claim(self, owner: Owner, session_id: str, item: Item) -> None:
        session = self.model.sessions[session_id]
        assert item.id is not None
        claimed = self.world.claim_item(owner, item.id)
        if item.waiter is not None or self.model.is_delivering(session) or item not in session.line:
            assert claimed is None
        elif item.expires_ms <= self.clock.now_ms():
            assert claimed is None
            self.model.leave(session, item, "expired")
        else:
            assert claimed is not None
            self.claimed(owner, claimed, item)

    @rule(owner=OWNERS, session=SESSIONS, by_name=st.booleans(), data=st.data())
    def deliver(self, owner: int, session: int, by_name: bool, data: st.DataObject) -> None:
        """What a dispatcher does: claim the next item and submit it."""
        before = len(self.claims)
        line = self.model.delivered(self.model.sessions[self.ids[session]])
        if by_name and line:
            self.claim(self.owners[owner], self.ids[session], data.draw(st.sampled_from(line)))
        else:
            self.claim_next(owner, session, data)
        if len(self.claims) > before:
            by, claim, item = self.claims[-1]
            self.ask(by, self.wanted_of(claim), item)

    def claimed(self, owner: Owner, claimed: QueueItem, item: Item) -> None:
        self.named(item, claimed)
        assert (claimed.id, claimed.turn_id, claimed.digest) == (item.id, item.turn, item.digest)
        item.is_claimed, item.claim_owner, item.claim_token = True, owner.token, claimed.claim_token
        item.claim_until_ms = self.clock.boot_ms() + CLAIM_MS
        self.claims.append((owner, claimed, item))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), drops=st.booleans())
    def end_a_claim(self, data: st.DataObject, drops: bool) -> None:
        _, claim, item = data.draw(st.sampled_from(self.claims))
        session = self.model.sessions[claim.session_id]
        if session.lock is not None and session.lock.id == claim.turn_id:
            return  # whoever was accepted does not end its claim itself
        is_its = item in session.line and item.claim_token == claim.claim_token
        ended = self.world.do((claims.drop if drops else claims.release)(self.world.store, claim))
        assert ended == is_its
        if is_its and drops:
            self.model.leave(session, item, "dropped")
        elif is_its:
            self.model.requeue(item)

    # admission

    @rule(
        owner=OWNERS,
        session=SESSIONS,
        priority=st.sampled_from(["ordinary", "ordinary", "ordinary", "retry-continuation"]),
        clears=st.booleans(),
    )
    def submit(self, owner: int, session: int, priority: str, clears: bool) -> None:
        self.numbers += 1
        wanted = request(self.ids[session], f"turn_{self.numbers}", priority=priority, clears_paused=clears)
        self.ask(self.owners[owner], wanted, None)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def submit_a_claim(self, data: st.DataObject) -> None:
        owner, claim, item = data.draw(st.sampled_from(self.claims[-6:]))
        if owner.token in self.model.alive:
            self.ask(owner, self.wanted_of(claim), item)

    @precondition(lambda self: any(item.waiter for _, item in self.lined()))
    @rule(data=st.data(), owner=OWNERS, is_own=st.sampled_from([True, True, True, False]))
    def submit_a_place(self, data: st.DataObject, owner: int, is_own: bool) -> None:
        _, item = data.draw(st.sampled_from([one for one in self.lined() if one[1].waiter]))
        assert item.waiter is not None
        assert item.id is not None
        row = self.world.item(item.id)
        if row is not None and item.waiter in self.model.alive:
            by = self.owner_of(item.waiter) if is_own else self.owners[owner]
            self.ask(by, self.wanted_of(row), item)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), owner=OWNERS, is_same=st.booleans())
    def submit_again(self, data: st.DataObject, owner: int, is_same: bool) -> None:
        by, wanted, item = data.draw(st.sampled_from(self.asked[-8:]))
        if not is_same or by.token not in self.model.alive:
            by = self.owners[owner]
        self.ask(by, wanted, item)

    def wanted_of(self, row: QueueItem) -> TurnRequest:
        return request(
            row.session_id, row.turn_id, digest=row.digest, item_id=row.id, claim_token=row.claim_token
        )

    def ask(self, owner: Owner, wanted: TurnRequest, item: Item | None) -> None:
        self.asked.append((owner, wanted, item))
        session = self.model.sessions[wanted.session_id]
        same = self.model.turns.get(wanted.turn_id)
        takeover = session.lock is not None
        expected = self.model.answer(owner.token, wanted, item)
        answer = self.world.do(admit(self.world.store, owner, wanted, self.clock))
        if expected == "accepted-again":
            assert isinstance(answer, Accepted), answer
            assert same is not None
            assert answer.lease_token == same.token
        elif expected == "accepted":
            assert isinstance(answer, Accepted), (answer, session)
            assert answer.is_takeover == takeover
            is_clear = wanted.clears_paused and answer.is_queue_paused
            self.model.accept(owner.token, wanted, item, answer.lease_token, is_clear)
        elif expected == "replayed":
            assert isinstance(answer, Replayed), answer
        else:
            assert isinstance(answer, Rejected), (answer, expected)
            assert answer.reason == expected

    # what a turn does

    @precondition(lambda self: any(not turn.wrote for turn in self.locked()))
    @rule(data=st.data(), with_rows=st.sampled_from([True, True, False]))
    def write_the_prompt(self, data: st.DataObject, with_rows: bool) -> None:
        turn = data.draw(st.sampled_from([one for one in self.locked() if not one.wrote]))
        self.write(turn, with_rows)

    def write(self, turn: Turn, with_rows: bool) -> None:
        self.open(turn)
        message_id = self.world.prompt(turn.session, turn.id, with_rows=with_rows)
        turn.wrote = True
        item = turn.item
        if item is not None:
            item.prompts += 1
            if with_rows and item in self.model.sessions[turn.session].line:
                self.model.leave(self.model.sessions[turn.session], item, "delivered")
        if not with_rows:
            self.tails[turn.session].append((turn.id, message_id))

    def open(self, turn: Turn) -> None:
        """What a new owner does before it writes: the rows that the one before left out."""
        session = self.model.sessions[turn.session]
        for turn_id, message_id in self.tails[turn.session]:
            self.world.say(turn.session, turn_id, message_id)
            for item in [one for one in session.line if one.turn == turn_id]:
                self.model.leave(session, item, "delivered")
            for signal in session.signals:
                if signal.message_id == message_id and signal.state == "pending":
                    signal.state = "consumed"
        self.tails[turn.session] = []
        self.world.know_history(turn.session)

    @precondition(lambda self: any(turn.wrote for turn in self.locked()))
    @rule(data=st.data(), with_rows=st.sampled_from([True, True, False]))
    def take_a_steer(self, data: st.DataObject, with_rows: bool) -> None:
        self.take(data.draw(st.sampled_from([one for one in self.locked() if one.wrote])), with_rows)

    @precondition(lambda self: self.locked())
    @rule(data=st.data(), sleeps=st.booleans())
    def be_cut_off_behind_the_history(self, data: st.DataObject, sleeps: bool) -> None:
        """What a process had written when it died, or fell asleep, has no rows."""
        turn = data.draw(st.sampled_from(self.locked()))
        if turn.wrote:
            self.take(turn, False)
        else:
            self.write(turn, False)
        if sleeps:
            self.clock.advance(1801)
        else:
            self.an_owner_dies([owner.token for owner in self.owners].index(turn.owner))

    @precondition(lambda self: self.locked())
    @rule(
        data=st.data(),
        steps=st.lists(st.sampled_from(["write", "write only history", "say", "tell", "take"]), max_size=4),
        end=st.sampled_from(["stays", "dies", "sleeps", *sorted(ENDINGS)]),
    )
    def go_on(self, data: st.DataObject, steps: list[str], end: str) -> None:
        """A turn goes some of its way in one step, and ends in one of all ways."""
        turn = data.draw(st.sampled_from(self.locked()))
        for step in steps:
            if step in ("say", "tell"):
                self.steer(0, self.ids.index(turn.session), step == "tell", None, "a")
            elif step == "take":
                self.take(turn, "write" in steps)
            elif not turn.wrote:
                self.write(turn, step == "write")
        if end == "dies":
            self.an_owner_dies([owner.token for owner in self.owners].index(turn.owner))
        elif end == "sleeps":
            self.clock.advance(1801)
        elif end != "stays":
            self.end(turn, end)

    def take(self, turn: Turn, with_rows: bool) -> None:
        session = self.model.sessions[turn.session]
        steers = [one for one in self.model.pending(session, turn.id, "steer") if not one.is_in_history]
        if not steers or self.tails[turn.session]:
            return
        signal = steers[0]
        assert signal.message_id is not None
        self.world.say(turn.session, turn.id, signal.message_id, with_rows=with_rows)
        signal.is_in_history = True
        if with_rows:
            signal.state = "consumed"
        else:
            self.tails[turn.session].append((turn.id, signal.message_id))

    @precondition(lambda self: self.locked())
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        turn = data.draw(st.sampled_from(self.locked()))
        until_ms = self.clock.boot_ms() + LEASE_MS
        assert self.world.write(lambda: turn_rows.extend_lock(turn.session, turn.token, until_ms, until_ms))
        self.model.sessions[turn.session].lease_until_ms = until_ms

    @precondition(lambda self: self.model.turns)
    @rule(data=st.data(), ending=st.sampled_from(sorted(ENDINGS)))
    def settle(self, data: st.DataObject, ending: str) -> None:
        turns = [turn for turn in self.model.turns.values() if turn.owner in self.model.alive]
        if not turns:
            return
        self.end(data.draw(st.sampled_from(turns)), ending)

    def end(self, turn: Turn, ending: str) -> None:
        end, status = ENDINGS[ending]
        if not turn.wrote and ending == "completed":
            return  # nobody answers what was not asked
        result = f"{turn.id} {ending}".encode()
        expected = self.model.settle(turn, end.outcome, end.abort_reason, result, status)
        accepted = Accepted(receipt=self.world.receipt(turn.id), lease_token=turn.token)
        assert self.world.settle(accepted, end, result) == expected

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

    def named(self, item: Item, row: QueueItem) -> None:
        """Fill in what the store has made up."""
        if item.id is None:
            assert row.source == "steer"
            item.id, item.digest = row.id, row.digest
        if item.turn is None:
            assert row.turn_id not in self.model.turns
            assert all(one.turn != row.turn_id for _, one in self.lined())
            item.turn = row.turn_id

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
