"""Claims: one item is delivered once, whoever dies, sleeps or comes back while it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcode_exec.records.turn import Accepted, Ending, Rejected, Replayed
from mcode_exec.turns import claims, queue
from mcode_exec.turns.admission import admit
from mcode_exec.turns.owner import Owner
from tests.unit.turns.line_world import LineWorld, accepted
from tests.unit.turns.turn_world import kill, request

ABORTED = Ending(outcome="aborted", abort_reason="signal")


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


def test_items_are_claimed_in_the_order_of_the_line(world: LineWorld, us: Owner, session: str) -> None:
    added = [world.add(us, session, str(number)) for number in range(3)]
    for item in added:
        claimed = world.claim(us, session)
        assert claimed is not None
        assert claimed.id == item.id
        turn = accepted(world.admit_item(us, claimed))
        world.prompt(session, claimed.turn_id)
        assert world.settle(turn) == "settled"
    assert world.claim(us, session) is None


def test_a_second_item_is_not_claimed_while_one_is_being_delivered(
    world: LineWorld, us: Owner, session: str
) -> None:
    world.add(us, session, "1")
    second = world.add(us, session, "2")
    assert world.claim(us, session) is not None
    assert world.claim(world.owner(), session) is None
    assert world.claim_item(world.owner(), second.id) is None


def test_a_dead_claimant_is_in_nobodys_way(world: LineWorld, us: Owner, session: str) -> None:
    first = world.add(us, session, "1")
    world.add(us, session, "2")
    dead = world.owner()
    assert world.claim(dead, session) is not None
    kill(dead)
    claimed = world.claim(us, session)
    assert claimed is not None
    assert claimed.id == first.id
    assert claimed.turn_id == first.turn_id  # it was never submitted


def test_an_item_claimed_by_the_dead_is_claimed_by_name(world: LineWorld, us: Owner, session: str) -> None:
    item = world.add(us, session)
    dead = world.owner()
    assert world.claim(dead, session) is not None
    kill(dead)
    assert world.claim_item(us, item.id) is not None


def test_a_claim_that_has_run_out_is_in_nobodys_way(world: LineWorld, us: Owner, session: str) -> None:
    item = world.add(us, session)
    slow = world.owner()
    assert world.claim(slow, session) is not None
    world.clock.advance(29)
    assert world.claim(us, session) is None
    world.clock.advance(2)
    claimed = world.claim(us, session)
    assert claimed is not None
    assert claimed.id == item.id


@pytest.mark.parametrize("step_s", [-86_400, 86_400])
def test_a_stepping_wall_clock_ends_no_claim(
    world: LineWorld, us: Owner, session: str, step_s: float
) -> None:
    world.add(us, session, ttl_s=10 * 86_400)
    assert world.claim(world.owner(), session) is not None
    world.clock.step_wall(step_s)
    assert world.claim(us, session) is None


def test_who_slept_past_its_claim_neither_runs_nor_gives_back_what_is_anothers(
    world: LineWorld, us: Owner, session: str
) -> None:
    world.add(us, session)
    slow = world.owner()
    stale = world.claim(slow, session)
    world.clock.advance(31)
    claimed = world.claim(us, session)
    assert stale is not None
    assert claimed is not None
    assert not world.do(claims.release(world.store, stale))
    assert not world.do(claims.drop(world.store, stale))
    turn = accepted(world.admit_item(us, claimed))
    refused = world.admit_item(slow, stale)
    assert isinstance(refused, Rejected)
    assert refused.reason == "active-turn"
    world.prompt(session, claimed.turn_id)
    world.settle(turn)
    assert isinstance(world.admit_item(slow, stale), Replayed)


def test_who_slept_past_its_claim_is_refused_before_the_other_submits(
    world: LineWorld, us: Owner, session: str
) -> None:
    world.add(us, session)
    slow = world.owner()
    stale = world.claim(slow, session)
    world.clock.advance(31)
    assert stale is not None
    assert world.claim(us, session) is not None
    refused = world.admit_item(slow, stale)
    assert isinstance(refused, Rejected)
    assert refused.reason == "item-gone"


def test_an_item_is_not_run_without_a_claim(world: LineWorld, us: Owner, session: str) -> None:
    refused = world.admit_item(us, world.add(us, session))
    assert isinstance(refused, Rejected)
    assert refused.reason == "item-gone"


def test_a_place_in_line_is_used_by_nobody_else(world: LineWorld, us: Owner, session: str) -> None:
    refused = world.admit_item(us, world.wait(world.owner(), session))
    assert isinstance(refused, Rejected)
    assert refused.reason == "item-gone"


def test_a_released_item_that_was_submitted_gets_a_new_turn_id_and_remembers_the_old(
    world: LineWorld, us: Owner, session: str
) -> None:
    item = world.add(us, session)
    ids = {item.turn_id}
    for _ in range(25):
        claimed = world.claim(us, session)
        assert claimed is not None
        world.settle(accepted(world.admit_item(us, claimed)), ABORTED)
        world.do(queue.unpause(world.store, session))
        again = world.item(item.id)
        assert again is not None
        assert again.state == "queued"
        assert again.position == item.position
        assert again.earlier_turns[-1] == claimed.turn_id
        assert len(again.earlier_turns) <= 20
        ids.add(again.turn_id)
    assert len(ids) == 26


def test_a_released_item_that_was_not_submitted_keeps_its_turn_id(
    world: LineWorld, us: Owner, session: str
) -> None:
    item = world.add(us, session)
    claimed = world.claim(us, session)
    assert claimed is not None
    assert world.do(claims.release(world.store, claimed))
    assert world.item(item.id) == item
    assert not world.do(claims.release(world.store, claimed))


def test_nothing_is_claimed_from_a_paused_queue_but_by_name(
    world: LineWorld, us: Owner, session: str
) -> None:
    item = world.add(us, session)
    assert world.do(queue.pause(world.store, session, world.clock))
    assert world.claim(us, session) is None
    claimed = world.claim_item(us, item.id)
    assert claimed is not None
    accepted(world.admit_item(us, claimed))


def test_what_has_expired_is_not_claimed(world: LineWorld, us: Owner, session: str) -> None:
    old = world.add(us, session, "old", ttl_s=10)
    named = world.add(us, session, "named", ttl_s=10)
    new = world.add(us, session, "new", ttl_s=100)
    world.clock.advance(10)
    assert world.claim_item(us, named.id) is None
    claimed = world.claim(us, session)
    assert claimed is not None
    assert claimed.id == new.id
    assert world.item(old.id) is None
    assert world.item(named.id) is None


def test_a_claim_stops_before_the_place_of_the_waiter_that_dispatches(
    world: LineWorld, us: Owner, session: str
) -> None:
    first = world.add(us, session, "1")
    place = world.wait(us, session)
    world.add(us, session, "2")
    claimed = world.claim(us, session, before=place.position)
    assert claimed is not None
    assert claimed.id == first.id
    world.do(claims.drop(world.store, claimed))
    assert world.claim(us, session, before=place.position) is None


def test_a_claim_does_not_pass_a_live_waiter(world: LineWorld, us: Owner, session: str) -> None:
    waiter = world.owner()
    world.wait(waiter, session)
    item = world.add(us, session)
    assert world.claim(us, session) is None
    kill(waiter)
    claimed = world.claim(us, session)
    assert claimed is not None
    assert claimed.id == item.id


@pytest.mark.parametrize("moments", range(6))
def test_an_admission_that_is_cut_off_holds_no_session(
    world: LineWorld, us: Owner, session: str, moments: int
) -> None:
    item = world.add(us, session)
    claimed = world.claim(us, session)
    assert claimed is not None
    wanted = request(
        session, claimed.turn_id, digest=item.digest, item_id=item.id, claim_token=claimed.claim_token
    )

    async def cut_off() -> None:
        task = asyncio.ensure_future(admit(world.store, us, wanted, world.clock))
        for _ in range(moments):
            await asyncio.sleep(0 if moments < 5 else 0.05)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or isinstance(task.result(), Accepted)

    world.do(cut_off())
    lock = world.lock(session)
    if lock is not None:
        assert moments == 5  # it had been answered
        return
    world.do(claims.release(world.store, claimed))
    (again,) = world.items(session)
    assert (again.id, again.state) == (item.id, "queued")
    claimed = world.claim(us, session)
    assert claimed is not None
    accepted(world.admit_item(us, claimed))


@pytest.mark.parametrize("dies", [True, False], ids=["dead", "asleep past its lease"])
@pytest.mark.parametrize("wrote", [True, False], ids=["prompt in history", "no prompt yet"])
def test_the_next_claim_ends_a_delivery_that_is_over(
    world: LineWorld, us: Owner, session: str, dies: bool, wrote: bool
) -> None:
    item = world.add(us, session, "1", ttl_s=1e6)
    second = world.add(us, session, "2", ttl_s=1e6)
    other = world.owner()
    claimed = world.claim(other, session)
    assert claimed is not None
    accepted(world.admit_item(other, claimed))
    if wrote:
        world.prompt(session, claimed.turn_id, with_rows=False)
    world.clock.advance(1000)
    assert world.claim(us, session) is None  # how long it may take is the lease's word
    if dies:
        kill(other)
    else:
        world.clock.advance(801)
    again = world.claim(us, session)
    assert again is not None
    assert again.id == (second.id if wrote else item.id)
    assert again.turn_id not in (claimed.turn_id,)
    assert (world.item(item.id) is None) == wrote
    assert world.receipt(claimed.turn_id).reason == "process-restart"
    assert world.find_session(session).status == "interrupted"
    accepted(world.admit_item(us, again))


@pytest.mark.parametrize("wrote", [True, False], ids=["prompt in history", "no prompt yet"])
def test_a_turn_that_was_stopped_gives_its_item_back_unless_its_prompt_is_in_history(
    world: LineWorld, us: Owner, session: str, wrote: bool
) -> None:
    item = world.add(us, session)
    claimed = world.claim(us, session)
    assert claimed is not None
    turn = accepted(world.admit_item(us, claimed))
    if wrote:
        world.prompt(session, claimed.turn_id, with_rows=False)
    assert world.settle(turn, ABORTED) == "settled"
    assert (world.item(item.id) is None) == wrote
