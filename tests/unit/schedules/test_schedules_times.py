"""Due times: cron in time zones, over both changes of the clocks, and what catch-up makes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from mcode_exec.batch.schedules.catching_up import MAX_CAUGHT_UP, Missed, judge
from mcode_exec.batch.schedules.times import Times, checked_times, local_zone, zone_of
from mcode_exec.errors import ConfigError, InvocationError
from mcode_exec.records.job import CatchUp

MINUTE_MS = 60_000
DAY_MS = 86_400_000


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def walked(cron: str, zone: str, after: str, count: int) -> list[str]:
    """The next due times, as people of that zone see them."""
    times = Times(cron, zone_of(zone))
    return [times.shown(due) for due in islice(times.each_after(ms(after)), count)]


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        # a fixed time in the gap comes at the first instant behind it, once
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z",
         ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
        ("0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z",
         ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"]),
        ("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00Z",
         ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"]),
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00Z",
         ["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z",
         ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"]),
        # one that comes twice is run the first time
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z",
         ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00Z",
         ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00Z",
         ["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"]),
        # also where somebody looks in the middle of the repeated hour
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10Z", ["2026-10-26T02:30:00+01:00"]),
        ("30 1 * * *", "America/New_York", "2026-11-01T06:10Z", ["2026-11-02T01:30:00-05:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T15:05Z", ["2026-04-06T01:45:00+10:30"]),
        # a wildcard hour or minute follows elapsed time
        ("30 * * * *", "Europe/Berlin", "2026-03-29T00:00Z",
         ["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00", "2026-03-29T04:30:00+02:00"]),
        ("30 * * * *", "Europe/Berlin", "2026-10-25T00:00Z",
         ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"]),
        ("*/30 1 * * *", "America/New_York", "2026-11-01T04:50Z",
         ["2026-11-01T01:00:00-04:00", "2026-11-01T01:30:00-04:00",
          "2026-11-01T01:00:00-05:00", "2026-11-01T01:30:00-05:00", "2026-11-02T01:00:00-05:00"]),
        ("*/15 * * * *", "Australia/Lord_Howe", "2026-04-04T14:40Z",
         ["2026-04-05T01:45:00+11:00", "2026-04-05T01:30:00+10:30", "2026-04-05T01:45:00+10:30",
          "2026-04-05T02:00:00+10:30"]),
        ("*/15 * * * *", "Australia/Lord_Howe", "2026-10-03T15:10Z",
         ["2026-10-04T01:45:00+10:30", "2026-10-04T02:30:00+11:00", "2026-10-04T02:45:00+11:00"]),
        ("@daily", "UTC", "2026-01-01T12:00Z", ["2026-01-02T00:00:00+00:00"]),
        ("@WEEKLY", "UTC", "2026-01-01T12:00Z", ["2026-01-04T00:00:00+00:00"]),
        ("@yearly", "Asia/Tokyo", "2026-01-01T12:00Z", ["2027-01-01T00:00:00+09:00"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00Z", ["2028-02-29T00:00:00+00:00"]),
    ],
)  # fmt: skip
def test_due_times_over_the_changes_of_the_clocks(
    cron: str, zone: str, after: str, expected: list[str]
) -> None:
    assert walked(cron, zone, after, len(expected)) == expected


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    "cron", ["10 0 * * *", "30 1 * * *", "0 2 * * *", "15 2 * * *", "40 2 * * *", "0 3 * * *"]
)
def test_a_daily_time_comes_once_on_every_day_of_a_year(zone: str, cron: str) -> None:
    times = Times(cron, zone_of(zone))
    found = times.between(ms("2026-01-01T12:00Z"), ms("2027-01-01T12:00Z"), 1000)
    days = [datetime.fromtimestamp(due / 1000, ZoneInfo(zone)).date() for due in found.newest]
    assert len(days) == len(set(days)) == found.count
    assert all((later - earlier).days == 1 for earlier, later in pairwise(days))
    assert found.count in (365, 366)


@given(
    some.sampled_from(
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "UTC"]
    ),
    some.sampled_from(
        ["*/7 * * * *", "30 1-3 * * *", "0 */2 * * *", "15,45 2 * * *", "0 0 * * *", "5 * * * 0"]
    ),
    some.integers(ms("2026-01-01T00:00Z") // 1000, ms("2027-01-01T00:00Z") // 1000),
)
@example("Europe/Berlin", "15,45 2 * * *", ms("2026-10-25T01:20Z") // 1000)
def test_due_times_go_forward_and_do_not_depend_on_where_one_begins(zone: str, cron: str, at_s: int) -> None:
    times = Times(cron, zone_of(zone))
    found = list(islice(times.each_after(at_s * 1000 + 999), 20))
    assert found[0] > at_s * 1000
    assert found == sorted(set(found))
    for earlier, later in pairwise(found):
        assert times.after(earlier) == times.after(later - 1) == later


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("0 0 31 2 *", "no time that comes"),
        ("0 0 30 2 *", "no time that comes"),
        ("0 0 */31 2 1#5", "never comes"),
        ("* * * *", "4 fields"),
        ("0 * * * * *", "6 fields"),
        ("", "0 fields"),
        ("61 * * * *", "bad minute"),
        ("a b c d e", "bad minute"),
        ("* * * * mon-sun", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("9" * 5000 + " * * * *", "longer than 200"),
        ("@reboot", "start of the machine"),
        ("@often", "is not one of @hourly"),
        ("² * * * *", "bad minute"),
        ("L * * * *", "bad minute"),
    ],
)
def test_what_is_no_time_is_refused_in_one_sentence(cron: str, says: str) -> None:
    with pytest.raises(InvocationError) as refused:
        checked_times(cron, "UTC", ms("2026-01-01T00:00Z"))
    assert says in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    "name", ["Europe/Nowhere", "../../etc/passwd", "/etc/localtime", "", "Europe", "a\0b"]
)
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        zone_of(name)


def test_the_zone_of_the_machine_is_one_that_is_known() -> None:
    assert local_zone({"TZ": ":America/New_York"}) == "America/New_York"
    assert zone_of(local_zone({"TZ": "nonsense"})) is not None


HOURLY = Times("0 * * * *", UTC)


@pytest.mark.parametrize(
    ("catch_up", "now", "to_run", "missed"),
    [
        ("none", "T05:02Z", ["T05:00Z"], ("T01:00Z", "T04:00Z", 4)),
        ("none", "T05:30Z", [], ("T01:00Z", "T05:00Z", 5)),
        ("one", "T05:30Z", ["T05:00Z"], ("T01:00Z", "T04:00Z", 4)),
        ("one", "T01:00Z", ["T01:00Z"], None),
        ("all", "T03:30Z", ["T01:00Z", "T02:00Z", "T03:00Z"], None),
        ("one", "T00:59Z", [], None),
    ],
)
def test_what_was_missed_is_run_as_the_policy_says_and_told(
    catch_up: CatchUp, now: str, to_run: list[str], missed: tuple[str, str, int] | None
) -> None:
    day = "2026-05-01"
    judged = judge(HOURLY, catch_up, ms(f"{day}T00:30Z"), ms(day + now))
    assert judged.to_run == tuple(ms(day + one) for one in to_run)
    assert judged.missed == (
        None
        if missed is None
        else Missed(first_ms=ms(day + missed[0]), last_ms=ms(day + missed[1]), count=missed[2])
    )


def test_all_of_a_long_gap_are_the_newest_hundred() -> None:
    after, now = ms("2026-01-01T00:30Z"), ms("2026-01-31T00:30Z")
    judged = judge(HOURLY, "all", after, now)
    assert len(judged.to_run) == MAX_CAUGHT_UP
    assert judged.to_run[-1] == ms("2026-01-31T00:00Z")
    assert judged.missed is not None
    assert judged.missed.count == 720 - MAX_CAUGHT_UP
    assert judged.missed.last_ms == judged.to_run[0] - 60 * MINUTE_MS


@pytest.mark.parametrize(("catch_up", "count"), [("none", 1), ("one", 1), ("all", MAX_CAUGHT_UP)])
def test_more_than_can_be_counted_is_said_so(catch_up: CatchUp, count: int) -> None:
    judged = judge(Times("* * * * *", UTC), catch_up, ms("2026-01-01T00:00Z"), ms("2027-01-01T00:00Z"))
    assert len(judged.to_run) == count
    assert judged.to_run[-1] == ms("2027-01-01T00:00Z")
    assert judged.missed is not None
    assert (judged.missed.first_ms, judged.missed.count) == (ms("2026-01-01T00:01Z"), None)
    assert judged.missed.last_ms == judged.to_run[0] - MINUTE_MS


@pytest.mark.parametrize(("catch_up", "count"), [("none", 0), ("one", 1), ("all", 7)])
def test_a_machine_that_slept_for_a_week(catch_up: CatchUp, count: int) -> None:
    times = Times("0 3 * * *", zone_of("Europe/Berlin"))
    judged = judge(times, catch_up, ms("2026-10-20T12:00Z"), ms("2026-10-27T12:00Z"))
    assert len(judged.to_run) == count
    assert (judged.missed.count if judged.missed is not None else 0) == 7 - count
