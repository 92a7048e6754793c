"""The fence: who comes later waits for what somebody stands behind, and for nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcode_exec.records.turn import PASSING, Rejected
from mcode_exec.store import queue_state_rows
from mcode_exec.turns import queue
from mcode_exec.turns.owner import Owner
from tests.unit.turns.line_world import LineWorld, accepted
from tests.unit.turns.turn_world import kill


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LineWorld]:
    made = LineWorld(tmp_path)
    yield made
    made.close()


@pytest.fixture
def us(world: LineWorld) -> Owner:
    return world.owner()


@pytest.fixture
def session(world: LineWorld) -> str:
    return world.session().id


def reason(answer: object) -> str:
    assert isinstance(answer, Rejected), answer
    return answer.reason


def test_items_that_nobody_drains_hold_nobody_up(world: LineWorld, us: Owner, session: str) -> None:
    world.add(us, session)
    world.add(us, session)
    answer = accepted(world.admit(us, session, "turn_1"))
    assert (answer.passed_items, answer.is_queue_paused) == (2, False)


@pytest.mark.parametrize("of", ["this session", queue_state_rows.EVERY_SESSION])
def test_an_item_that_a_live_process_drains_goes_first(
    world: LineWorld, us: Owner, session: str, of: str
) -> None:
    drainer = world.owner()
    world.drain(drainer, session if of == "this session" else of)
    accepted(world.admit(us, world.session().id, "turn_0"))  # nothing is in that line
    world.add(us, session)
    assert reason(world.admit(us, session, "turn_1")) == "priority-blocked"
    kill(drainer)
    accepted(world.admit(us, session, "turn_1"))


def test_an_item_that_has_expired_holds_nobody_up(world: LineWorld, us: Owner, session: str) -> None:
    world.drain(us, session)
    world.add(us, session, ttl_s=10)
    world.clock.advance(10)
    accepted(world.admit(us, session, "turn_1"))


def test_a_paused_queue_holds_nobody_up_and_is_told(world: LineWorld, us: Owner, session: str) -> None:
    world.drain(us, session)
    world.add(us, session)
    world.do(queue.pause(world.store, session, world.clock))
    answer = accepted(world.admit(us, session, "turn_1"))
    assert (answer.passed_items, answer.is_queue_paused, answer.cleared_items) == (1, True, 0)
    assert len(world.items(session)) == 1


def test_a_paused_queue_is_emptied_by_who_asks_for_that(world: LineWorld, us: Owner, session: str) -> None:
    world.add(us, session)
    place = world.wait(us, session)
    world.do(queue.pause(world.store, session, world.clock))
    answer = accepted(world.admit_item(us, place, clears_paused=True))
    assert (answer.passed_items, answer.cleared_items) == (0, 1)
    assert [item.id for item in world.items(session)] == [place.id]
    assert world.pause(session) is None


def test_a_queue_that_is_not_paused_is_not_emptied(world: LineWorld, us: Owner, session: str) -> None:
    world.add(us, session)
    assert accepted(world.admit(us, session, "turn_1", clears_paused=True)).cleared_items == 0
    assert len(world.items(session)) == 1


def test_a_waiter_goes_first_until_it_dies(world: LineWorld, us: Owner, session: str) -> None:
    waiter = world.owner()
    place = world.wait(waiter, session)
    assert reason(world.admit(us, session, "turn_1")) == "priority-blocked"
    kill(waiter)
    accepted(world.admit(us, session, "turn_1"))
    assert world.item(place.id) is None


def test_waiters_come_one_after_the_other(world: LineWorld, us: Owner, session: str) -> None:
    first, second = world.wait(us, session), world.wait(world.owner(), session)
    other = world.owners[-1]
    assert reason(world.admit_item(other, second)) == "priority-blocked"
    turn = accepted(world.admit_item(us, first))
    world.prompt(session, first.turn_id)
    world.settle(turn)
    accepted(world.admit_item(other, second))


def test_a_waiter_does_not_pass_what_stands_ahead_though_nobody_drains_it(
    world: LineWorld, us: Owner, session: str
) -> None:
    world.add(us, session)
    place = world.wait(us, session)
    assert reason(world.admit_item(us, place)) == "priority-blocked"
    claimed = world.claim(us, session, before=place.position)
    assert claimed is not None
    assert reason(world.admit_item(us, place)) == "priority-blocked"
    turn = accepted(world.admit_item(us, claimed))
    world.prompt(session, claimed.turn_id)
    world.settle(turn)
    accepted(world.admit_item(us, place))


def test_a_waiter_that_was_admitted_and_lost_its_lease_stands_in_nobodys_way(
    world: LineWorld, us: Owner, session: str
) -> None:
    asleep = world.owner()
    place = world.wait(asleep, session)
    turn = accepted(world.admit_item(asleep, place))
    world.clock.advance(1801)
    answer = accepted(world.admit(us, session, "turn_1"))
    assert answer.is_takeover
    assert world.item(place.id) is None
    assert world.settle(turn) == "lost"


@pytest.mark.parametrize("ends", ["its claimant dies", "its time is up"])
def test_a_waiter_is_admitted_when_the_claim_of_another_item_is_over(
    world: LineWorld, us: Owner, session: str, ends: str
) -> None:
    place = world.wait(us, session)
    other = world.owner()
    item = world.add(other, session)
    assert world.claim_item(other, item.id) is not None
    assert reason(world.admit_item(us, place)) == "priority-blocked"
    assert reason(world.admit_item(us, place, priority="retry-continuation")) == "priority-blocked"
    if ends == "its time is up":
        world.clock.advance(31)
    else:
        kill(other)
    accepted(world.admit_item(us, place))
    assert [one.state for one in world.items(session)] == ["claimed", "queued"]


@pytest.mark.parametrize("priority", sorted(PASSING))
def test_a_continuation_passes_all_that_stands_ahead(
    world: LineWorld, us: Owner, session: str, priority: str
) -> None:
    world.drain(us, session)
    world.add(us, session)
    world.wait(world.owner(), session)
    assert reason(world.admit(us, session, "turn_1")) == "priority-blocked"
    accepted(world.admit(us, session, "turn_1", priority=priority))


def test_a_claimed_item_does_not_pass_a_waiter_that_was_there_before(
    world: LineWorld, us: Owner, session: str
) -> None:
    place = world.wait(us, session)
    drainer = world.owner()
    item = world.add(drainer, session)
    claimed = world.claim_item(drainer, item.id)
    assert claimed is not None
    assert reason(world.admit_item(drainer, claimed)) == "priority-blocked"
    assert world.do(queue.remove(world.store, place.id, "cancelled", world.clock))
    accepted(world.admit_item(drainer, claimed))
