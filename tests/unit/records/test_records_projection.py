"""Live or read back, a reader is told the same items under the same ids, each completed once."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from mcode_exec.records.event import ItemCompleted, ItemDiscarded, ItemStarted, ItemUpdated
from mcode_exec.records.frame import AttemptVoided, BlockDelta, ToolRunning
from mcode_exec.records.history import (
    HistoryRecord,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.projection import EventProjector, display_of, with_results


def answer(number: int, kinds: list[str]) -> HistoryRecord:
    blocks: list[Any] = []
    for index, kind in enumerate(kinds):
        if kind == "text":
            blocks.append(TextBlock(text=f"text {number}.{index}"))
        elif kind == "thinking":
            blocks.append(ThinkingBlock(text=f"thought {number}.{index}"))
        else:
            name = "todo_write" if kind == "todo" else "bash"
            blocks.append(ToolCallBlock(id=f"call_{number}_{index}", name=name, arguments={"command": "x"}))
    return HistoryRecord(
        id=f"msg-{number}",
        turn_id="t",
        at_ms=number,
        message=Message(role="assistant", content=tuple(blocks)),
    )


def results_of(record: HistoryRecord, statuses: list[str]) -> list[HistoryRecord]:
    calls = [block for block in record.message.content if isinstance(block, ToolCallBlock)]
    return [
        HistoryRecord(
            id=f"{record.id}-result-{number}",
            turn_id="t",
            at_ms=9,
            message=Message(
                role="tool",
                content=(
                    ToolResultBlock(
                        call_id=call.id,
                        name=call.name,
                        content=f"out of {call.id}",
                        is_error=status != "completed",
                        status=status,
                        duration_ms=5,
                    ),
                ),
            ),
        )
        for number, (call, status) in enumerate(zip(calls, statuses, strict=False))
    ]


def stored(records: list[HistoryRecord]) -> list[DisplayMessage]:
    """What the rows say after these records."""
    messages: dict[str, DisplayMessage] = {}
    for record in records:
        shown = display_of(record, "s")
        if shown is not None:
            messages[shown.id] = shown
            continue
        for block in record.message.content:
            assert isinstance(block, ToolResultBlock)
            for key, message in messages.items():
                messages[key] = with_results(message, {block.call_id: block})
    return list(messages.values())


def completed(events: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for event in events:
        if isinstance(event, ItemCompleted):
            assert event.item.id not in found, "an item was completed twice"
            found[event.item.id] = event.item
    return found


conversations = st.lists(
    st.lists(st.sampled_from(["text", "thinking", "call", "todo"]), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)
statuses = st.lists(st.sampled_from(["completed", "error", "denied", "interrupted"]), min_size=4, max_size=4)


def records_of(kinds: list[list[str]], how: list[str]) -> list[HistoryRecord]:
    records: list[HistoryRecord] = []
    for number, one in enumerate(kinds):
        record = answer(number, one)
        records += [record, *results_of(record, how)]
    return records


@settings(deadline=None, max_examples=60)
@given(kinds=conversations, how=statuses, cut=st.integers(0, 30), with_deltas=st.booleans())
def test_a_reader_that_missed_frames_ends_up_with_the_same_items(
    kinds: list[list[str]], how: list[str], cut: int, with_deltas: bool
) -> None:
    records = records_of(kinds, how)
    live = EventProjector(with_deltas=with_deltas)
    told = [event for record in records for event in live.committed(record, "s")]

    late = EventProjector(with_deltas=with_deltas)
    kept = cut % (len(records) + 1)
    resumed = [event for record in records[:kept] for event in late.committed(record, "s")]
    resumed += list(late.persisted(stored(records)))
    # a frame that was in the ring all the same is not told again
    resumed += [event for record in records for event in late.committed(record, "s")]

    assert completed(resumed) == completed(told)
    expected = {f"msg-{number}:{index}" for number, one in enumerate(kinds) for index in range(len(one))}
    assert set(completed(told)) == expected
    assert not list(live.abandoned("over"))
    assert not list(late.abandoned("over"))


@settings(deadline=None, max_examples=60)
@given(kinds=conversations, how=statuses)
def test_deltas_add_up_to_the_item_and_stand_between_its_start_and_its_end(
    kinds: list[list[str]], how: list[str]
) -> None:
    projector = EventProjector(with_deltas=True)
    events: list[Any] = []
    for record in records_of(kinds, how):
        for index, block in enumerate(record.message.content):
            if isinstance(block, TextBlock | ThinkingBlock):
                kind = "agent_message" if isinstance(block, TextBlock) else "reasoning"
                for piece in (block.text[:3], block.text[3:]):
                    events += projector.live(BlockDelta(record.id, index, kind, piece))  # type: ignore[arg-type]
        events += projector.committed(record, "s")
    open_items: dict[str, str] = {}
    for event in events:
        if isinstance(event, ItemStarted):
            assert event.item.id not in open_items
            open_items[event.item.id] = ""
        elif isinstance(event, ItemUpdated):
            if event.item.content_delta is not UNSET:
                open_items[event.item.id] += str(event.item.content_delta)
        elif isinstance(event, ItemCompleted):
            streamed = open_items.pop(event.item.id, None)
            if event.item.type in ("agent_message", "reasoning"):
                assert streamed == event.item.content
    assert not open_items


def test_an_attempt_that_is_void_closes_its_items_and_its_successor_has_other_ids() -> None:
    projector = EventProjector(with_deltas=True)
    events = list(projector.live(BlockDelta("msg-a", 0, "agent_message", "half")))
    events += projector.live(AttemptVoided("msg-a", "cut"))
    events += projector.live(BlockDelta("msg-b", 0, "agent_message", "whole"))
    assert [type(event) for event in events] == [
        ItemStarted,
        ItemUpdated,
        ItemDiscarded,
        ItemStarted,
        ItemUpdated,
    ]
    assert events[2].item_id == "msg-a:0"  # type: ignore[union-attr]


def test_what_never_committed_is_discarded_at_the_end() -> None:
    projector = EventProjector(with_deltas=True)
    list(projector.live(BlockDelta("msg-a", 0, "agent_message", "half")))
    call = answer(1, ["call"])
    list(projector.committed(call, "s"))
    left = list(projector.abandoned("over"))
    assert [event.item_id for event in left if isinstance(event, ItemDiscarded)] == ["msg-a:0", "msg-1:0"]
    assert not list(projector.abandoned("over"))


def test_a_running_call_is_told_under_the_id_it_completes_with() -> None:
    projector = EventProjector(with_deltas=False)
    call = answer(1, ["text", "call"])
    events = list(projector.committed(call, "s"))
    events += projector.live(ToolRunning("msg-1", 1, "call_1_1", "bash", {"command": "x"}))
    for one in results_of(call, ["completed"]):
        events += projector.committed(one, "s")
    ids = [event.item.id for event in events if not isinstance(event, ItemDiscarded)]  # type: ignore[union-attr]
    assert ids == ["msg-1:0", "msg-1:1", "msg-1:1", "msg-1:1"]


def test_without_deltas_no_partial_text_is_told() -> None:
    projector = EventProjector(with_deltas=False)
    assert not list(projector.live(BlockDelta("msg-a", 0, "agent_message", "half")))
    assert not list(projector.abandoned("over"))


def test_a_result_without_its_call_tells_nothing() -> None:
    projector = EventProjector(with_deltas=True)
    (orphan,) = results_of(answer(1, ["call"]), ["completed"])
    assert not list(projector.committed(orphan, "s"))
