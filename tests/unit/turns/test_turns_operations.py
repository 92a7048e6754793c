"""Making a session in steps: hidden and held until it is whole, by one process at a time, whoever dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from mcode_exec.errors import BusyError, LeaseLostError
from mcode_exec.records.operation import Manifest, Operation, RewindPlan
from mcode_exec.records.session import Project, Session
from mcode_exec.records.turn import Accepted, Rejected
from mcode_exec.sessions.making import new_session, project_of
from mcode_exec.store import message_rows, operation_rows, session_rows
from mcode_exec.store.message_rows import RawMessage
from mcode_exec.turns import operations
from mcode_exec.turns.admission import admit
from mcode_exec.turns.deletion import delete_rows
from mcode_exec.turns.maintenance import maintenance
from mcode_exec.turns.owner import Owner
from tests.unit.turns.turn_world import World, kill, request


class Making:
    """One session that is being made."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.maker = self.world.owner()

    def wanted(self, key: str | None = None) -> tuple[Project, Session]:
        now_ms = self.world.clock.now_ms()
        project = project_of("/w", None, now_ms)
        session = new_session(
            project_id=project.id,
            workspace="/w",
            title="t",
            title_is_default=False,
            now_ms=now_ms,
            session_key=key,
        )
        return project, session

    def begin(self, key: str | None = None) -> tuple[Session, Operation | None]:
        world = self.world
        project, session = self.wanted(key)
        manifest = Manifest(at_ms=1, visibility="visible", is_for_itself=True)
        return world.do(operations.begin(world.store, self.maker, world.clock, project, session, manifest))

    def begun(self) -> Operation:
        _, operation = self.begin()
        assert operation is not None
        return operation

    def found(self, session_id: str) -> Operation | None:
        world = self.world
        return world.do(world.store.read(lambda: operation_rows.find_operation(session_id)))

    def take_over(self, owner: Owner, session_id: str) -> Operation | None:
        world = self.world
        return world.do(operations.take_over(world.store, owner, world.clock, session_id))

    def admission(self, session_id: str) -> Accepted | Rejected:
        world = self.world
        answered = world.do(admit(world.store, world.owner(), request(session_id, "turn_1"), world.clock))
        assert isinstance(answered, Accepted | Rejected)
        return answered


PLAN = RewindPlan(message_id="msg-user-v1-x", generation=2, snapshot="g1.jsonl")
ROWS = [RawMessage(id=f"msg-{n}", turn_id="turn_x", role="user", created_ms=n, data=b"{}") for n in range(5)]


@pytest.fixture
def making(tmp_path: Path) -> Iterator[Making]:
    made = Making(tmp_path)
    yield made
    made.world.close()


def test_until_it_is_whole_it_is_hidden_and_admits_no_turn(making: Making) -> None:
    world = making.world
    operation = making.begun()
    session_id = operation.session_id
    assert world.find_session(session_id).visibility == "hidden"
    answered = making.admission(session_id)
    assert isinstance(answered, Rejected)
    assert answered.reason == "session-mutating"
    operation = world.do(operations.let_go(world.store, operation, 7))
    assert world.lock(session_id) is None
    assert (world.find_session(session_id).visibility, world.find_session(session_id).history_bytes) == (
        "hidden",
        7,
    )
    world.do(operations.complete(world.store, operation))
    assert world.find_session(session_id).visibility == "visible"
    assert making.found(session_id) is None
    assert isinstance(making.admission(session_id), Accepted)


def test_completing_it_twice_changes_nothing_of_what_came_after(making: Making) -> None:
    world = making.world
    operation = world.do(operations.let_go(world.store, making.begun(), 0))
    world.do(operations.complete(world.store, operation))
    world.do(
        world.store.write(lambda: session_rows.update_session(operation.session_id, visibility="hidden"))
    )
    assert isinstance(making.admission(operation.session_id), Accepted)
    world.do(operations.complete(world.store, operation))
    assert world.find_session(operation.session_id).visibility == "hidden"
    assert world.lock(operation.session_id) is not None


def test_a_key_that_is_bound_gives_its_session_and_makes_none(making: Making) -> None:
    first, operation = making.begin("k")
    assert operation is not None
    again, none = making.begin("k")
    assert (again.id, none) == (first.id, None)
    assert making.world.do(making.world.store.read(session_rows.count_sessions)) == 1


