"""A world with lines of items: what drainers, waiters and those who steer do in it, one call each."""

from __future__ import annotations

import os
from typing import Any

from mcode_exec.ids import user_message_id
from mcode_exec.records.history import GenerationHeader, HistoryRecord, Message, TextBlock
from mcode_exec.records.queue import Pause, QueueItem, QueuePayload
from mcode_exec.records.signal import TurnSignal
from mcode_exec.records.turn import Accepted, Admission, Ending
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.layout import history_paths
from mcode_exec.sessions.lines import serialise
from mcode_exec.sessions.record_rows import RecordRows
from mcode_exec.store import queue_rows, queue_state_rows, session_rows, signal_rows, tables, turn_rows
from mcode_exec.turns import claims, queue, steering
from mcode_exec.turns.aborting import AbortTarget, request_abort
from mcode_exec.turns.admission import admit
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.settlement import Settled, settle
from mcode_exec.turns.steering import Steered
from tests.unit.turns.turn_world import World, request

COMPLETED = Ending(outcome="completed")


def payload(text: str) -> QueuePayload:
    return QueuePayload(content=(TextBlock(text=text),))


class LineWorld(World):
    # doing

    def add(self, owner: Owner, session_id: str, text: str = "do it", **how: Any) -> QueueItem:
        return self.added(owner, session_id, text, **how)[0]

    def added(self, owner: Owner, session_id: str, text: str = "do it", **how: Any) -> tuple[QueueItem, bool]:
        how = {"digest": "digest of " + text, **how}
        return self.do(queue.add(self.store, owner, session_id, payload(text), self.clock, **how))

    def wait(self, owner: Owner, session_id: str, text: str = "do mine") -> QueueItem:
        return self.add(owner, session_id, text, waits=True)

    def drain(self, owner: Owner, session_id: str) -> None:
        now_ms = self.clock.now_ms()
        self.write(lambda: queue_state_rows.put_drainer(session_id, owner.token, now_ms))

    def claim(self, owner: Owner, session_id: str, before: int | None = None) -> QueueItem | None:
        return self.do(claims.claim_next(self.store, owner, session_id, self.clock, before=before))

    def claim_item(self, owner: Owner, item_id: str) -> QueueItem | None:
        return self.do(claims.claim_item(self.store, owner, item_id, self.clock))

    def admit(self, owner: Owner, session_id: str, turn_id: str, **more: Any) -> Admission:
        return self.do(admit(self.store, owner, request(session_id, turn_id, **more), self.clock))

    def admit_item(self, owner: Owner, item: QueueItem, **more: Any) -> Admission:
        return self.admit(
            owner,
            item.session_id,
            item.turn_id,
            digest=item.digest,
            item_id=item.id,
            claim_token=item.claim_token,
            **more,
        )

    def settle(self, accepted: Accepted, ending: Ending = COMPLETED, result: bytes = b"r") -> Settled:
        return self.do(
            settle(
                self.store,
                session_id=accepted.receipt.session_id,
                turn_id=accepted.receipt.turn_id,
                lease_token=accepted.lease_token,
                ending=ending,
                result=result,
                clock=self.clock,
            )
        )

    def steer(self, owner: Owner, session_id: str, text: str = "also this", **how: Any) -> Steered:
        how = {"producer": "mcode", **how}
        return self.do(steering.steer(self.store, owner, session_id, text, self.clock, **how))

    def abort(self, owner: Owner, session_id: str, turn_id: str | None = None) -> AbortTarget:
        return self.do(request_abort(self.store, owner, session_id, self.clock, turn_id=turn_id))

    def prompt(self, session_id: str, turn_id: str, *, with_rows: bool = True) -> str:
        """Commit a turn's prompt, or only its history, as a process does that dies before the rows."""
        message_id = user_message_id(session_id, "turn:" + turn_id)
        self.say(session_id, turn_id, message_id, with_rows=with_rows)
        return message_id

    def say(self, session_id: str, turn_id: str, message_id: str, *, with_rows: bool = True) -> None:
        message = Message(role="user", content=(TextBlock(text="said"),))
        record = HistoryRecord(id=message_id, turn_id=turn_id, at_ms=self.clock.now_ms(), message=message)
        if not with_rows:
            session = self.find_session(session_id)
            paths = history_paths(self.sessions_dir, session.history_relative_dir)
            os.makedirs(paths.directory, exist_ok=True)
            header = None
            if not os.path.exists(paths.messages):
                header = GenerationHeader(generation=1, session_id=session_id, at_ms=record.at_ms)
            with open(paths.messages, "ab") as file:
                file.write(serialise(header, (record,)))
            return
        self.write(lambda: RecordRows(session_id, Redactor(())).write([record]))

    def know_history(self, session_id: str) -> None:
        """The session's row knows all of its history file."""
        session = self.find_session(session_id)
        path = history_paths(self.sessions_dir, session.history_relative_dir).messages
        size = os.path.getsize(path) if os.path.exists(path) else 0
        self.write(lambda: session_rows.update_session(session_id, history_bytes=size))

    # what the store holds

    def write(self, work: Any) -> Any:
        return self.do(self.store.write(work))

    def read(self, work: Any) -> Any:
        return self.do(self.store.read(work))

    def items(self, session_id: str) -> list[QueueItem]:
        found: list[QueueItem] = self.read(lambda: queue_rows.page_items(session_id, limit=10_000))
        return found

    def item(self, item_id: str) -> QueueItem | None:
        found: QueueItem | None = self.read(lambda: queue_rows.find_item(item_id))
        return found

    def pause(self, session_id: str) -> Pause | None:
        found: Pause | None = self.read(lambda: queue_state_rows.find_pause(session_id))
        return found

    def signals(self, session_id: str) -> list[TurnSignal]:
        def all_of_them() -> list[TurnSignal]:
            query = tables.TurnSignals.select(*signal_rows._FIELDS).order_by(tables.TurnSignals.row)
            return [
                signal_rows._signal(row)
                for row in tables.dicts(query.where(tables.TurnSignals.session_id == session_id))
            ]

        found: list[TurnSignal] = self.read(all_of_them)
        return found

    def expire_lock(self, session_id: str) -> None:
        """The lease of whoever holds a session runs out, without any other clock moving."""
        self.write(lambda: turn_rows.extend_lock(session_id, self.held(session_id).token, 1, 1))

    def held(self, session_id: str) -> turn_rows.Lock:
        lock = turn_rows.find_lock(session_id)
        assert lock is not None
        return lock


def accepted(answer: Admission) -> Accepted:
    assert isinstance(answer, Accepted), answer
    return answer
