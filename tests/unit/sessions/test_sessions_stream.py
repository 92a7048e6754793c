"""The ring: bounded, never waiting for a reader, and honest about what a reader has missed."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from mcode_exec.records.frame import BlockDelta, CheckEnded, Frame
from mcode_exec.records.result import CheckInfo
from mcode_exec.sessions.stream import MAX_BYTES, MAX_FRAMES, SessionStream, Subscription
from tests.unit.sessions.history_records import answer, user


def delta(text: str = "x") -> BlockDelta:
    return BlockDelta("msg-1", 0, "agent_message", text)


def drained(subscription: Subscription) -> list[Frame]:
    frames = []
    while (frame := subscription.poll()) is not None:
        frames.append(frame)
    return frames


def test_a_reserved_subscription_sees_every_frame_from_then_on_and_none_before() -> None:
    stream = SessionStream()
    stream.publish_live("t", delta("before"))
    subscription = stream.reserve()
    stream.publish_live("t", delta("after"))
    stream.publish_committed(user(1))
    stream.publish_terminal("t")
    assert [frame.kind for frame in drained(subscription)] == [
        "runtime-event",
        "message-committed",
        "turn-terminal",
    ]


def test_a_bound_subscription_hears_only_its_turn() -> None:
    stream = SessionStream()
    subscription = stream.reserve()
    subscription.bind_turn("turn_1")
    stream.publish_live("other", delta())
    stream.publish_committed(answer(2, "mine"))
    stream.publish_terminal("other")
    stream.publish_terminal("turn_1")
    assert [frame.turn_id for frame in drained(subscription)] == ["turn_1", "turn_1"]


def test_the_ring_holds_its_numbers_and_no_more() -> None:
    assert (MAX_FRAMES, MAX_BYTES) == (2000, 8 * 1024 * 1024)
    stream = SessionStream(max_frames=10, max_bytes=10_000)
    for _ in range(50):
        stream.publish_live("t", delta())
    assert len(stream._frames) == 10
    for _ in range(50):
        stream.publish_live("t", delta("x" * 3000))
    assert stream._bytes <= 10_000
    assert stream._bytes == sum(frame.size_bytes for frame in stream._frames)
    # what a check wrote is paid for as well
    stream.publish_live("t", CheckEnded("c", CheckInfo(status="failed", runs=1), "x" * 9000, 0))
    assert len(stream._frames) == 1
    # one that is larger than the ring is kept alone
    stream.publish_live("t", delta("x" * 50_000))
    assert len(stream._frames) == 1


def test_a_reader_that_fell_out_is_told_once_how_much_it_missed_and_then_reads_on() -> None:
    stream = SessionStream(max_frames=4)
    subscription = stream.reserve()
    for _ in range(9):
        stream.publish_live("t", delta())
    first = subscription.poll()
    assert first is not None
    assert (first.kind, first.size_bytes) == ("resync-required", 9)
    assert subscription.poll() is None
    stream.publish_live("t", delta("next"))
    assert [frame.kind for frame in drained(subscription)] == ["runtime-event"]


def test_the_terminal_frame_is_never_missed_however_slow_the_reader() -> None:
    stream = SessionStream(max_frames=3)
    subscription = stream.reserve()
    for _ in range(20):
        stream.publish_live("t", delta())
    stream.publish_terminal("t")
    assert [frame.kind for frame in drained(subscription)] == ["resync-required", "turn-terminal"]


def test_a_fast_reader_and_a_slow_one_do_not_disturb_each_other() -> None:
    stream = SessionStream(max_frames=5)
    fast, slow = stream.reserve(), stream.reserve()
    seen = []
    for number in range(30):
        stream.publish_live("t", delta(str(number)))
        seen += [frame.live.text for frame in drained(fast) if isinstance(frame.live, BlockDelta)]
    stream.publish_terminal("t")
    assert seen == [str(number) for number in range(30)]
    assert [frame.kind for frame in drained(fast)] == ["turn-terminal"]
    assert [frame.kind for frame in drained(slow)] == ["resync-required", "turn-terminal"]


def test_a_cursor_that_never_was_is_gone() -> None:
    stream = SessionStream()
    assert drained(stream.after_cursor(7))[0].kind == "resync-required"
    stream.publish_live("t", delta())
    assert [frame.cursor for frame in drained(stream.after_cursor(0))] == [1]


def test_a_waiting_reader_wakes_for_its_frame_and_can_be_cancelled() -> None:
    async def main() -> None:
        stream = SessionStream()
        waiting = asyncio.ensure_future(stream.reserve().next())
        await asyncio.sleep(0)
        stream.publish_terminal("t")
        assert (await waiting).kind == "turn-terminal"
        cancelled = asyncio.ensure_future(stream.reserve().next())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert not stream._waiting

    asyncio.run(main())


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.sampled_from(["delta", "commit", "fast", "slow"]), max_size=60),
    st.integers(min_value=1, max_value=6),
)
def test_no_committed_record_is_lost_without_a_word(steps: list[str], size: int) -> None:
    """Each reader gets every committed frame, or one resync after which it must read the store."""
    stream = SessionStream(max_frames=size)
    readers = {"fast": stream.reserve(), "slow": stream.reserve()}
    told: dict[str, set[str]] = {name: set() for name in readers}
    committed: list[str] = []

    def read(name: str) -> bool:
        for frame in drained(readers[name]):
            if frame.kind == "resync-required":
                told[name] = set(committed)
            elif frame.record is not None:
                assert frame.record.id not in told[name]
                told[name].add(frame.record.id)
            elif frame.kind == "turn-terminal":
                return True
        return False

    for number, step in enumerate(steps):
        if step == "delta":
            stream.publish_live("t", delta())
        elif step == "commit":
            committed.append(f"msg-{number}")
            stream.publish_committed(user(number))
        else:
            read(step)
    stream.publish_terminal("t")
    for name in readers:
        assert read(name)
        assert told[name] == set(committed)
