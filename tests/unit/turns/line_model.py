"""The turn system as a specification that runs: what the store must hold after every step.

Pure data and rules, no store.  An id that the store makes up (of an item that was a steer, of a turn that
is tried again) is None until the comparison with the store fills it in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mcode_exec.records.turn import PASSING, TurnRequest

CLAIM_MS = 30_000
LEASE_MS = 1_800_000
STEER_TTL_MS = 24 * 3600 * 1000


@dataclass(eq=False)
class Item:
    id: str | None
    turn: str | None
    digest: str | None
    expires_ms: int
    waiter: str | None = None
    is_claimed: bool = False
    claim_owner: str | None = None
    claim_token: str | None = None
    claim_until_ms: int = 0
    #: how often its prompt was written into history
    prompts: int = 0
    #: what became of it, once it is out of the line
    fate: str | None = None


@dataclass(eq=False)
class Signal:
    kind: str
    turn: str
    is_machine: bool
    text: str
    key: str | None
    created_ms: int
    id: str | None = None
    message_id: str | None = None
    state: str = "pending"
    is_in_history: bool = False


@dataclass(eq=False)
class Turn:
    id: str
    session: str
    digest: str
    owner: str
    token: str
    is_dispatched: bool
    item: Item | None
    outcome: str | None = None
    reason: str | None = None
    result: bytes | None = None
    wrote: bool = False


@dataclass(eq=False)
class Session:
    status: str = "idle"
    #: the turn that has the lock row, whether or not its lease is good
    lock: Turn | None = None
    lease_until_ms: int = 0
    line: list[Item] = field(default_factory=list)
    pause: str | None = None
    drainers: set[str] = field(default_factory=set)
    signals: list[Signal] = field(default_factory=list)


class Model:
    def __init__(self, now_ms: Callable[[], int], boot_ms: Callable[[], int]) -> None:
        self.now_ms, self.boot_ms = now_ms, boot_ms
        self.sessions: dict[str, Session] = {}
        self.turns: dict[str, Turn] = {}
        self.items: list[Item] = []
        self.alive: set[str] = set()

    # who holds what

    def is_held(self, session: Session) -> bool:
        lock = session.lock
        return lock is not None and lock.owner in self.alive and session.lease_until_ms > self.boot_ms()

    def claimed(self, session: Session) -> Item | None:
        return next((item for item in session.line if item.is_claimed), None)

    def is_live(self, session: Session, item: Item) -> bool:
        if session.lock is not None and session.lock.id == item.turn:
            return True
        return item.claim_owner in self.alive and item.claim_until_ms > self.boot_ms()

    def is_drained(self, session: Session) -> bool:
        return bool(session.drainers & self.alive)

    def delivered(self, session: Session) -> list[Item]:
        """Items that others deliver."""
        return [item for item in session.line if item.waiter is None]

    # the line

    def append(self, session: Session, item: Item) -> None:
        if not self.delivered(session):
            session.pause = None
        session.line.append(item)
        self.items.append(item)

    def leave(self, session: Session, item: Item, fate: str) -> None:
        session.line.remove(item)
        item.fate = "delivered" if item.prompts else fate

    def requeue(self, item: Item) -> None:
        if item.turn in self.turns:
            item.turn = None
        item.is_claimed, item.claim_owner, item.claim_token, item.claim_until_ms = False, None, None, 0

    def give_back(self, session: Session, item: Item) -> None:
        was_admitted = item.turn in self.turns
        if was_admitted and (item.waiter is not None or item.prompts):
            self.leave(session, item, "its waiter's turn is over")
        else:
            self.requeue(item)

    def is_delivering(self, session: Session) -> bool:
        item = self.claimed(session)
        if item is None:
            return False
        if session.lock is not None and session.lock.id == item.turn:
            if self.is_held(session):
                return True
            self.end_as_dead(session)
            return False
        if self.is_live(session, item):
            return True
        self.give_back(session, item)
        return False

    def next_to_claim(self, session: Session, before: Item | None) -> Item | None:
        if session.pause is not None or self.is_delivering(session):
            return None
        while (first := self.first_queued(session)) is not None and first.expires_ms <= self.now_ms():
            self.leave(session, first, "expired")
        if first is None:
            return None
        ahead = session.line[: session.line.index(first)]
        if any(item.waiter in self.alive and not item.is_claimed for item in ahead):
            return None
        return None if before is not None and before in ahead else first

    def first_queued(self, session: Session) -> Item | None:
        return next((item for item in self.delivered(session) if not item.is_claimed), None)

    # admission

    def answer(self, owner: str, wanted: TurnRequest, item: Item | None) -> str:
        """What a submission is answered; `item`: the one that it names."""
        session = self.sessions[wanted.session_id]
        same = self.turns.get(wanted.turn_id)
        if same is not None:
            if same.digest != wanted.digest:
                return "ingress-conflict"
            if same.outcome is not None:
                return "replayed"
            if session.lock is not same:
                return "ingress-conflict"
            return "accepted-again" if same.owner == owner else "active-turn"
        is_theirs = item is not None and self.is_theirs(owner, wanted, item)
        if any(self.pending(one, wanted.turn_id, "abort") for one in self.sessions.values()):
            if item is not None and is_theirs:
                self.leave(session, item, "cancelled")
            return "aborted"
        if wanted.item_id is not None and not is_theirs:
            return "item-gone"
        if self.is_held(session):
            return "active-turn"
        return "priority-blocked" if self.is_blocked(session, wanted, item) else "accepted"

    def is_theirs(self, owner: str, wanted: TurnRequest, item: Item) -> bool:
        if item not in self.sessions[wanted.session_id].line or item.turn != wanted.turn_id:
            return False
        if item.waiter is not None:
            return item.waiter == owner
        return item.is_claimed and item.claim_token == wanted.claim_token

    def is_blocked(self, session: Session, wanted: TurnRequest, item: Item | None) -> bool:
        waits = item is not None and item.waiter is not None
        if waits and self.is_delivering(session):
            return True
        if wanted.priority in PASSING:
            return False
        ahead = session.line if item is None else session.line[: session.line.index(item)]
        if any(one.waiter in self.alive and not one.is_claimed for one in ahead):
            return True
        if item is not None and not waits:
            return False
        stands_behind = waits or self.is_drained(session)
        is_earlier = any(one.waiter is None and one.expires_ms > self.now_ms() for one in ahead)
        return is_earlier and stands_behind and session.pause is None

    def accept(
        self, owner: str, wanted: TurnRequest, item: Item | None, token: str, clears_paused: bool
    ) -> None:
        session = self.sessions[wanted.session_id]
        if session.lock is not None:
            self.end_as_dead(session)
        turn = Turn(
            wanted.turn_id,
            wanted.session_id,
            wanted.digest,
            owner,
            token,
            is_dispatched=item is not None and item.waiter is None,
            item=item,
        )
        self.turns[turn.id] = turn
        session.lock, session.status = turn, "started"
        session.lease_until_ms = self.boot_ms() + LEASE_MS
        if item is not None and item.waiter is not None:
            item.is_claimed, item.claim_owner = True, owner
        if clears_paused:
            self.clear(session)

    def clear(self, session: Session) -> None:
        session.pause = None
        for item in [one for one in self.delivered(session) if not one.is_claimed]:
            self.leave(session, item, "cleared")

    # what is said to a turn

    def pending(self, session: Session, turn: str, kind: str) -> list[Signal]:
        return [one for one in session.signals if (one.turn, one.kind, one.state) == (turn, kind, "pending")]

    def end_signals(self, session: Session, turn: str) -> None:
        for signal in [one for one in session.signals if one.turn == turn and one.state == "pending"]:
            if signal.kind == "abort" or signal.is_in_history:
                signal.state = "consumed"
            elif signal.is_machine:
                signal.state = "dropped"
            else:
                signal.state = "requeued"
                self.append(session, Item(None, None, None, self.now_ms() + STEER_TTL_MS))

    # endings

    def end_as_dead(self, session: Session) -> None:
        turn = session.lock
        assert turn is not None
        if turn.outcome is None:
            turn.outcome, turn.reason = "failed", "process-restart"
        self.end_signals(session, turn.id)
        if turn.item is not None and turn.item in session.line and turn.item.turn == turn.id:
            self.give_back(session, turn.item)
        session.lock, session.status = None, "interrupted"

    def settle(self, turn: Turn, outcome: str, reason: str | None, result: bytes, status: str) -> str:
        session = self.sessions[turn.session]
        if session.lock is not turn:
            return "settled" if turn.result == result else "lost"
        if outcome == "completed" and any(one.is_machine for one in self.pending(session, turn.id, "steer")):
            return "steered"
        turn.outcome, turn.reason, turn.result = outcome, reason, result
        session.lock, session.status = None, status
        self.end_signals(session, turn.id)
        if turn.item is not None and turn.item in session.line and turn.item.turn == turn.id:
            if outcome == "aborted":
                self.give_back(session, turn.item)
            else:
                self.leave(session, turn.item, "its turn ended before its prompt")
        if self.delivered(session):
            if outcome == "aborted" and reason in ("signal", "user-stop"):
                session.pause = "user-stop"
            elif outcome == "failed" and not turn.is_dispatched:
                session.pause = "turn-final-failure"
        return "settled"

    def die(self, owner: str) -> None:
        """A place whose process is gone is as good as gone; the turn of a waiter still holds its row."""
        self.alive.discard(owner)
        for session in self.sessions.values():
            for item in [one for one in session.line if one.waiter == owner and not one.is_claimed]:
                self.leave(session, item, "its waiter died")

    def recover(self) -> None:
        for session in self.sessions.values():
            if session.lock is not None and session.lock.owner not in self.alive:
                self.end_as_dead(session)
        for session in self.sessions.values():
            session.drainers &= self.alive
            item = self.claimed(session)
            if item is not None and not self.is_live(session, item):
                self.give_back(session, item)
            for item in list(session.line):
                if item.expires_ms <= self.now_ms() and not item.is_claimed:
                    self.leave(session, item, "expired")
            for signal in session.signals:
                is_old = signal.created_ms + STEER_TTL_MS <= self.now_ms()
                waits = any(item.turn == signal.turn for one in self.sessions.values() for item in one.line)
                if signal.state == "pending" and signal.turn not in self.turns and is_old and not waits:
                    signal.state = "dropped"
