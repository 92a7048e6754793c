"""When tasks ran beside each other: lanes, and one axis of time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.batch.reports.timeline import Bar, lay_out


def bar(start_ms: int, end_ms: int) -> Bar:
    return Bar(task_id=f"{start_ms}-{end_ms}", state="succeeded", start_ms=start_ms, end_ms=end_ms)


def placed(*bars: Bar) -> dict[str, tuple[int, float, float]]:
    return {
        one.bar.task_id: (one.lane, round(one.left, 3), round(one.width, 3)) for one in lay_out(bars).bars
    }


def test_nothing_ran() -> None:
    assert lay_out([]).bars == ()


def test_a_lane_is_taken_again_when_its_task_is_over() -> None:
    assert placed(bar(0, 1000), bar(0, 400), bar(400, 1000)) == {
        "0-400": (0, 0.0, 0.4),
        "0-1000": (1, 0.0, 1.0),
        "400-1000": (0, 0.4, 0.6),
    }


def test_time_in_which_nothing_ran_is_cut() -> None:
    day = 86_400_000
    timeline = lay_out([bar(0, 10_000), bar(day, day + 10_000)])
    first, second = timeline.bars
    assert round(first.left + first.width, 3) == 0.49
    assert (round(second.left, 3), second.lane) == (0.51, 0)
    assert [round(cut, 3) for cut in timeline.cuts] == [0.5]
    assert [tick.at_ms for tick in timeline.ticks if tick.at_ms is not None] == [0, day]


def test_a_short_rest_is_no_cut() -> None:
    assert lay_out([bar(0, 10_000), bar(20_000, 30_000)]).cuts == ()


def test_a_task_that_took_no_time_has_its_place() -> None:
    assert placed(bar(5, 5)) == {"5-5": (0, 0.0, 0.0)}


@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)).map(lambda at: bar(at[0], sum(at))),
        max_size=60,
    )
)
def test_bars_of_a_lane_never_lie_over_each_other_and_nothing_leaves_the_picture(bars: list[Bar]) -> None:
    timeline = lay_out(bars)
    assert len(timeline.bars) == len(bars)
    free: dict[int, float] = {}
    for one in timeline.bars:
        assert one.left >= free.get(one.lane, 0.0) - 1e-9
        assert -1e-9 <= one.left <= one.left + one.width <= 1 + 1e-9
        free[one.lane] = one.left + one.width
    assert timeline.lanes == len(free)
    assert len(timeline.ticks) <= 8 + 2 * (len(timeline.cuts) + 1)
