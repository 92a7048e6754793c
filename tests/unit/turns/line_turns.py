"""Rules of turns: submitted, begun, cut off, renewed, settled."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from mcode_exec.records.queue import QueueItem
from mcode_exec.records.turn import Accepted, Ending, Rejected, Replayed, TurnRequest
from mcode_exec.store import turn_rows
from mcode_exec.turns.admission import admit
from mcode_exec.turns.owner import Owner
from tests.unit.turns.line_machine import OWNERS, SESSIONS, LineMachine
from tests.unit.turns.line_model import LEASE_MS, Item, Turn
from tests.unit.turns.turn_world import request

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


class TurnRules(LineMachine):
    """What processes do with turns."""

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
