"""Recovery and settlement of the line: what the dead leave is given back once, what lives is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcode_exec.records.queue import ITEM_TTL_S
from mcode_exec.records.signal import TurnSignal
from mcode_exec.records.turn import Ending
from mcode_exec.store import queue_rows, queue_state_rows, signal_rows, turn_rows
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.recovery import Recovered
from tests.unit.turns.line_world import COMPLETED, LineWorld, accepted
from tests.unit.turns.turn_world import kill

FAILED = Ending(outcome="failed", error=RuntimeError("x"))


def aborted(reason: str) -> Ending:
    return Ending(outcome="aborted", abort_reason=reason)  # type: ignore[arg-type]


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


def test_what_the_dead_leave_in_a_line_is_cleared_away_once(
    world: LineWorld, us: Owner, session: str
) -> None:
    dead = world.owner()
    item = world.add(dead, session)
    place = world.wait(dead, session)
    world.drain(dead, session)
    assert world.claim(dead, session) is not None
    lost = world.wait(dead, session)
    world.write(lambda: queue_rows.delete_item(lost.id))
    kill(dead)
    done = world.recover(us)
    assert (done.claims, done.places) == (1, 1)
    assert world.items(session) == [item]
    assert world.item(place.id) is None
    assert world.read(lambda: queue_state_rows.drainers(session)) == []
    assert world.recover(us) == Recovered()


def test_what_the_living_have_is_left_alone(world: LineWorld, us: Owner, session: str) -> None:
    other = world.owner()
    world.drain(other, session)
    world.add(other, session)
    claimed = world.claim(other, session)
    place = world.wait(other, session)
    assert world.recover(us) == Recovered()
    assert world.items(session) == [claimed, place]
    assert world.read(lambda: queue_state_rows.drainers(session)) == [other.token]


def test_a_claim_is_given_back_when_its_time_is_up_though_its_owner_lives(
    world: LineWorld, us: Owner, session: str
) -> None:
    item = world.add(us, session)
    claimed = world.claim(us, session)
    assert claimed is not None
    world.clock.advance(31)
    woken = world.read(lambda: queue_state_rows.find_wake(session))
    assert world.recover(world.owner()).claims == 1
    assert world.items(session) == [item]
    assert world.read(lambda: queue_state_rows.find_wake(session)) == woken + 1


def test_a_claim_of_another_boot_is_judged_by_the_wall_clock(
    world: LineWorld, us: Owner, session: str
) -> None:
    item = world.add(us, session)
    world.claim(us, session)
    world.write(lambda: queue_rows.update_item(item.id, claim_boot_id="another"))
    assert world.recover(us).claims == 0
    world.clock.step_wall(-3600)  # it cannot end an hour from now: that clock was wrong
    assert world.recover(us).claims == 1


@pytest.mark.parametrize("wrote", [True, False])
def test_an_item_whose_turn_died_is_delivered_again_only_if_its_prompt_is_not_in_history(
    world: LineWorld, us: Owner, session: str, wrote: bool
) -> None:
    dead = world.owner()
    item = world.add(dead, session)
    claimed = world.claim(dead, session)
    assert claimed is not None
    accepted(world.admit_item(dead, claimed))
    if wrote:
        world.prompt(session, claimed.turn_id, with_rows=False)
    kill(dead)
    world.recover(us)
    assert world.receipt(claimed.turn_id).reason == "process-restart"
    found = world.item(item.id)
    if wrote:
        assert found is None
    else:
        assert found is not None
        assert found.state == "queued"
        assert found.earlier_turns == (claimed.turn_id,)
        assert found.turn_id != claimed.turn_id


def test_a_torn_prompt_is_none(world: LineWorld, us: Owner, session: str) -> None:
    dead = world.owner()
    item = world.add(dead, session)
    claimed = world.claim(dead, session)
    assert claimed is not None
    accepted(world.admit_item(dead, claimed))
    world.prompt(session, claimed.turn_id, with_rows=False)
    (path,) = Path(world.sessions_dir).rglob("messages.jsonl")
    path.write_bytes(path.read_bytes()[:-1])
    kill(dead)
    world.recover(us)
    assert world.item(item.id) is not None


def test_a_turn_whose_lock_row_is_gone_is_settled_with_all_that_hung_on_it(
    world: LineWorld, us: Owner, session: str
) -> None:
    item = world.add(us, session)
    claimed = world.claim(us, session)
    assert claimed is not None
    turn = accepted(world.admit_item(us, claimed))
    world.steer(us, session, "a")
    world.abort(us, session)
    world.write(lambda: turn_rows.delete_lock(session, turn.lease_token))
    world.recover(us)
    assert world.receipt(claimed.turn_id).reason == "process-restart"
    assert world.find_session(session).status == "interrupted"
    assert [signal.state for signal in world.signals(session)] == ["requeued", "consumed"]
    assert [one.source for one in world.items(session)] == ["api", "steer"]
    assert world.items(session)[0].id == item.id
    assert world.recover(us) == Recovered()


def test_expired_items_leave_and_their_waiters_learn_it(world: LineWorld, us: Owner, session: str) -> None:
    world.add(us, session, ttl_s=10)
    place = world.add(us, session, ttl_s=10, waits=True)
    stays = world.add(us, session, ttl_s=20)
    world.clock.advance(10)
    assert world.recover(us).expired == 2
    assert world.items(session) == [stays]
    removal = world.read(lambda: queue_state_rows.find_removal(place.id))
    assert removal is not None
    assert removal.reason == "expired"


def test_an_old_abort_goes_with_the_item_that_it_was_for(world: LineWorld, us: Owner, session: str) -> None:
    item = world.add(us, session)
    abort = TurnSignal(
        id="sig_1",
        session_id=session,
        turn_id=item.turn_id,
        kind="abort",
        producer="p",
        idempotency_key=None,
        is_machine=False,
        text="",
        message_id=None,
        state="pending",
        created_ms=world.clock.now_ms(),
    )
    world.write(lambda: signal_rows.insert_signal(abort))
    world.clock.advance(ITEM_TTL_S)
    found = world.recover(us)
    assert (found.expired, found.signals) == (1, 1)
    assert [signal.state for signal in world.signals(session)] == ["dropped"]
    assert world.recover(us) == Recovered()


def test_what_was_left_for_a_waiter_goes_with_it(world: LineWorld, us: Owner, session: str) -> None:
    waiter = world.owner()
    place = world.wait(waiter, session)
    world.abort(us, session, place.turn_id)
    world.recover(us)
    assert world.read(lambda: queue_state_rows.find_removal(place.id)) is not None
    kill(waiter)
    world.recover(us)
    assert world.read(lambda: queue_state_rows.find_removal(place.id)) is None


# settlement


@pytest.mark.parametrize(
    ("ending", "is_dispatched", "pause", "wakes"),
    [
        (COMPLETED, False, None, 1),
        (COMPLETED, True, None, 1),
        (FAILED, False, "turn-final-failure", 0),
        (FAILED, True, None, 0),
        (aborted("signal"), False, "user-stop", 0),
        (aborted("signal"), True, "user-stop", 0),
        (aborted("user-stop"), False, "user-stop", 0),
        (aborted("deadline"), False, None, 0),
        (aborted("limit"), False, None, 0),
        (aborted("stdout-closed"), False, None, 0),
        (aborted("session-deleting"), False, None, 0),
    ],
)
def test_the_queue_is_woken_or_held_as_the_contract_says(
    world: LineWorld, us: Owner, session: str, ending: Ending, is_dispatched: bool, pause: str, wakes: int
) -> None:
    if is_dispatched:
        world.add(us, session)
        claimed = world.claim(us, session)
        assert claimed is not None
        turn = accepted(world.admit_item(us, claimed))
        world.prompt(session, claimed.turn_id)
    else:
        turn = accepted(world.admit(us, session, "turn_1"))
    world.add(us, session)
    woken = world.read(lambda: queue_state_rows.find_wake(session))
    assert world.settle(turn, ending) == "settled"
    held = world.pause(session)
    assert (held.reason if held else None) == pause
    assert world.read(lambda: queue_state_rows.find_wake(session)) == woken + wakes


@pytest.mark.parametrize("ending", [FAILED, aborted("signal")])
def test_a_queue_without_items_is_never_held(
    world: LineWorld, us: Owner, session: str, ending: Ending
) -> None:
    turn = accepted(world.admit(us, session, "turn_1"))
    world.wait(us, session)  # it needs nobody to go on
    world.settle(turn, ending)
    assert world.pause(session) is None


def test_the_turn_that_fails_with_its_item_takes_it_along(world: LineWorld, us: Owner, session: str) -> None:
    item = world.add(us, session)
    claimed = world.claim(us, session)
    assert claimed is not None
    world.settle(accepted(world.admit_item(us, claimed)), FAILED)
    assert world.item(item.id) is None
    assert world.receipt(claimed.turn_id).outcome == "failed"


def test_a_waiters_row_goes_with_its_turn_however_it_ends(world: LineWorld, us: Owner, session: str) -> None:
    for ending in (aborted("signal"), aborted("deadline"), FAILED):
        place = world.wait(us, session)
        world.settle(accepted(world.admit_item(us, place)), ending)
        assert world.items(session) == []
