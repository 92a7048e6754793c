"""Steers and aborts: one row each, taken once, and never forgotten when the turn is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcode_exec.abort import AbortScope
from mcode_exec.errors import InvocationError, SessionError
from mcode_exec.records.turn import Accepted, Ending, Rejected
from mcode_exec.store import queue_state_rows, signal_rows
from mcode_exec.turns import steering
from mcode_exec.turns.aborting import abort_outcome
from mcode_exec.turns.listening import TurnEar
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.words import MAX_WORDS_BYTES
from tests.unit.turns.line_world import LineWorld, accepted
from tests.unit.turns.turn_world import kill

FAILED = Ending(outcome="failed", error=RuntimeError("x"))
STOPPED = Ending(outcome="aborted", abort_reason="user-stop")


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


@pytest.fixture
def turn(world: LineWorld, us: Owner, session: str) -> Accepted:
    return accepted(world.admit(us, session, "turn_1"))


def states(world: LineWorld, session: str) -> list[str]:
    return [signal.state for signal in world.signals(session)]


# steering


def test_what_is_said_waits_in_order_until_it_is_in_history(
    world: LineWorld, us: Owner, session: str, turn: Accepted
) -> None:
    for text in "abc":
        world.steer(us, session, text)
    pending = world.read(lambda: signal_rows.pending("turn_1", "steer"))
    assert [signal.text for signal in pending] == ["a", "b", "c"]
    assert pending[0].message_id is not None
    world.say(session, "turn_1", pending[0].message_id)
    world.say(session, "turn_1", pending[0].message_id)
    assert states(world, session) == ["consumed", "pending", "pending"]


def test_a_session_where_nothing_runs_takes_no_steer(world: LineWorld, us: Owner, session: str) -> None:
    assert world.steer(us, session) == steering.Steered()
    dead = world.owner()
    accepted(world.admit(dead, session, "turn_1"))
    assert world.steer(us, session).signal is not None
    kill(dead)
    assert world.steer(us, session).signal is None
    with pytest.raises(SessionError, match="there is no session"):
        world.steer(us, "mvs_" + 32 * "0")


def test_a_lease_that_has_run_out_takes_no_steer(
    world: LineWorld, us: Owner, session: str, turn: Accepted
) -> None:
    world.clock.advance(1801)
    assert world.steer(us, session).signal is None


def test_a_key_is_one_steer_whatever_has_become_of_it(
    world: LineWorld, us: Owner, session: str, turn: Accepted
) -> None:
    first = world.steer(us, session, "a", idempotency_key="k")
    assert not first.is_duplicate
    world.settle(turn, FAILED)
    again = world.steer(us, session, "a", idempotency_key="k")
    assert again.is_duplicate
    assert again.signal is not None
    assert again.signal.state == "requeued"
    with pytest.raises(SessionError, match="used before with other words") as caught:
        world.steer(us, session, "b", idempotency_key="k")
    assert caught.value.code == "turn_ingress_conflict"


def test_no_two_producers_make_one_message(world: LineWorld, us: Owner, session: str, turn: Accepted) -> None:
    for producer, key in [("a:b", "c"), ("a", "b:c"), ("a", None), ("a:b", None), ("1:a", "b")]:
        world.steer(us, session, "x", producer=producer, idempotency_key=key)
    assert len({signal.message_id for signal in world.signals(session)}) == 5


def test_words_that_no_queue_takes_are_refused(
    world: LineWorld, us: Owner, session: str, turn: Accepted
) -> None:
    for text in ("x" * (MAX_WORDS_BYTES + 1), "half a pair \udc80"):
        with pytest.raises(InvocationError) as caught:
            world.steer(us, session, text)
        assert caught.value.exit_code == 2
    with pytest.raises(InvocationError):
        world.steer(us, session, idempotency_key="\udc80")
    assert world.signals(session) == []


def test_machine_steering_holds_the_close_of_an_answered_turn_only(
    world: LineWorld, us: Owner, session: str, turn: Accepted
) -> None:
    world.steer(us, session, is_machine=True)
    assert world.settle(turn) == "steered"
    receipt = world.receipt("turn_1")
    assert receipt.settled_ms is None
    assert world.settle(turn, FAILED) == "settled"
    (signal,) = world.signals(session)
    assert (signal.state, signal.reason) == ("dropped", steering.DROPPED_AT_END)
    assert world.items(session) == []


def test_a_persons_words_that_miss_the_last_step_become_an_item(
    world: LineWorld, us: Owner, session: str, turn: Accepted
) -> None:
    world.steer(us, session, "a")
    assert world.settle(turn) == "settled"
    (item,) = world.items(session)
    (signal,) = world.signals(session)
    assert (signal.state, signal.item_id) == ("requeued", item.id)
    assert item.source == "steer"
    assert world.pause(session) is None
    claimed = world.claim(us, session)
    assert claimed is not None
    accepted(world.admit_item(us, claimed))


def test_words_become_items_of_a_full_queue_too(
    world: LineWorld, us: Owner, session: str, turn: Accepted
) -> None:
    for number in range(3):
        world.steer(us, session, str(number))
    world.settle(turn, STOPPED)
    assert len(world.items(session)) == 3
    pause = world.pause(session)
    assert pause is not None
    assert pause.reason == "user-stop"


@pytest.mark.parametrize("by", ["recovery", "admission", "its own process"])
@pytest.mark.parametrize("is_machine", [True, False])
def test_a_steer_that_stands_in_history_is_not_said_again(
    world: LineWorld, us: Owner, session: str, by: str, is_machine: bool
) -> None:
    other = world.owner()
    turn = accepted(world.admit(other, session, "turn_1"))
    said = world.steer(us, session, "a", is_machine=is_machine).signal
    assert said is not None
    assert said.message_id is not None
    world.steer(us, session, "b", is_machine=is_machine)
    world.say(session, "turn_1", said.message_id, with_rows=False)
    if by == "its own process":
        world.settle(turn, STOPPED)
    else:
        kill(other)
    if by == "recovery":
        world.recover(us)
    elif by == "admission":
        accepted(world.admit(us, session, "turn_2"))
    assert states(world, session) == ["consumed", "dropped" if is_machine else "requeued"]
    assert len(world.items(session)) == (0 if is_machine else 1)


def test_a_takeover_of_a_sleeper_requeues_its_steers_once(world: LineWorld, us: Owner, session: str) -> None:
    asleep = world.owner()
    turn = accepted(world.admit(asleep, session, "turn_1"))
    world.steer(us, session, "a")
    world.clock.advance(1801)
    accepted(world.admit(us, session, "turn_2"))
    assert world.settle(turn, STOPPED) == "lost"
    assert world.settle(turn, Ending(outcome="failed", abort_reason="lease-lost")) == "lost"
    assert states(world, session) == ["requeued"]
    assert len(world.items(session)) == 1


def test_settling_twice_says_nothing_twice(world: LineWorld, us: Owner, session: str, turn: Accepted) -> None:
    world.steer(us, session, "a")
    assert world.settle(turn, FAILED, b"one") == "settled"
    accepted(world.admit(us, session, "turn_2", priority="retry-continuation"))
    world.steer(us, session, "b")
    assert world.settle(turn, FAILED, b"one") == "settled"
    assert world.settle(turn, FAILED, b"two") == "lost"
    assert world.receipt("turn_1").result == b"one"
    assert states(world, session) == ["requeued", "pending"]
    assert world.lock(session) is not None


# aborts


def test_a_running_turn_is_told_once(world: LineWorld, us: Owner, session: str, turn: Accepted) -> None:
    for turn_id in (None, "turn_1", None):
        target = world.abort(us, session, turn_id)
        assert (target.outcome, target.turn_id) == (None, "turn_1")
    assert states(world, session) == ["pending"]
    assert world.do(abort_outcome(world.store, session, "turn_1")) is None
    world.settle(turn, STOPPED)
    assert states(world, session) == ["consumed"]
    assert world.do(abort_outcome(world.store, session, "turn_1")) == "aborted"
    assert world.abort(us, session).outcome == "not-running"


def test_a_turn_that_ends_by_itself_was_released(
    world: LineWorld, us: Owner, session: str, turn: Accepted
) -> None:
    world.abort(us, session)
    world.settle(turn)
    assert world.do(abort_outcome(world.store, session, "turn_1")) == "released"


def test_another_turn_than_the_named_one_is_not_stopped(
    world: LineWorld, us: Owner, session: str, turn: Accepted
) -> None:
    target = world.abort(us, session, "turn_x")
    assert (target.outcome, target.turn_id) == ("turn-mismatch", "turn_1")
    assert world.signals(session) == []


def test_a_turn_of_another_session_is_not_stopped(
    world: LineWorld, us: Owner, session: str, turn: Accepted
) -> None:
    other = world.session().id
    waiting = world.add(us, session)
    for turn_id in ("turn_1", waiting.turn_id):
        assert world.abort(us, other, turn_id).outcome == "not-running"
    assert world.signals(other) == []
    assert world.item(waiting.id) == waiting


def test_a_queued_turn_is_taken_out_before_it_begins(world: LineWorld, us: Owner, session: str) -> None:
    place = world.wait(us, session)
    assert world.abort(us, session, place.turn_id).outcome == "aborted"
    removal = world.read(lambda: queue_state_rows.find_removal(place.id))
    assert removal is not None
    assert removal.reason == "cancelled"
    refused = world.admit_item(us, place)
    assert isinstance(refused, Rejected)
    assert refused.reason == "item-gone"


def test_a_turn_that_is_being_delivered_is_stopped_before_it_begins(
    world: LineWorld, us: Owner, session: str
) -> None:
    world.add(us, session)
    claimed = world.claim(us, session)
    assert claimed is not None
    target = world.abort(us, session)
    assert (target.outcome, target.turn_id) == (None, claimed.turn_id)
    for _ in range(2):
        refused = world.admit_item(us, claimed)
        assert isinstance(refused, Rejected)
        assert refused.reason == "aborted"
        assert world.items(session) == []  # it is not delivered again and again
    assert world.do(abort_outcome(world.store, session, claimed.turn_id)) == "aborted"


def test_a_place_whose_turn_is_stopped_before_it_begins_is_gone(
    world: LineWorld, us: Owner, session: str
) -> None:
    world.abort(us, session, "turn_1")
    place = world.add(us, session, waits=True, turn_id="turn_1")
    refused = world.admit_item(us, place)
    assert isinstance(refused, Rejected)
    assert refused.reason == "aborted"
    assert world.items(session) == []


def test_a_delivery_that_is_over_is_no_turn_to_stop(world: LineWorld, us: Owner, session: str) -> None:
    item = world.add(us, session)
    dead = world.owner()
    assert world.claim(dead, session) is not None
    kill(dead)
    assert world.abort(us, session).outcome == "not-running"
    assert world.abort(us, session, item.turn_id).outcome == "aborted"
    assert world.items(session) == []


def test_an_abort_that_comes_before_its_turn_counts(world: LineWorld, us: Owner, session: str) -> None:
    assert world.abort(us, session, "turn_1").outcome == "not-running"
    for _ in range(2):
        refused = world.admit(us, session, "turn_1")
        assert isinstance(refused, Rejected)
        assert refused.reason == "aborted"
    accepted(world.admit(us, session, "turn_2"))


def test_an_abort_of_a_turn_that_never_comes_is_forgotten_after_a_day(
    world: LineWorld, us: Owner, session: str
) -> None:
    world.abort(us, session, "turn_never")
    item = world.add(us, session, ttl_s=1e6)
    claimed = world.claim(us, session)
    assert claimed is not None
    world.abort(us, session)
    world.clock.advance(24 * 3600 - 1)
    assert world.recover(us).signals == 0
    world.clock.advance(1)
    assert world.recover(us).signals == 1
    assert world.recover(us).signals == 0
    assert states(world, session) == ["dropped", "pending"]  # the other's item may still come
    assert world.item(item.id) is not None
    assert world.read(lambda: signal_rows.page_pending(0, 10))


def test_an_ear_hears_what_was_said_before_it_listened(
    world: LineWorld, us: Owner, session: str, turn: Accepted
) -> None:
    world.abort(us, session)
    scope = AbortScope()

    async def listen() -> None:
        ear = TurnEar(world.store, "turn_1", scope)
        ear.start()
        while not scope.is_tripped:
            await asyncio.sleep(0.01)
        await ear.stop()

    world.do(listen())
    assert scope.reason == "user-stop"
