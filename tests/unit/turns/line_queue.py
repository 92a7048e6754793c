"""Rules of the line: items come, change and go, are claimed and delivered."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from mcode_exec.records.queue import QueueItem
from mcode_exec.store import queue_state_rows
from mcode_exec.turns import claims, queue
from mcode_exec.turns.owner import Owner
from tests.unit.turns.line_machine import OWNERS, SESSIONS
from tests.unit.turns.line_model import CLAIM_MS, Item
from tests.unit.turns.line_turns import TurnRules
from tests.unit.turns.line_world import payload


class QueueRules(TurnRules):
    """What processes do with items."""

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
