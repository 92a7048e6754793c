"""The commit door: history first, rows after, both only under the lease; what a crash leaves is finished."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from mcode_exec.clock import SystemClock
from mcode_exec.errors import LeaseLostError, StoreFailedError
from mcode_exec.records.history import HistoryRecord, ToolResultBlock
from mcode_exec.records.message import ToolCompleted, ToolError, ToolPart
from mcode_exec.records.turn import Accepted
from mcode_exec.records.usage import Usage
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.commit import CommitDoor, FailedAttempt
from mcode_exec.sessions.opening import open_door
from mcode_exec.sessions.stream import SessionStream
from mcode_exec.store import message_rows, session_rows
from mcode_exec.turns.admission import admit
from tests.unit.sessions.history_records import answer, result, user
from tests.unit.turns.turn_world import World, request


class Turn:
    """An admitted turn with its door."""

    def __init__(self, root: Path) -> None:
        self.world = World(root, SystemClock())
        self.session = self.world.session()
        self.sessions_dir = root / "sessions"
        self.sessions_dir.mkdir()
        self.stream = SessionStream()
        self.number = 0
        self.door, self.history = self.begin()

    def begin(self) -> tuple[CommitDoor, Any]:
        """Admit the next turn and open its door, as a new process would."""
        self.number += 1
        turn_id = f"turn_{self.number}"
        world = self.world
        accepted = world.do(admit(world.store, world.owner(), request(self.session.id, turn_id), world.clock))
        assert isinstance(accepted, Accepted), accepted
        self.accepted = accepted
        return world.do(
            open_door(
                store=world.store,
                sessions_dir=str(self.sessions_dir),
                session=world.find_session(self.session.id),
                stream=self.stream,
                turn_id=turn_id,
                lease_token=accepted.lease_token,
                is_takeover=accepted.is_takeover,
                agent=None,
                redactor=Redactor(),
                clock=world.clock,
            )
        )

    def commit(self, *records: HistoryRecord, **how: Any) -> None:
        for one in records:
            self.world.do(self.door.commit(one, **how))
        self.world.do(self.door.settle())

    def free(self) -> None:
        """The lock row is gone, as after a settlement."""
        self.history.close()
        self.sql("DELETE FROM session_locks")

    def sql(self, text: str) -> list[Any]:
        connection = sqlite3.connect(self.world.root / "mcode.db", timeout=5)
        with connection:
            rows = connection.execute(text).fetchall()
        connection.close()
        return rows

    def messages(self) -> list[Any]:
        rows = self.world.do(
            self.world.store.read(lambda: message_rows.messages_after(self.session.id, 0, 100))
        )
        return [message for _, message in rows]

    def shown(self) -> list[Any]:
        """The messages, whatever session they are in."""
        return [structs.replace(message, session_id="") for message in self.messages()]

    def lines(self) -> list[bytes]:
        return Path(self.history.paths.messages).read_bytes().split(b"\n")[:-1]

    def close(self) -> None:
        self.history.close()
        self.world.close()


USAGE = "SELECT message_id, kind FROM token_usage ORDER BY row"


@pytest.fixture
def turn(tmp_path: Path) -> Iterator[Turn]:
    made = Turn(tmp_path)
    yield made
    made.close()


CONVERSATION = (
    user(1),
    answer(2, "look", "call_a", "call_b"),
    result(3, "call_b"),
    result(4, "call_a"),
    answer(5, "so"),
)


@pytest.mark.parametrize("left", ["takeover", "torn tail", "welded lines"])
def test_who_wakes_while_opening_takes_nothing_from_its_successor(turn: Turn, left: str) -> None:
    turn.commit(*CONVERSATION[:2])
    messages = Path(turn.history.paths.messages)
    if left == "torn tail":
        messages.write_bytes(messages.read_bytes() + b'{"id": "ms')
    elif left == "welded lines":
        header, *records = messages.read_bytes().splitlines()
        messages.write_bytes(header + b"\n" + b"".join(records) + b"\n")
    before, inode = messages.read_bytes(), messages.stat().st_ino
    with pytest.raises(LeaseLostError):
        turn.world.do(
            open_door(
                store=turn.world.store,
                sessions_dir=str(turn.sessions_dir),
                session=turn.world.find_session(turn.session.id),
                stream=turn.stream,
                turn_id="turn_before",
                lease_token="lease_before",
                is_takeover=left == "takeover",
                agent=None,
                redactor=Redactor(),
                clock=turn.world.clock,
            )
        )
    assert (messages.read_bytes(), messages.stat().st_ino) == (before, inode)


def test_a_committed_record_is_in_history_in_rows_and_on_the_stream(turn: Turn) -> None:
    heard = turn.stream.reserve()
    turn.commit(*CONVERSATION)
    assert len(turn.lines()) == 6
    assert [message.id for message in turn.messages()] == ["msg-1", "msg-2", "msg-5"]
    assert [message.parent_id for message in turn.messages()] == [None, "msg-1", "msg-1"]
    tools = [part for part in turn.messages()[1].parts if isinstance(part, ToolPart)]
    assert [(part.call_id, type(part.state)) for part in tools] == [
        ("call_a", ToolCompleted),
        ("call_b", ToolCompleted),
    ]
    assert turn.sql("SELECT message_id, kind, input_tokens FROM token_usage ORDER BY row") == [
        ("msg-2", "answer", 3),
        ("msg-5", "answer", 3),
    ]
    told = []
    while (frame := heard.poll()) is not None:
        assert frame.record is not None
        told.append(frame.record.id)
    assert told == [record.id for record in CONVERSATION]
    assert turn.world.find_session(turn.session.id).history_bytes == turn.history.size


def test_results_of_many_calls_rewrite_their_row_a_few_times_and_are_all_there_in_the_end(turn: Turn) -> None:
    """The row of a message grows with its results: rewritten for each, it cost the square of them."""
    calls = [f"call_{number}" for number in range(400)]
    revision = "SELECT MAX(revision) FROM messages"

    async def all_at_once() -> None:
        await turn.door.commit(user(1))
        await turn.door.commit(answer(2, "look", *calls))
        for number, call_id in enumerate(calls):
            await turn.door.commit(result(3 + number, call_id, f"out of {call_id}"))

    turn.world.do(all_at_once())
    turn.world.do(turn.door.settle())
    assert turn.sql(revision)[0][0] < 60
    tools = [part.state for part in turn.messages()[1].parts if isinstance(part, ToolPart)]
    assert [state.output for state in tools if isinstance(state, ToolCompleted)] == [
        f"out of {call_id}" for call_id in calls
    ]
    assert turn.world.find_session(turn.session.id).history_bytes == turn.history.size


def test_a_result_that_was_put_off_gets_its_row_though_no_other_comes(turn: Turn) -> None:
    calls = [f"call_{number}" for number in range(40)]

    async def but_one_and_wait() -> int:
        await turn.door.commit(user(1))
        await turn.door.commit(answer(2, "look", *calls))
        for number, call_id in enumerate(calls[:-1]):
            await turn.door.commit(result(3 + number, call_id))
        deadline = asyncio.get_running_loop().time() + 30
        while await turn.world.store.read(known_bytes) != turn.history.size:
            assert asyncio.get_running_loop().time() < deadline, "its row never came"
            await asyncio.sleep(0.02)
        tools = [part for part in (await rows())[1].parts if isinstance(part, ToolPart)]
        return sum(isinstance(part.state, ToolCompleted) for part in tools)

    def known_bytes() -> int:
        session = session_rows.find_session(turn.session.id)
        assert session is not None
        return session.history_bytes

    async def rows() -> list[Any]:
        found = await turn.world.store.read(lambda: message_rows.messages_after(turn.session.id, 0, 100))
        return [message for _, message in found]

    assert turn.world.do(but_one_and_wait()) == 39


def test_without_the_lock_row_nothing_more_is_written_and_nothing_made_again(turn: Turn) -> None:
    turn.commit(user(1))
    before = turn.lines()
    turn.sql("DELETE FROM session_locks")
    for _ in range(2):
        with pytest.raises(LeaseLostError):
            turn.commit(answer(2, "late"))
    assert turn.lines() == before
    assert turn.sql("SELECT * FROM session_locks") == []
    assert [message.id for message in turn.messages()] == ["msg-1"]


def test_a_lock_that_another_token_signs_is_not_ours(turn: Turn) -> None:
    turn.commit(user(1))
    turn.sql("UPDATE session_locks SET token = 'lease_other'")
    with pytest.raises(LeaseLostError):
        turn.commit(answer(2, "late"))
    assert len(turn.lines()) == 2


def test_a_commit_that_was_cancelled_comes_to_its_end_and_the_next_follows_it(turn: Turn) -> None:
    async def main() -> None:
        first = asyncio.ensure_future(turn.door.commit(user(1)))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        await turn.door.commit(answer(2, "x"))
        await turn.door.settle()

    turn.world.do(main())
    assert [record.id for record in turn.door.records] == ["msg-1", "msg-2"]
    assert len(turn.lines()) == 3
    assert [message.id for message in turn.messages()] == ["msg-1", "msg-2"]


def test_commits_that_are_asked_for_at_once_stand_one_after_the_other(turn: Turn) -> None:
    turn.commit(user(1), answer(2, "x", "a", "b", "c"))

    async def main() -> None:
        await asyncio.gather(*(turn.door.commit(result(3 + n, call)) for n, call in enumerate("abc")))
        await turn.door.settle()

    turn.world.do(main())
    states = [part.state for part in turn.messages()[1].parts if isinstance(part, ToolPart)]
    assert [type(state) for state in states] == [ToolCompleted] * 3
    assert len(turn.lines()) == 6


def test_rows_that_cannot_be_written_close_the_door_and_the_next_turn_finishes_them(turn: Turn) -> None:
    turn.commit(user(1))
    turn.sql("CREATE TRIGGER no_rows BEFORE INSERT ON messages BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(StoreFailedError):
        turn.commit(answer(2, "look", "call_a"))
    with pytest.raises(StoreFailedError):
        turn.commit(result(3, "call_a"))
    turn.sql("DROP TRIGGER no_rows")
    assert [line[:20] for line in turn.lines()[2:]] == [b'{"id":"msg-2","turn_']
    turn.free()

    turn.door, turn.history = turn.begin()
    # the answer has its row, and its call, cut short, a result
    assert [message.id for message in turn.messages()] == ["msg-1", "msg-2"]
    turn.world.do(turn.door.settle())
    (state,) = [part.state for part in turn.messages()[1].parts if isinstance(part, ToolPart)]
    assert isinstance(state, ToolError)
    assert state.kind == "interrupted"
    repaired = turn.door.records[-1]
    assert repaired.repair == "interrupted"
    assert isinstance(repaired.message.content[0], ToolResultBlock)
    turn.commit(user(6), answer(7, "on"))
    assert turn.sql("SELECT count(*) FROM token_usage WHERE message_id = 'msg-2'") == [(1,)]


@pytest.mark.parametrize("kept", range(6))
def test_whatever_rows_a_crash_left_unwritten_are_the_same_in_the_end(tmp_path: Path, kept: int) -> None:
    """`kept` records had their rows when the process died; all of them were in history."""
    whole = Turn(make(tmp_path / "whole"))
    whole.commit(*CONVERSATION)
    expected = whole.shown(), whole.sql(USAGE)
    whole.close()
    torn = Turn(make(tmp_path / "torn"))
    torn.commit(*CONVERSATION[:kept])
    if CONVERSATION[kept:]:
        torn.history.append(CONVERSATION[kept:], 1000)
    torn.free()
    torn.door, torn.history = torn.begin()
    assert (torn.shown(), torn.sql(USAGE)) == expected
    torn.close()


def make(directory: Path) -> Path:
    directory.mkdir()
    return directory


def test_failed_attempts_are_kept_with_and_without_a_message(turn: Turn) -> None:
    billed = FailedAttempt(
        provider_id="p", model_id="m", usage=Usage(input_tokens=7, output_tokens=None), cost_usd=None
    )
    turn.commit(user(1))
    turn.commit(answer(2, "x"), failed=(billed,))
    turn.world.do(turn.door.add_failed_attempts("msg-9", (billed, billed)))
    found = turn.sql("SELECT message_id, kind, input_tokens, output_tokens FROM token_usage ORDER BY row")
    assert found == [
        ("msg-2", "answer", 3, 2),
        ("msg-2", "failed", 7, None),
        ("msg-9", "failed", 7, None),
        ("msg-9", "failed", 7, None),
    ]


def test_a_prefix_is_stored_once(turn: Turn) -> None:
    turn.commit(structs.replace(user(1), prefix="digest"), prefix_body=b"body")
    turn.commit(structs.replace(user(2), prefix="digest"), prefix_body=b"body")
    assert turn.sql("SELECT digest, body FROM prefixes") == [("digest", b"body")]
