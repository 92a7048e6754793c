"""When a schedule is due: five fields of cron, in a time zone.

A due time is an instant, stored in UTC milliseconds.  Where minute and hour are
fixed (neither field begins with `*`), a time that the change to summer time
leaves out comes once, at the first instant behind the gap, and one that comes
twice is run the first time.  A wildcard minute or hour follows elapsed time.
cronsim has these rules of Debian's cron; here it is kept from standing still
or stepping back, which it does where it begins within the repeated hour.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, tzinfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from mcode_exec.errors import ConfigError, InvocationError

_WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MAX_CRON = 200  # characters
_MAX_COUNTED = 20_000  # due times that are looked at one by one
_HOUR_MS = 3_600_000
#: how far back the newest due times are looked for, where there are more than can be counted
_SPANS_MS = tuple(_HOUR_MS * hours for hours in (1, 24, 24 * 32, 24 * 366, 24 * 366 * 8))


class DueTimes(Struct, frozen=True, kw_only=True):
    """The due times of a stretch of time, in milliseconds."""

    #: the first one; None: there is none
    first_ms: int | None
    #: the newest ones, in order
    newest: tuple[int, ...]
    #: how many there are; None: too many to count
    count: int | None


class Times:
    """The due times of a cron expression in a zone."""

    def __init__(self, cron: str, zone: tzinfo) -> None:
        """Raises: InvocationError for an expression that cannot be read."""
        self.cron = cron
        self._zone = zone
        self._fields = _fields(cron)
        _iterator(self._fields, datetime.now(UTC), cron)

    def after(self, at_ms: int) -> int | None:
        """The first due time behind an instant; None if it never comes."""
        return next(self.each_after(at_ms), None)

    def each_after(self, at_ms: int) -> Iterator[int]:
        """Every due time behind an instant, in order."""
        start = datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(self._zone)
        last_ms = at_ms
        for due in _iterator(self._fields, start, self.cron):
            due_ms = round(due.timestamp()) * 1000
            if due_ms > last_ms:
                last_ms = due_ms
                yield due_ms

    def between(self, after_ms: int, until_ms: int, most: int) -> DueTimes:
        """The due times behind `after_ms`, up to and with `until_ms`; the newest `most` of them by name."""
        newest: deque[int] = deque(maxlen=most)
        first_ms, count = None, 0
        for due_ms in self.each_after(after_ms):
            if due_ms > until_ms:
                return DueTimes(first_ms=first_ms, newest=tuple(newest), count=count)
            first_ms = due_ms if first_ms is None else first_ms
            newest.append(due_ms)
            count += 1
            if count > _MAX_COUNTED:
                return DueTimes(first_ms=first_ms, newest=self._newest(after_ms, until_ms, most), count=None)
        return DueTimes(first_ms=first_ms, newest=tuple(newest), count=count)

    def _newest(self, after_ms: int, until_ms: int, most: int) -> tuple[int, ...]:
        newest: deque[int] = deque(maxlen=most)
        for span_ms in _SPANS_MS:
            newest.clear()
            for due_ms in self.each_after(max(after_ms, until_ms - span_ms)):
                if due_ms > until_ms:
                    break
                newest.append(due_ms)
            if len(newest) == most:
                break
        return tuple(newest)

    def shown(self, at_ms: int) -> str:
        """An instant in the zone, as ISO 8601 with its offset."""
        return in_zone(at_ms, self._zone)


def in_zone(at_ms: int, zone: tzinfo) -> str:
    """An instant as ISO 8601 with the offset that holds then."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(zone).isoformat(timespec="seconds")


def _fields(cron: str) -> str:
    text = " ".join(cron.split())
    if text.startswith("@"):
        found = _WORDS.get(text.lower())
        if found is None:
            known = ", ".join(_WORDS)
            why = " (a schedule has no start of the machine)" if text.lower() == "@reboot" else ""
            raise InvocationError(f"cron: {text[:40]!r} is not one of {known}{why}.")
        return found
    count = len(text.split())
    if count != 5 or len(text) > _MAX_CRON:
        raise InvocationError(
            f"cron: {text[:60]!r} has {count} fields; five are needed (minute, hour, day of the month, month, "
            'day of the week), such as "0 3 * * 1-5", or a word such as @daily.'
            if count != 5
            else f"cron: the expression is longer than {_MAX_CRON} characters."
        )
    return text


def _iterator(fields: str, start: datetime, cron: str) -> CronSim:
    try:
        return CronSim(fields, start)
    except (CronSimError, ValueError, AssertionError) as error:
        told = str(error).lower() or "it cannot be read"
        raise InvocationError(f'cron: "{cron}" is no time that comes: {told}.') from None


def checked_times(cron: str, timezone: str, now_ms: int) -> Times:
    """The due times of a schedule.  Raises: InvocationError for a zone or an expression without sense."""
    try:
        zone = zone_of(timezone)
    except ConfigError as error:
        raise InvocationError(error.message) from None
    times = Times(cron, zone)
    if times.after(now_ms) is None:
        raise InvocationError(f'cron: "{cron}" never comes: no year has such a day.')
    return times


def zone_of(name: str) -> tzinfo:
    """The time zone of that IANA name.  Raises: ConfigError where this machine has none."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise ConfigError(
            f"there is no time zone {name[:60]!r} on this machine; write one such as Europe/Berlin "
            "(the tzdata package has them all)"
        ) from None


def local_zone(env: Mapping[str, str]) -> str:
    """What this machine's zone is called; UTC where that cannot be told."""
    candidates = [env.get("TZ", "").removeprefix(":")]
    try:
        candidates.append(os.readlink("/etc/localtime").rpartition("zoneinfo/")[2])
    except OSError:
        pass
    for name in candidates:
        if name and not name.startswith("/"):
            try:
                zone_of(name)
            except ConfigError:
                continue
            return name
    return "UTC"
