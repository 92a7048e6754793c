"""Which due times are run, once somebody looks: the catch-up policies."""

from __future__ import annotations

from msgspec import Struct

from mcode_exec.batch.schedules.times import DueTimes, Times
from mcode_exec.records.job import CatchUp

#: a due time that is not older than this is not missed: callers come every minute, and machines are slow at times
ON_TIME_MS = 10 * 60_000
MAX_CAUGHT_UP = 100  # due times that `all` runs of one gap


class Missed(Struct, frozen=True, kw_only=True):
    """Due times in a row that nobody is going to run."""

    first_ms: int
    last_ms: int
    #: None: too many to count
    count: int | None


class Judged(Struct, frozen=True, kw_only=True):
    """What is to become of the due times of a stretch."""

    to_run: tuple[int, ...]
    missed: Missed | None


def judge(times: Times, catch_up: CatchUp, after_ms: int, now_ms: int) -> Judged:
    """What of the due times behind `after_ms` up to now is run; everything else is missed, and kept as such.

    `none`: the newest, if it is on time · `one`: the newest · `all`: the newest MAX_CAUGHT_UP, in order.
    """
    most = MAX_CAUGHT_UP if catch_up == "all" else 1
    found = times.between(after_ms, now_ms, most + 1)
    to_run = found.newest[-most:]
    if catch_up == "none" and to_run and now_ms - to_run[-1] > ON_TIME_MS:
        to_run = ()
    return Judged(to_run=to_run, missed=_missed(found, len(to_run)))


def _missed(found: DueTimes, count_to_run: int) -> Missed | None:
    left = found.newest[: len(found.newest) - count_to_run]
    if found.first_ms is None or not left:
        return None
    return Missed(
        first_ms=found.first_ms,
        last_ms=left[-1],
        count=None if found.count is None else found.count - count_to_run,
    )
