"""Retention: the last word on whether a session is old is said when it is sealed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mcode_exec.errors import BusyError, SessionDeletingError
from mcode_exec.records.turn import Accepted
from mcode_exec.store import session_rows
from mcode_exec.turns import archiving, deletion, retention
from mcode_exec.turns.admission import admit
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.retention import Candidate, KeptError, Wanted
from tests.unit.turns.turn_world import World, kill, request

DAY_S = 24 * 3600.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def us(world: World) -> Owner:
    return world.owner()


def wanted(world: World) -> Wanted:
    return Wanted(before_ms=world.clock.now_ms() - 1000)


def page(
    world: World, us: Owner, *, after: tuple[int, str] | None = None, limit: int = 10
) -> list[Candidate]:
    found, _ = world.do(retention.page(world.store, us, world.clock, wanted(world), after, limit))
    return found


def seal(world: World, us: Owner, session_id: str) -> None:
    check = partial(retention.check, wanted=wanted(world), owner=us, clock=world.clock)
    world.do(deletion.seal(world.store, us, session_id, world.clock, check))


def run_turn(world: World, owner: Owner, session_id: str) -> None:
    turn = request(session_id, "turn_00000000-0000-4000-8000-000000000001")
    assert isinstance(world.do(admit(world.store, owner, turn, world.clock)), Accepted)


def test_a_turn_that_begins_after_the_list_was_read_wins(world: World, us: Owner) -> None:
    session = world.session()
    world.clock.advance(90 * DAY_S)
    (found,) = page(world, us)
    assert (found.session.id, found.reason) == (session.id, None)
    run_turn(world, world.owner(), session.id)
    with pytest.raises(KeptError) as told:
        seal(world, us, session.id)
    assert told.value.reason == "recent"
    assert world.find_session(session.id).deleting_by is None
    assert page(world, us) == []


def test_a_long_turn_of_a_living_process_is_running_and_that_of_a_dead_one_is_not(
    world: World, us: Owner
) -> None:
    session = world.session()
    other = world.owner()
    run_turn(world, other, session.id)
    world.clock.advance(60.0)
    (found,) = page(world, us)
    assert found.reason == "running"
    with pytest.raises(KeptError):
        seal(world, us, session.id)
    with pytest.raises(BusyError):
        world.do(archiving.archive(world.store, us, session.id, world.clock))
    kill(other)
    assert [one.reason for one in page(world, us)] == [None]
    seal(world, us, session.id)


def test_what_another_process_deletes_is_its_own(world: World, us: Owner) -> None:
    session = world.session()
    world.clock.advance(DAY_S)
    seal(world, world.owner(), session.id)
    with pytest.raises(SessionDeletingError):
        seal(world, us, session.id)
    assert page(world, us) == []


def test_pages_give_each_old_session_once_the_oldest_first(world: World, us: Owner) -> None:
    made = []
    for _ in range(7):
        # two at a time have one age
        made += sorted(world.session().id for _ in range(2))
        world.clock.advance(10.0)
    young = world.session().id
    found: list[str] = []
    after: tuple[int, str] | None = None
    while True:
        some, after = world.do(retention.page(world.store, us, world.clock, wanted(world), after, 3))
        found += [one.session.id for one in some]
        if after is None:
            break
    assert found == made
    assert young not in found


def test_a_member_that_is_young_keeps_the_whole_family(world: World, us: Owner) -> None:
    parent, child = world.session(), world.session()

    def make_child() -> None:
        session_rows.update_session(
            child.id,
            parent_id=parent.id,
            session_kind="peek",
            activity_ms=world.clock.now_ms() + int(DAY_S * 1000),
        )

    world.do(world.store.write(make_child))
    world.clock.advance(DAY_S)
    assert page(world, us) == []
    with pytest.raises(KeptError):
        seal(world, us, parent.id)
    world.clock.advance(2.0)
    (found,) = page(world, us)
    assert [one.id for one in found.members] == [parent.id, child.id]
