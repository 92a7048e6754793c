"""Where a history may be cut: whatever was cut off, no call is parted from its results."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from mcode_exec.records.history import HistoryRecord, ToolResultBlock
from mcode_exec.sessions.rounds import Cut, NoCutError, last_round, up_to
from mcode_exec.sessions.transcript import calls_of
from tests.unit.sessions.history_records import answer, result, user


def calls_without_results(records: Sequence[HistoryRecord]) -> set[str]:
    made = {call.id for record in records for call in calls_of(record.message)}
    return made - {
        block.call_id
        for record in records
        for block in record.message.content
        if isinstance(block, ToolResultBlock)
    }


@st.composite
def histories(draw: st.DrawFn) -> list[HistoryRecord]:
    """Turns of any shape, the last of them stopped anywhere."""
    records: list[HistoryRecord] = []
    for _ in range(draw(st.integers(0, 4))):
        for _ in range(draw(st.integers(1, 2))):
            records.append(user(len(records)))
        for calls in draw(st.lists(st.integers(0, 3), max_size=3)):
            number = len(records)
            ids = [f"call_{number}_{one}" for one in range(calls)]
            records.append(answer(number, "so", *ids))
            records += [result(number + 1 + at, one) for at, one in enumerate(ids)]
    return records[: draw(st.integers(0, len(records)))]


def cut_at(records: list[HistoryRecord], message_id: str, *, is_running: bool) -> tuple[Cut, str | None]:
    """The cut, or why there is none."""
    try:
        return up_to(records, message_id, is_running=is_running), None
    except NoCutError as error:
        return Cut(count=0), error.reason


@given(histories())
def test_the_last_round_of_a_running_turn_is_whole_and_as_late_as_can_be(
    records: list[HistoryRecord],
) -> None:
    try:
        cut = last_round(records, is_running=True)
    except NoCutError:
        cut = Cut(count=0)
    taken = records[: cut.count]
    assert not cut.is_cut_short
    assert calls_without_results(taken) == set()
    assert not taken or taken[-1].message.role != "user"
    for count in range(cut.count + 1, len(records) + 1):
        more = records[:count]
        assert more[-1].message.role == "user" or calls_without_results(more), "it could have been longer"


@given(histories())
def test_of_a_turn_that_is_over_everything_is_taken_but_what_nobody_answered(
    records: list[HistoryRecord],
) -> None:
    try:
        cut = last_round(records, is_running=False)
    except NoCutError:
        assert all(record.message.role == "user" for record in records)
        return
    assert all(record.message.role == "user" for record in records[cut.count :])
    assert cut.is_cut_short == bool(calls_without_results(records[: cut.count]))


@given(histories(), st.data())
def test_a_cut_behind_any_message_takes_its_results_along_and_nothing_more(
    records: list[HistoryRecord], data: st.DataObject
) -> None:
    named = [record for record in records if record.message.role != "tool"]
    if not named:
        return
    at = data.draw(st.sampled_from(named))
    is_running = data.draw(st.booleans())
    where = records.index(at)
    cut, reason = cut_at(records, at.id, is_running=is_running)
    if reason == "runs":
        assert is_running
        assert calls_without_results(records[where:])
    elif reason == "nothing":
        assert all(record.message.role == "user" for record in records[: where + 1])
    if reason is not None:
        return
    taken = records[: cut.count]
    assert bool(calls_without_results(taken)) == cut.is_cut_short
    is_unanswered = at.message.role == "user" and not any(
        record.message.role == "assistant" for record in records[where:]
    )
    if is_unanswered:
        assert cut.count <= where
        assert taken[-1].message.role != "user"
    else:
        assert taken[where] is at
        assert all(record.message.role == "tool" for record in taken[where + 1 :])


def test_a_message_of_a_tool_or_of_another_session_is_no_place_to_cut() -> None:
    records = [user(1), answer(2, "so", "call_1"), result(3, "call_1")]
    for name in ("msg-3", "msg-9"):
        with pytest.raises(NoCutError) as raised:
            up_to(records, name, is_running=False)
        assert raised.value.reason == "no-message"


def test_a_prompt_that_is_said_again_counts_where_it_was_said_last() -> None:
    records = [user(1), answer(2, "no"), user(3), user(3), answer(4, "yes")]
    assert up_to(records, "msg-3", is_running=False) == Cut(count=4)


def test_what_was_inherited_or_added_stays_although_nobody_has_answered_it() -> None:
    inherited = structs.replace(user(1), copied_from="msg-0")
    note = structs.replace(user(2), repair="fork")
    assert last_round([inherited, note], is_running=False) == Cut(count=2)
    assert last_round([inherited, note, user(3)], is_running=True) == Cut(count=2)


def test_a_call_that_was_cut_short_in_the_middle_is_said_to_be() -> None:
    records = [user(1), answer(2, "so", "call_1", "call_2"), result(3, "call_1"), user(4), answer(5, "then")]
    assert up_to(records, "msg-2", is_running=True) == Cut(count=3, is_cut_short=True)