def test_a_living_process_keeps_what_it_makes_and_a_dead_ones_is_taken_over_once(making: Making) -> None:
    world, operation = making.world, making.begun()
    second, third = world.owner(), world.owner()
    assert making.take_over(second, operation.session_id) is None
    assert world.recover(second).making == ()
    kill(making.maker)
    assert world.recover(second).making == (operation.session_id,)
    taken = making.take_over(second, operation.session_id)
    assert taken == structs.replace(operation, owner=second.token)
    lock = world.lock(operation.session_id)
    assert lock is not None
    assert (lock.owner, lock.kind) == (second.token, "maintenance")
    assert making.take_over(third, operation.session_id) is None


def test_who_slept_and_was_taken_for_dead_writes_nothing_more(making: Making) -> None:
    world, operation = making.world, making.begun()
    kill(making.maker)
    second = world.owner()
    taken = making.take_over(second, operation.session_id)
    assert taken is not None
    for work in (
        operations.put_rows(world.store, operation, 1, ROWS),
        operations.advance(world.store, operation, "placed"),
        operations.let_go(world.store, operation, 3),
    ):
        with pytest.raises(LeaseLostError):
            world.do(work)
    world.do(operations.put_rows(world.store, taken, 1, ROWS))
    count = world.do(world.store.read(lambda: message_rows.newest_row(operation.session_id)))
    assert count == len(ROWS)


def test_rows_that_are_written_twice_are_there_once_and_in_their_order(making: Making) -> None:
    world, operation = making.world, making.begun()
    world.do(operations.put_rows(world.store, operation, 1, ROWS[:3]))
    world.do(operations.put_rows(world.store, operation, 1, ROWS[:3]))
    world.do(operations.put_rows(world.store, operation, 4, ROWS[3:]))
    rows = world.do(world.store.read(lambda: message_rows.raw_messages_up_to(operation.session_id, 99)))
    assert [one for one, _ in rows] == [row.id for row in ROWS]


def test_a_rewind_that_is_held_keeps_all_out_but_its_turn(making: Making) -> None:
    world, session_id = making.world, making.world.session().id
    manifest = Manifest(at_ms=1, rewind=PLAN, held_for="turn_mine")
    operation = world.do(operations.note(world.store, making.maker, session_id, manifest))
    world.do(operations.hold(world.store, operation, lambda: None))
    assert world.lock(session_id) is None

    def ask(turn_id: str) -> object:
        wanted = request(session_id, turn_id)
        return world.do(admit(world.store, making.maker, wanted, world.clock))

    refused = ask("turn_other")
    assert isinstance(refused, Rejected)
    assert refused.reason == "session-mutating"
    with pytest.raises(BusyError):
        world.do(_work(world, making.maker, session_id))
    assert isinstance(ask("turn_mine"), Accepted)
    assert making.found(session_id) is None


def test_a_held_rewind_is_taken_back_by_its_process_alone(making: Making) -> None:
    world, session_id = making.world, making.world.session().id
    manifest = Manifest(at_ms=1, rewind=PLAN, held_for="turn_mine")
    operation = world.do(operations.note(world.store, making.maker, session_id, manifest))
    world.do(operations.hold(world.store, operation, lambda: None))

    def take(owner: Owner, turn_id: str) -> Operation | None:
        return world.do(operations.take_back_hold(world.store, owner, world.clock, session_id, turn_id))

    assert take(world.owner(), "turn_mine") is None
    assert take(making.maker, "turn_other") is None
    assert take(making.maker, "turn_mine") is not None
    lock = world.lock(session_id)
    assert lock is not None
    assert lock.kind == "maintenance"


async def _work(world: World, owner: Owner, session_id: str) -> None:
    async with maintenance(world.store, owner, session_id, world.clock):
        raise AssertionError("it was let in")


def test_the_manifest_goes_with_the_session(making: Making) -> None:
    world, operation = making.world, making.begun()
    world.do(delete_rows(world.store, world.find_session(operation.session_id), world.clock))
    assert making.found(operation.session_id) is None
    assert world.lock(operation.session_id) is None
