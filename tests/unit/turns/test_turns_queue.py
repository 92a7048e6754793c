"""The line: who is in it, in which order, and what may be changed while it moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcode_exec.errors import BusyError, InvocationError, SessionError
from mcode_exec.records.history import TextBlock
from mcode_exec.records.queue import MAX_ITEMS, QueuePayload
from mcode_exec.store import queue_rows, queue_state_rows
from mcode_exec.turns import claims, queue
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.words import MAX_WORDS_BYTES
from tests.unit.turns.line_world import LineWorld, accepted, payload
from tests.unit.turns.turn_world import kill

HALF = "half a pair \ud83d of surrogates"


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


def order(world: LineWorld, session: str) -> list[str]:
    return [item.digest.removeprefix("digest of ") for item in world.items(session)]


# adding


def test_a_full_queue_takes_nothing_and_says_so(world: LineWorld, us: Owner, session: str) -> None:
    item = world.add(us, session)

    def fill() -> None:
        for number in range(MAX_ITEMS - 1):
            row = {"id": f"qi_{number}", "turn_id": f"turn_{number}"}
            queue_rows.insert_item(type(item)(**{**as_dict(item), **row}))

    world.write(fill)
    for waits in (False, True):
        with pytest.raises(BusyError, match="is full") as caught:
            world.add(us, session, waits=waits)
        assert caught.value.code == "queue_full"
    world.add(us, world.session().id)  # another session's line has room
    world.do(queue.remove(world.store, item.id, "taken-back", world.clock))
    world.add(us, session)


def as_dict(item: object) -> dict[str, object]:
    return {name: getattr(item, name) for name in item.__struct_fields__}  # type: ignore[attr-defined]


def test_a_message_beyond_1_mib_is_refused_whatever_its_letters(
    world: LineWorld, us: Owner, session: str
) -> None:
    for text in ("x" * MAX_WORDS_BYTES, "ü" * (MAX_WORDS_BYTES // 2), '"\n' * (MAX_WORDS_BYTES // 2)):
        world.add(us, session, text)
        with pytest.raises(InvocationError, match="1 MiB"):
            world.add(us, session, text + "x")
    assert len(world.items(session)) == 3


@pytest.mark.parametrize("text", ["日本語 🎉 \u202e", "\0", "", '"\\\n'])
def test_any_text_comes_back_as_it_was(world: LineWorld, us: Owner, session: str, text: str) -> None:
    item = world.add(us, session, text, dedupe_key=text)
    found = world.item(item.id)
    assert found is not None
    assert found.payload.content == (TextBlock(text=text),)
    assert world.added(us, session, text, dedupe_key=text) == (found, False)


def test_half_a_surrogate_pair_is_refused_in_one_sentence(world: LineWorld, us: Owner, session: str) -> None:
    for how in ({"text": HALF}, {"dedupe_key": HALF}, {"digest": HALF}, {"turn_id": HALF}):
        with pytest.raises(InvocationError, match="half a surrogate pair") as caught:
            world.add(us, session, **how)
        assert caught.value.exit_code == 2
        assert "\n" not in str(caught.value)
        assert str(caught.value).isprintable()
    with pytest.raises(InvocationError, match="half a surrogate pair"):
        world.item(HALF)
    item = world.add(us, session)
    with pytest.raises(InvocationError, match="half a surrogate pair"):
        world.do(queue.edit(world.store, item.id, lambda _: payload(HALF), lambda _: "d"))
    assert world.items(session) == [item]


def test_a_session_that_does_not_exist_has_no_line(world: LineWorld, us: Owner) -> None:
    with pytest.raises(SessionError, match="there is no session"):
        world.add(us, "mvs_" + 32 * "0")


def test_a_dedupe_key_is_one_item_of_its_session(world: LineWorld, us: Owner, session: str) -> None:
    item = world.add(us, session, dedupe_key="k")
    assert world.added(us, session, dedupe_key="k") == (item, False)
    with pytest.raises(SessionError, match="dedupe key 'k' was used before") as caught:
        world.add(us, session, "something else", dedupe_key="k")
    assert caught.value.code == "turn_ingress_conflict"
    assert world.added(us, world.session().id, dedupe_key="k")[1]
    claimed = world.claim(us, session)
    assert claimed is not None
    assert world.added(us, session, dedupe_key="k") == (claimed, False)


@pytest.mark.parametrize("ends", ["expired", "its waiter died"])
def test_the_key_of_an_item_that_will_never_run_is_free(
    world: LineWorld, us: Owner, session: str, ends: str
) -> None:
    other = world.owner()
    world.add(other, session, dedupe_key="k", ttl_s=10, waits=ends != "expired")
    if ends == "expired":
        world.clock.advance(10)
    else:
        kill(other)
    item, is_new = world.added(us, session, "something else", dedupe_key="k")
    assert is_new
    assert world.items(session) == [item]


def test_adding_asked_again_after_a_lost_answer_adds_nothing(
    world: LineWorld, us: Owner, session: str
) -> None:
    item = world.add(us, session, waits=True, turn_id="turn_x")
    assert world.added(us, session, waits=True, turn_id="turn_x") == (item, False)
    with pytest.raises(SessionError, match="turn id turn_x was used before"):
        world.add(us, session, "something else", turn_id="turn_x")


def test_only_a_drained_queue_takes_what_asks_for_that(world: LineWorld, us: Owner, session: str) -> None:
    drainer = world.owner()
    with pytest.raises(BusyError, match="no live process drains") as caught:
        world.add(us, session, only_if_drained=True)
    assert caught.value.code == "queue_not_drained"
    world.drain(drainer, session)
    world.add(us, session, only_if_drained=True)
    kill(drainer)
    with pytest.raises(BusyError):
        world.add(us, session, "more", only_if_drained=True)


def test_every_item_wakes_who_drains(world: LineWorld, us: Owner, session: str) -> None:
    seen = [world.read(lambda: queue_state_rows.find_wake(session))]
    for _ in range(3):
        world.add(us, session)
        seen.append(world.read(lambda: queue_state_rows.find_wake(session)))
    assert seen == [0, 1, 2, 3]


# changing


def test_an_item_moves_to_any_place_and_every_other_keeps_its_order(
    world: LineWorld, us: Owner, session: str
) -> None:
    items = {text: world.add(us, session, text) for text in "abcde"}
    for text, place, expected in [
        ("e", 1, "eabcd"),
        ("e", 3, "abecd"),
        ("a", 99, "becda"),
        ("a", 0, "abecd"),
        ("b", -5, "baecd"),
        ("b", 1, "baecd"),
    ]:
        moved = world.do(queue.move(world.store, items[text].id, place))
        assert "".join(order(world, session)) == expected
        assert moved == world.item(items[text].id)
    world.add(us, session, "f")
    assert "".join(order(world, session)) == "baecdf"
    claimed = world.claim(us, session)
    assert claimed is not None
    assert claimed.id == items["b"].id


def test_an_item_that_is_being_delivered_keeps_its_place(world: LineWorld, us: Owner, session: str) -> None:
    items = [world.add(us, session, text) for text in "abc"]
    claimed = world.claim(us, session)
    assert claimed is not None
    with pytest.raises(BusyError, match="move behind it"):
        world.do(queue.move(world.store, items[2].id, 1))
    with pytest.raises(BusyError, match="is being delivered as " + claimed.turn_id):
        world.do(queue.move(world.store, items[0].id, 2))
    world.do(queue.move(world.store, items[2].id, 2))
    assert order(world, session) == list("acb")


def test_a_line_longer_than_a_queue_may_be_is_still_put_in_order(
    world: LineWorld, us: Owner, session: str
) -> None:
    first = world.add(us, session)

    def fill() -> None:
        for number in range(MAX_ITEMS):
            row = {"id": f"qi_{number}", "turn_id": f"turn_{number}"}
            queue_rows.insert_item(type(first)(**{**as_dict(first), **row}))

    world.write(fill)  # as steers do that a turn could not take
    last = f"qi_{MAX_ITEMS - 1}"
    world.do(queue.move(world.store, last, 1))
    line = [item.id for item in world.items(session)]
    assert line[:2] == [last, first.id]
    assert len(set(line)) == MAX_ITEMS + 1


def test_an_item_is_edited_until_it_is_being_delivered(world: LineWorld, us: Owner, session: str) -> None:
    item = world.add(us, session)

    def change(_: QueuePayload) -> QueuePayload:
        return payload("something else")

    edited = world.do(queue.edit(world.store, item.id, change, lambda _: "new"))
    assert edited == world.item(item.id)
    assert (edited.digest, edited.payload) == ("new", payload("something else"))
    assert world.claim(us, session) is not None
    with pytest.raises(BusyError, match="is being delivered"):
        world.do(queue.edit(world.store, item.id, change, lambda _: "newer"))


def test_a_place_is_edited_by_nobody(world: LineWorld, us: Owner, session: str) -> None:
    place = world.wait(us, session)
    with pytest.raises(BusyError, match="only itself says what it runs"):
        world.do(queue.edit(world.store, place.id, lambda one: one, lambda _: "d"))


def test_what_is_gone_is_told_apart_from_what_cannot_be_changed(
    world: LineWorld, us: Owner, session: str
) -> None:
    assert not world.do(queue.remove(world.store, "qi_x", "cancelled", world.clock))
    for work in (
        queue.move(world.store, "qi_x", 1),
        queue.edit(world.store, "qi_x", lambda one: one, lambda _: "d"),
    ):
        with pytest.raises(SessionError, match="there is no queue item qi_x") as caught:
            world.do(work)
        assert caught.value.code == "queue_item_not_found"


def test_a_waiter_learns_why_its_place_is_gone(world: LineWorld, us: Owner, session: str) -> None:
    place = world.wait(us, session)
    assert world.do(queue.remove(world.store, place.id, "taken-back", world.clock))
    removal = world.read(lambda: queue_state_rows.find_removal(place.id))
    assert removal is not None
    assert removal.reason == "taken-back"
    world.do(queue.leave(world.store, place.id))
    assert world.read(lambda: queue_state_rows.find_removal(place.id)) is None


def test_clearing_leaves_the_places_of_waiters_and_what_is_being_delivered(
    world: LineWorld, us: Owner, session: str
) -> None:
    claimed = world.add(us, session)
    world.add(us, session)
    place = world.wait(us, session)
    world.add(us, session)
    assert world.claim(us, session) is not None
    world.do(queue.pause(world.store, session, world.clock))
    assert world.do(queue.clear(world.store, session, world.clock)) == 2
    assert [item.id for item in world.items(session)] == [claimed.id, place.id]
    assert world.pause(session) is None


# holding


def test_a_queue_without_items_for_others_is_not_held(world: LineWorld, us: Owner, session: str) -> None:
    world.wait(us, session)
    assert not world.do(queue.pause(world.store, session, world.clock))
    assert world.pause(session) is None
    assert not world.do(queue.unpause(world.store, session))


def test_a_pause_does_not_outlive_what_it_held(world: LineWorld, us: Owner, session: str) -> None:
    item = world.add(us, session)
    world.do(queue.pause(world.store, session, world.clock))
    world.add(us, session, "held as well")
    assert world.claim(us, session) is None
    for one in world.items(session):
        world.do(queue.remove(world.store, one.id, "taken-back", world.clock))
    later = world.add(us, session, "later")
    assert later.id != item.id
    assert world.claim(us, session) is not None


def test_a_dropped_item_is_gone(world: LineWorld, us: Owner, session: str) -> None:
    world.add(us, session)
    claimed = world.claim(us, session)
    assert claimed is not None
    assert world.do(claims.drop(world.store, claimed))
    assert world.items(session) == []
    accepted(world.admit(us, session, "turn_1"))
